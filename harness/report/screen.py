"""What watch mode shows: the newest result in place of the last, the last good one kept in view."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console

from harness.history import Change
from harness.records import Outcome, Report
from harness.report import progress, terminal

UNJUDGED = (Outcome.DOES_NOT_BUILD, Outcome.DOES_NOT_LOAD, Outcome.ENVIRONMENT)
WAITING = "Waiting for the next save; Ctrl-C ends it."


class Screen:
    """A terminal is redrawn in place; elsewhere each result follows the one before."""

    def __init__(self, out: Console):
        self._out = out
        self._good: tuple[Report, tuple[Change, ...], str] | None = None
        self._cases = 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[Callable]:
        """A listener for one run: the live line, and on a terminal each case as it is judged."""
        self._cases = 0
        with progress.shown() as listen:

            def step(event) -> None:
                listen(event)
                if event.partial is not None and len(event.partial.cases) > self._cases:
                    self._cases = len(event.partial.cases)
                    self._draw_partial(event.partial)

            yield step

    def show(self, report: Report, changes: tuple[Change, ...]) -> None:
        """A finished run; one without any verdict leaves the last good result below it."""
        at = time.strftime("%H:%M:%S")
        self._clear()
        self._out.print(f"{report.op}, judged at {at}", style="bold")
        terminal.show((report,), self._out, {report.op: changes})
        if report.ok:
            self._good = (report, changes, at)
        elif self._good is not None and _unjudged(report):
            self._last_good()
        self._out.print(WAITING, style="dim")

    def _last_good(self) -> None:
        report, changes, at = self._good
        self._out.print()
        self._out.print(f"The last good result, of {at}:", style="bold")
        terminal.show_table((report,), self._out)
        terminal.show_changes({report.op: changes}, self._out)

    def _draw_partial(self, report: Report) -> None:
        if not self._out.is_terminal:
            return
        self._clear()
        self._out.print(f"{report.op}, being judged", style="bold")
        terminal.show_table((report,), self._out)

    def _clear(self) -> None:
        if self._out.is_terminal:
            self._out.clear()
        else:
            self._out.print()


def _unjudged(report: Report) -> bool:
    return report.failure is not None and report.failure.outcome in UNJUDGED
