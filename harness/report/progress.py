"""The live line on standard error while a run goes on."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

LEAST_GAP_S = 2.0


class _Line:
    """What happens now and for how long; re-read by rich several times a second."""

    def __init__(self) -> None:
        self.started = self.since = time.monotonic()
        self.step = None
        self.judging = 0.0  # when the first case was begun

    def note(self, step) -> None:
        if self.step is None or (step.op, step.text) != (self.step.op, self.step.text):
            self.since = time.monotonic()
        if step.cases_in_all and not self.judging:
            self.judging = time.monotonic()
        self.step = step

    def __rich__(self) -> Text:
        return Text(self.text(), style="dim", no_wrap=True, overflow="ellipsis")

    def text(self) -> str:
        now, step = time.monotonic(), self.step
        if step is None:
            return f"starting, {now - self.started:.0f} s"
        what = f"{step.op}: {step.text}" if step.op else step.text
        elapsed = now - self.started
        left = remaining_s(now - self.judging, step.cases, step.cases_in_all)
        rest = f", about {left:.0f} s left" if left is not None else ""
        return (
            f"{step.done}/{step.total} {what} ({now - self.since:.0f} s, "
            f"{elapsed:.0f} s in all{rest})"
        )


def remaining_s(judging_s: float, cases: int, cases_in_all: int) -> float | None:
    """Seconds left if each case to come takes what one took so far; None while there is none."""
    if cases <= 0 or cases_in_all <= 0:
        return None
    return judging_s / cases * (cases_in_all - cases)


@contextlib.contextmanager
def shown() -> Iterator[Callable]:
    """Yields a listener: a live line on a terminal, a line at most every 2 s elsewhere.

    NO_COLOR asks for plain text, and gets lines, too.
    """
    line = _Line()
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        with Live(line, console=Console(stderr=True), refresh_per_second=4, transient=True):
            yield line.note
        return
    last = [0.0]

    def listen(step) -> None:
        line.note(step)
        if time.monotonic() - last[0] >= LEAST_GAP_S:
            last[0] = time.monotonic()
            print(line.text(), file=sys.stderr, flush=True)

    yield listen
