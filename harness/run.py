"""Carry out plans: build all, then one judge process per solution, each with a time limit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
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

from harness import build, plan, source
from harness.records import Build, Failed, Failure, Outcome, Plan, Report, from_dict, to_dict

Listener = Callable[["Progress"], None]


@dataclass(frozen=True)
class Progress:
    """One step, for the live line: what happens to which op, and how far the run is."""

    op: str
    text: str
    done: int
    total: int


def evaluate(plans: tuple[Plan, ...], listen: Listener, keep: Path) -> tuple[Report, ...]:
    """Judge every plan; one Report each, whatever happens, kept in `keep` as soon as it is known.

    Raises Failed(ENVIRONMENT) before any op when the machine cannot build at all.
    """
    keep.mkdir(parents=True, exist_ok=True)
    refused = {p.solution: failure for p in plans if (failure := _unreadable(p)) is not None}
    wanted = [p.solution for p in plans if p.solution not in refused]
    built = _build(wanted, plans, listen)
    reports = []
    for done, one in enumerate(plans):
        listen(Progress(one.op, "checking", done, len(plans)))
        result = refused.get(one.solution) or built[one.solution]
        if isinstance(result, Failure):
            report = _failed(one, result)
        else:
            step = lambda text, one=one, done=done: listen(  # noqa: E731
                Progress(one.op, text, done, len(plans))
            )
            report = _judge(one, result, step, keep)
        report = _with_left_out(report, one)
        _write(keep / f"{one.op}.json", report)
        reports.append(report)
    listen(Progress("", "done", len(plans), len(plans)))
    return tuple(reports)


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
    solutions: list[str], plans: tuple[Plan, ...], listen: Listener
) -> dict[str, Build | Failure]:
    ops = {p.solution: p.op for p in plans}
    finished: set[str] = set()

    def on_event(event) -> None:
        if event.done:
            finished.add(event.solution)
        listen(Progress(ops.get(event.solution, ""), event.text, len(finished), len(solutions)))

    return build.build_all(solutions, plans[0].device, on_event) if solutions else {}


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


def _with_left_out(report: Report, one: Plan) -> Report:
    if not one.left_out:
        return report
    note = f"not run without a GPU, for their size: {', '.join(one.left_out)}"
    return dataclasses.replace(report, notes=(*report.notes, note))


def _write(path: Path, report: Report) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(to_dict(report), indent=1), encoding="utf-8")
    os.replace(scratch, path)
