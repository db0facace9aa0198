"""One judge process: started, followed to its Report, ended with all that it started."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from harness import plan
from harness.records import Failure, Outcome, Plan, Report, from_dict, to_dict

TICK_S = 0.2
READING_S = 1.0
Step = Callable[[str, Report | None], None]


class Judging:
    """A judge process at work on one plan, or (`waits`) prepared and waiting for its solution.

    The plan, the report and what the process says on standard error lie in the folder `keep`.
    """

    def __init__(self, one: Plan, keep: Path, waits: bool = False):
        self.plan, self.waits = one, waits
        self.released = not waits  # whether it may look at the solution
        self._report_file = keep / f"{one.op}.judge.json"
        self._log_file = keep / f"{one.op}.judge.log"
        plan_file = keep / f"{one.op}.plan.json"
        plan_file.write_text(json.dumps(to_dict(one)), encoding="utf-8")
        command = [sys.executable, "-m", "harness.judge", str(plan_file), str(self._report_file)]
        with open(self._log_file, "wb") as log:
            self._process = subprocess.Popen(
                [*command, "wait"] if waits else command,
                stdin=subprocess.PIPE if waits else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(plan.ROOT), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    def follow(self, step: Step) -> Report:
        """Until the verdict; `step` gets each text and the report so far, at least every second.

        Whatever the process leaves, or does not leave, becomes one Report.
        """
        began, clock = datetime.now(timezone.utc).isoformat(timespec="seconds"), time.monotonic()
        try:
            if self.waits:
                self._release()
            in_time = self._listen(step, clock + self.plan.time_limit_s)
        finally:
            self.end()
        report = _read(self._report_file)
        if report is None or not in_time or self._process.returncode != 0:
            report = self._unfinished(report, in_time)
        seconds = round(time.monotonic() - clock, 3)
        return dataclasses.replace(report, started=began, seconds=seconds)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill it with its group; its candidates end with it. Twice does no harm."""
        with contextlib.suppress(ProcessLookupError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _release(self) -> None:
        self.released = True
        with contextlib.suppress(OSError):  # it died while it waited: its log says why
            self._process.stdin.write(b"go\n")
            self._process.stdin.close()

    def _listen(self, step: Step, deadline: float) -> bool:
        """Pass the judge's progress on; False when the time limit ended it."""
        said: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=_pump, args=(self._process.stdout, said), daemon=True)
        reader.start()
        text, told = "", 0.0
        while self._process.poll() is None:
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(queue.Empty):
                text, told = said.get(timeout=TICK_S), 0.0
            if time.monotonic() - told > READING_S:
                told = time.monotonic()
                step(text, _read(self._report_file))
        reader.join(READING_S)
        return True

    def _unfinished(self, partial: Report | None, in_time: bool) -> Report:
        op, limit = self.plan.op, self.plan.time_limit_s
        if not in_time:
            failure = Failure(
                Outcome.TIMED_OUT,
                "judge",
                f"{op}: no verdict within {limit:.0f} s; the run was ended",
                log=str(self._log_file),
            )
        elif partial is not None and partial.failure is not None:
            return partial
        else:
            text = self._log_file.read_text(encoding="utf-8", errors="replace")
            code = self._process.returncode
            failure = Failure(
                Outcome.CRASHED,
                "judge",
                f"{op}: the judge process ended with code {code} before a verdict",
                tuple(text.splitlines()[-5:]),
                str(self._log_file),
            )
        return dataclasses.replace(partial or failed(self.plan, failure), failure=failure)


def failed(one: Plan, failure: Failure) -> Report:
    """The report of a plan that was not judged."""
    return Report(
        op=one.op, reference=one.reference, solution=one.solution, seed=one.seed, failure=failure
    )


def _pump(stream, said: queue.Queue[str]) -> None:
    for line in stream:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said.put(str(json.loads(line)["text"])[:100])


def _read(path: Path) -> Report | None:
    try:
        return from_dict(Report, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
