"""Reports as Traces of flashinfer-bench, one for each workload: what maps to what.

correct                        PASSED, with errors and times
wrong values, shape, dtype     INCORRECT_NUMERICAL (with errors), INCORRECT_SHAPE, INCORRECT_DTYPE
wrong otherwise, flaky,        RUNTIME_ERROR; `log` has the sentence (memory it must not touch, a
  crashed, out of memory       result of another structure)
timed out                      TIMEOUT
does not build, does not load  COMPILE_ERROR, as theirs for a failed import
refused                        RUNTIME_ERROR; SOL-ExecBench has REWARD_HACK
reference failed               none; SOL-ExecBench has INVALID_REFERENCE

Errors are the largest of all trials. Times are milliseconds: device times, or whole calls where
there are none, of the solution and of eager PyTorch, medians where theirs are means. A format in
which PASSED without times is invalid cannot say that a case is right and was not timed; it is left
out, as are cases that have no verdict (needs a GPU, environment, skipped).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from harness.formats import flashinfer, flashinfer_solution, sol_execbench
from harness.records import (
    CaseReport,
    Check,
    Environment,
    Failed,
    Failure,
    Outcome,
    Plan,
    Report,
    Speed,
)

STATUSES = {
    Outcome.FLAKY: "RUNTIME_ERROR",
    Outcome.CRASHED: "RUNTIME_ERROR",
    Outcome.OUT_OF_MEMORY: "RUNTIME_ERROR",
    Outcome.REFUSED: "RUNTIME_ERROR",
    Outcome.TIMED_OUT: "TIMEOUT",
    Outcome.DOES_NOT_BUILD: "COMPILE_ERROR",
    Outcome.DOES_NOT_LOAD: "COMPILE_ERROR",
}
WRONG = {
    "values": "INCORRECT_NUMERICAL",
    "shape": "INCORRECT_SHAPE",
    "dtype": "INCORRECT_DTYPE",
    "": "RUNTIME_ERROR",
}


@dataclass(frozen=True)
class Traces:
    """Objects to be written, one a line, and for each case without one the reason."""

    lines: tuple[dict, ...]
    left_out: tuple[str, ...]


def traces(plan: Plan, report: Report) -> Traces:
    """What the format can say of one solution. Nothing where plan and files are not of it."""
    try:
        problem = flashinfer.read(plan.reference)
        solution = flashinfer_solution.read(plan.solution)
    except Failed as failed:
        return Traces((), (failed.failure.message,))
    cases = report.cases
    if report.failure is not None:  # it holds for each of them
        cases = tuple(CaseReport(case, failure=report.failure) for case in plan.cases)
    lines, left_out = [], []
    for case in cases:
        evaluation = _evaluation(plan, report, case, problem.sol)
        if evaluation is None:
            left_out.append(f"{case.case.label}: {_why(case)}")
            continue
        workload = problem.workload(case.case.sizes["uuid"])
        lines.append(
            {
                "definition": problem.definition.name,
                "workload": workload.body,
                "solution": solution.name,
                "evaluation": evaluation,
            }
        )
    return Traces(tuple(lines), tuple(left_out))


def _why(case: CaseReport) -> str:
    if case.outcome is Outcome.CORRECT:
        return f"correct, not timed ({case.not_timed or 'no time of eager PyTorch'})"
    return case.outcome.value


def _evaluation(plan: Plan, report: Report, case: CaseReport, sol: bool) -> dict | None:
    status = _status(case, sol)
    performance = _performance(case.speed) if status == "PASSED" else None
    if status is None or (status == "PASSED" and performance is None):
        return None
    measured = status in ("PASSED", "INCORRECT_NUMERICAL")
    return {
        "status": status,
        "environment": _environment(report.environment, plan.device),
        "timestamp": report.started or datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "log": _log(case).replace(plan.solution, Path(plan.solution).name),
        "correctness": _correctness(case.check) if measured else None,
        "performance": performance,
    }


def _status(case: CaseReport, sol: bool) -> str | None:
    """None: there is no verdict on the solution."""
    if case.outcome is Outcome.CORRECT:
        return "PASSED"
    if case.outcome is Outcome.WRONG:
        return WRONG[case.check.mismatch]
    own = sol_execbench.STATUSES if sol else {}
    return own.get(case.outcome) or STATUSES.get(case.outcome)


def _log(case: CaseReport) -> str:
    failure: Failure | None = case.failure
    if failure is not None:
        return "\n".join((failure.message, *failure.details))
    return "\n".join((case.check.message, *case.labels)).strip() if case.check else ""


def _environment(where: Environment, device: str) -> dict:
    libs = {"torch": where.torch, "cuda": where.cuda}
    return {
        "hardware": where.gpu or device,
        "libs": {name: version for name, version in libs.items() if version},
    }


def _correctness(check: Check) -> dict:
    worst_rel = math.nan if check.worst_rel is None else check.worst_rel
    return {
        "max_relative_error": _number(worst_rel),
        "max_absolute_error": _number(check.worst_abs),
    }


def _performance(speed: Speed | None) -> dict | None:
    if speed is None:
        return None
    eager = next((rival for rival in speed.rivals if rival.who == "eager"), None)
    if eager is None:
        return None
    on_device = speed.solution.device and eager.device
    pair = (speed.solution.device, eager.device) if on_device else (speed.solution.call, eager.call)
    if not all(pair) or not pair[0].median_us > 0:
        return None
    mine, theirs = (stat.median_us / 1e3 for stat in pair)
    return {
        "latency_ms": mine,
        "reference_latency_ms": theirs,
        "speedup_factor": theirs / mine,
    }


def _number(value: float) -> float | str:
    """Numbers that JSON has not are written as words."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity"
