"""Carry out plans: build all, then one judge process per solution, each with a time limit."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from harness import build, run_judge, source
from harness.records import Build, Failed, Failure, Plan, Report, to_dict
from harness.run_judge import Judging

Listener = Callable[["Progress"], None]


@dataclass(frozen=True)
class Progress:
    """One step, for the live line: what happens to which op, and how far the run is.

    `steps` of `steps_in_all`: a build or a case each, for an estimate of what remains.
    `partial`: the cases of the op that are judged so far.
    """

    op: str
    text: str
    done: int
    total: int
    steps: int = 0
    steps_in_all: int = 0
    partial: Report | None = None


def evaluate(
    plans: tuple[Plan, ...],
    listen: Listener,
    keep: Path,
    ready: Mapping[str, Judging] | None = None,
) -> tuple[Report, ...]:
    """Judge every plan; one Report each, whatever happens, kept in `keep` as soon as it is known.

    listen: called in this thread, at least every second; what it raises ends the run and all
    that the run started. ready: judge processes by op that were started before their solution
    was written. Raises Failed(ENVIRONMENT) before any op when the machine cannot build at all.
    """
    keep.mkdir(parents=True, exist_ok=True)
    refused = {p.solution: failure for p in plans if (failure := _unreadable(p)) is not None}
    wanted = [p.solution for p in plans if p.solution not in refused]
    count = _Count(len(wanted), plans)
    built = _build(wanted, plans, lambda op, text, done: listen(count.building(op, text, done)))
    reports = []
    for one in plans:
        listen(count.judging(one.op, "checking"))
        result = refused.get(one.solution) or built[one.solution]
        if isinstance(result, Failure):
            report = run_judge.failed(one, result)
        else:
            judging = (ready or {}).get(one.op) or Judging(one, keep)
            step = lambda text, partial, one=one: listen(  # noqa: E731
                count.judging(one.op, text, partial)
            )
            report = dataclasses.replace(judging.follow(step), build=result)
        report = _with_left_out(report, one)
        _write(keep / f"{one.op}.json", report)
        reports.append(report)
        count.finished(one)
    listen(Progress("", "done", len(plans), len(plans), count.in_all, count.in_all))
    return tuple(reports)


class _Count:
    """How far a run is, in builds and cases."""

    def __init__(self, builds: int, plans: tuple[Plan, ...]):
        self.builds, self.plans = builds, len(plans)
        self.in_all = builds + sum(len(p.cases) for p in plans)
        self.ops = self.cases = 0

    def building(self, op: str, text: str, done: int) -> Progress:
        return Progress(op, text, done, self.builds, done, self.in_all)

    def judging(self, op: str, text: str, partial: Report | None = None) -> Progress:
        steps = self.builds + self.cases + (len(partial.cases) if partial else 0)
        return Progress(op, text, self.ops, self.plans, steps, self.in_all, partial)

    def finished(self, one: Plan) -> None:
        self.ops += 1
        self.cases += len(one.cases)


def run_folder(cache: Path) -> Path:
    """A new folder for this run's reports; two runs at once never share one."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    (cache / "runs").mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{stamp}-", dir=cache / "runs"))


def _unreadable(one: Plan) -> Failure | None:
    try:
        source.compare(source.read(one.solution), source.read(one.reference, "Model"))
    except Failed as failed:
        return failed.failure
    return None


def _build(
    solutions: list[str], plans: tuple[Plan, ...], tell: Callable[[str, str, int], None]
) -> dict[str, Build | Failure]:
    ops = {p.solution: p.op for p in plans}
    finished: set[str] = set()

    def on_event(event) -> None:
        if event.done:
            finished.add(event.solution)
        tell(ops.get(event.solution, ""), event.text, len(finished))

    return build.build_all(solutions, plans[0].device, on_event) if solutions else {}


def _with_left_out(report: Report, one: Plan) -> Report:
    if not one.left_out:
        return report
    note = f"not run without a GPU, for their size: {', '.join(one.left_out)}"
    return dataclasses.replace(report, notes=(*report.notes, note))


def _write(path: Path, report: Report) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(to_dict(report), indent=1), encoding="utf-8")
    os.replace(scratch, path)
