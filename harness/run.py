"""Carry out plans: build all, then one judge process per solution, each with a time limit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from harness import build, plan, repair, source
from harness.records import Build, Failed, Failure, Outcome, Plan, Report, from_dict, to_dict

Listener = Callable[["Progress"], None]


@dataclass(frozen=True)
class Progress:
    """One step, for the live line: what happens to which op, and how far the run is."""

    op: str
    text: str
    done: int
    total: int


@dataclass(frozen=True)
class Prepared:
    """A plan whose solution was read and built, or not, and what was odd about its source."""

    plan: Plan
    result: Build | Failure
    warnings: tuple[str, ...] = ()


def evaluate(plans: tuple[Plan, ...], listen: Listener, keep: Path) -> tuple[Report, ...]:
    """Judge every plan; one Report each, whatever happens, kept in `keep` as soon as it is known.

    Raises Failed(ENVIRONMENT) before any op when the machine cannot build at all.
    """
    ready = prepare(plans, listen)
    reports = []
    for done, one in enumerate(ready):
        step = lambda text, one=one, done=done: listen(  # noqa: E731
            Progress(one.plan.op, text, done, len(plans))
        )
        reports.append(judge(one, step, keep))
    listen(Progress("", "done", len(plans), len(plans)))
    return tuple(reports)


def prepare(plans: tuple[Plan, ...], listen: Listener) -> tuple[Prepared, ...]:
    """Read all sources, then build all that can be read. Raises Failed(ENVIRONMENT)."""
    read = [_read_sources(one) for one in plans]
    pairs = list(zip(plans, read, strict=True))
    wanted = [one.solution for one, found in pairs if not isinstance(found, Failure)]
    built = _build(wanted, plans, listen)
    return tuple(
        Prepared(one, found)
        if isinstance(found, Failure)
        else Prepared(one, built[one.solution], found)
        for one, found in pairs
    )


def judge(ready: Prepared, step: Callable[[str], None], keep: Path) -> Report:
    """The one Report of a prepared plan, kept in `keep` under the op's name."""
    keep.mkdir(parents=True, exist_ok=True)
    one = ready.plan
    step("checking")
    if isinstance(ready.result, Failure):
        report = _failed(one, ready.result)
    else:
        report = _judge(one, ready.result, step, keep)
    report = dataclasses.replace(report, notes=(*report.notes, *ready.warnings))
    report = _with_skipped(report, one)
    _write(keep / f"{one.op}.json", report)
    return report


def run_folder(cache: Path) -> Path:
    """A new folder for this run's reports; two runs at once never share one."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    (cache / "runs").mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{stamp}-", dir=cache / "runs"))


def _read_sources(one: Plan) -> tuple[str, ...] | Failure:
    """What is odd about a solution that can be run, or why it cannot."""
    try:
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
    if not path.is_file():
        return failure
    made = repair.repair(path, (entry,))
    if made is None or not made.steps:
        return failure
    command = f"python run_eval.py repair {shlex.quote(str(path))}"
    return dataclasses.replace(failure, message=f"{failure.message}. Repairable: {command}")


def _build(
    solutions: list[str], plans: tuple[Plan, ...], listen: Listener
) -> dict[str, Build | Failure]:
    ops = {p.solution: p.op for p in plans}
    finished: set[str] = set()

    def on_event(event) -> None:
        if event.done:
            finished.add(event.solution)
        listen(Progress(ops.get(event.solution, ""), event.text, len(finished), len(solutions)))

    beside = {p.solution: p.beside for p in plans if p.beside}
    device = plans[0].device
    return build.build_all(solutions, device, on_event, beside=beside) if solutions else {}


def _judge(one: Plan, built: Build, step: Callable[[str], None], keep: Path) -> Report:
    """Run the judge process; whatever it leaves, or does not leave, becomes one Report."""
    plan_file, report_file = keep / f"{one.op}.plan.json", keep / f"{one.op}.judge.json"
    plan_file.write_text(json.dumps(to_dict(one)), encoding="utf-8")
    started, clock = datetime.now(timezone.utc).isoformat(timespec="seconds"), time.monotonic()
    command = [sys.executable, "-m", "harness.judge", str(plan_file), str(report_file)]
    environment = {**os.environ, "PYTHONPATH": str(plan.ROOT), "PYTHONUNBUFFERED": "1"}
    log_file = keep / f"{one.op}.judge.log"
    with open(log_file, "wb") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        try:
            ended = _follow(process, one.time_limit_s, step)
        finally:
            _end_group(process)
    report = _read(report_file)
    if report is None or not ended or process.returncode != 0:
        report = _unfinished(one, report, ended, process.returncode, log_file)
    return dataclasses.replace(
        report, build=built, started=started, seconds=round(time.monotonic() - clock, 3)
    )


def _follow(process: subprocess.Popen, limit_s: float, step: Callable[[str], None]) -> bool:
    """Pass the judge's progress lines on; False when the time limit ended it."""

    def pump() -> None:
        for line in process.stdout:
            try:
                step(str(json.loads(line)["text"])[:100])
            except (ValueError, KeyError, TypeError):
                continue

    reader = threading.Thread(target=pump, daemon=True)
    reader.start()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return False
    reader.join(1)
    return True


def _end_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(path: Path) -> Report | None:
    try:
        return from_dict(Report, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _unfinished(
    one: Plan, partial: Report | None, ended: bool, code: int | None, log: Path
) -> Report:
    if not ended:
        failure = Failure(
            Outcome.TIMED_OUT,
            "judge",
            f"{one.op}: no verdict within {one.time_limit_s:.0f} s; the run was ended",
            log=str(log),
        )
    elif partial is not None and partial.failure is not None:
        return partial
    else:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        failure = Failure(
            Outcome.CRASHED,
            "judge",
            f"{one.op}: the judge process ended with code {code} before a verdict",
            tuple(tail),
            str(log),
        )
    return dataclasses.replace(partial or _failed(one, failure), failure=failure)


def _failed(one: Plan, failure: Failure) -> Report:
    return Report(
        op=one.op, reference=one.reference, solution=one.solution, seed=one.seed, failure=failure
    )


def _with_skipped(report: Report, one: Plan) -> Report:
    skipped = plan.skipped_cases(one)
    if not skipped:
        return report
    names = ", ".join(dict.fromkeys(case.name for case in skipped))
    note = f"not run without a GPU, for their size: {names}"
    return dataclasses.replace(report, notes=(*report.notes, note))


def _write(path: Path, report: Report) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(to_dict(report), indent=1), encoding="utf-8")
    os.replace(scratch, path)
