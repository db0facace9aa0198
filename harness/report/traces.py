"""Verdicts on Solutions as a file of Traces, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from harness.formats import flashinfer, flashinfer_traces
from harness.records import Failed, Outcome, Plan, Report
from harness.report import output


def refuse_others(plans: Iterable[Plan]) -> None:
    """Raise Failed before anything runs where there is nothing that a Trace could tell of."""
    for plan in plans:
        if not flashinfer.is_problem(plan.reference):
            raise Failed(
                Outcome.DOES_NOT_LOAD,
                "plan",
                f"--traces tells of a Definition and its Solution, and {plan.reference} is no "
                "Definition in JSON; give --reference DEFINITION.json",
            )


def write(pairs: Iterable[tuple[Plan, Report]], target: str) -> tuple[str, ...]:
    """Write all traces, whole or not at all; returns what to tell the user.

    target: "-" is standard output.
    """
    found = [flashinfer_traces.traces(plan, report) for plan, report in pairs]
    lines = [json.dumps(line) for one in found for line in one.lines]
    output.put("".join(f"{line}\n" for line in lines), target)
    left_out = [text for one in found for text in one.left_out]
    said = [] if target == "-" else [f"written: {Path(target)} ({len(lines)} traces)"]
    if left_out:
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        said.append(f"without a trace: {'; '.join(left_out[:3])}{more}")
    return tuple(said)
