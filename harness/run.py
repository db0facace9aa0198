"""Carry out plans: build all, then one judge process per solution, each with a time limit."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from harness import build, repair, run_judge, source, unpacked
from harness.formats import flashinfer, flashinfer_solution
from harness.records import Build, Failed, Failure, Plan, Report, to_dict
from harness.run_judge import Judging, Step

Listener = Callable[["Progress"], None]


@dataclass(frozen=True)
class Progress:
    """One step, for the live line: what happens to which op, and how far the run is.

    `cases` of `cases_in_all` are judged, once all is built; for an estimate of what remains.
    `partial`: the cases of the op that are judged so far.
    """

    op: str
    text: str
    done: int
    total: int
    cases: int = 0
    cases_in_all: int = 0
    partial: Report | None = None


@dataclass(frozen=True)
class Prepared:
    """A plan whose solution was read and built, or not, and what was odd about its source."""

    plan: Plan
    result: Build | Failure
    warnings: tuple[str, ...] = ()


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
    count = _Count(plans)
    reports = []
    for one in prepare(plans, listen):
        step = lambda text, partial=None, op=one.plan.op: listen(  # noqa: E731
            count.judging(op, text, partial)
        )
        reports.append(judge(one, step, keep, (ready or {}).get(one.plan.op)))
        count.finished(one.plan)
    listen(Progress("", "done", len(plans), len(plans), count.in_all, count.in_all))
    return tuple(reports)


def prepare(plans: tuple[Plan, ...], listen: Listener) -> tuple[Prepared, ...]:
    """Read all sources, then build all that can be read. Raises Failed(ENVIRONMENT)."""
    read = [_read_sources(one) for one in plans]
    pairs = list(zip(plans, read, strict=True))
    files = {_file(one): one for one, found in pairs if not isinstance(found, Failure)}
    built = _build(files, listen)
    return tuple(
        Prepared(one, found)
        if isinstance(found, Failure)
        else Prepared(one, _in_its_words(one, built[_file(one)]), found)
        for one, found in pairs
    )


def judge(prepared: Prepared, step: Step, keep: Path, judging: Judging | None = None) -> Report:
    """The one Report of a prepared plan, kept in `keep` under the op's name.

    judging: a judge process of this plan that was started before its solution was written.
    """
    keep.mkdir(parents=True, exist_ok=True)
    one, result = prepared.plan, prepared.result
    step("checking", None)
    if isinstance(result, Failure):
        report = run_judge.failed(one, result)
    else:
        report = (judging or Judging(one, keep)).follow(step)
        report = dataclasses.replace(report, build=result)
    report = dataclasses.replace(report, notes=(*report.notes, *prepared.warnings))
    report = _with_left_out(report, one)
    _write(keep / f"{one.op}.json", report)
    return report


class _Count:
    """How far the judging of a run is."""

    def __init__(self, plans: tuple[Plan, ...]):
        self.plans = len(plans)
        self.in_all = sum(len(p.cases) for p in plans)
        self.ops = self.cases = 0

    def judging(self, op: str, text: str, partial: Report | None = None) -> Progress:
        cases = self.cases + (len(partial.cases) if partial else 0)
        return Progress(op, text, self.ops, self.plans, cases, self.in_all, partial)

    def finished(self, one: Plan) -> None:
        self.ops += 1
        self.cases += len(one.cases)


def run_folder(cache: Path) -> Path:
    """A new folder for this run's reports; two runs at once never share one."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    (cache / "runs").mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{stamp}-", dir=cache / "runs"))


def _file(one: Plan) -> str:
    """What is built and imported."""
    return flashinfer_solution.module_of(one.reference, one.solution)


def _in_its_words(one: Plan, result: Build | Failure) -> Build | Failure:
    """A failed build with the paths of a Solution's own files, not where they were unpacked."""
    if not isinstance(result, Failure) or not flashinfer_solution.is_solution(one.solution):
        return result
    place = unpacked.folder_of(_file(one))
    details = tuple(line.replace(place, "") for line in result.details)
    message = result.message.replace(place, f"{one.solution}: ")
    return dataclasses.replace(result, message=message, details=details)


def _read_sources(one: Plan) -> tuple[str, ...] | Failure:
    """What is odd about a solution that can be run, or why it cannot."""
    try:
        if flashinfer.is_problem(one.reference):
            odd = flashinfer_solution.check(one.reference, one.solution, one.device)
            _file(one)
            return odd
        if one.entry != source.SOLUTION_CLASS:
            provided = tuple(path.stem for path in Path(one.beside).glob("*.py"))
            solution = source.read_function(one.solution, one.entry, provided)
            source.expect_arguments(solution, one.entry, ("data",))
            return solution.warnings
        solution = source.read(one.solution)
        source.compare(solution, source.read(one.reference, "Model"))
    except Failed as failed:
        return _with_offer(failed.failure, Path(one.solution), one.entry)
    return solution.warnings


def _with_offer(failure: Failure, path: Path, entry: str) -> Failure:
    """The failure and, where the file can be repaired safely, the command that does so."""
    if not path.is_file() or flashinfer_solution.is_solution(path):
        return failure
    made = repair.repair(path, (entry,))
    if made is None or not made.steps:
        return failure
    command = f"python run_eval.py repair {shlex.quote(str(path))}"
    return dataclasses.replace(failure, message=f"{failure.message}. Repairable: {command}")


def _build(files: dict[str, Plan], listen: Listener) -> dict[str, Build | Failure]:
    """By file. Files that are the same for several plans are built once."""
    finished: set[str] = set()

    def on_event(event) -> None:
        if event.done:
            finished.add(event.solution)
        listen(Progress(files[event.solution].op, event.text, len(finished), len(files)))

    if not files:
        return {}
    beside = {file: one.beside for file, one in files.items() if one.beside}
    device = next(iter(files.values())).device
    return build.build_all(list(files), device, on_event, beside=beside)


def _with_left_out(report: Report, one: Plan) -> Report:
    if not one.left_out or not report.cases:
        return report
    note = f"not run without a GPU, for their size: {', '.join(one.left_out)}"
    return dataclasses.replace(report, notes=(*report.notes, note))


def _write(path: Path, report: Report) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(to_dict(report), indent=1), encoding="utf-8")
    os.replace(scratch, path)
