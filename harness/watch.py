"""Evaluate one op again each time one of its files is saved, until interrupted.

A save during a run ends that run and starts the next. The next judge process is made ready while
the author types, so that a verdict follows the build at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import cache, plan, run
from harness.records import Failed, Failure, Outcome, Plan, Report
from harness.run_judge import Judging

MISSING = "--watch needs the package watchfiles: pip install watchfiles"
SOURCES = (".py", ".cu", ".cuh", ".h", ".hpp", ".inl")
GATHER_MS = 50  # what an editor writes within this time is one save


class Superseded(Exception):
    """A file was saved: what is being computed is no longer of interest."""


@dataclass(frozen=True)
class Files:
    """What to look at: these files, and sources for the compiler beside the solution."""

    solution: Path
    reference: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.solution.parent, self.reference.parent)))

    def concern(self, path: str) -> bool:
        """Whether a change of this path is a reason to run again."""
        changed = Path(path).resolve()
        if changed in (self.solution, self.reference):
            return True
        beside = changed.parent == self.solution.parent
        return beside and changed.suffix in SOURCES and changed.suffix != ".py"


@dataclass
class Saves:
    """Whether something was saved since the last `begin`."""

    happened: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        self.happened.clear()

    def wait(self) -> None:
        while not self.happened.wait(0.5):  # a bound, so that Ctrl-C is seen on every system
            pass

    def check(self) -> None:
        if self.happened.is_set():
            raise Superseded


@contextmanager
def saves(files: Files) -> Iterator[Saves]:
    """Watch the files in a thread that ends with the context. Raises Failed(ENVIRONMENT)."""
    try:
        import watchfiles
    except ImportError:
        raise Failed(Outcome.ENVIRONMENT, "watch", MISSING) from None
    found, stop = Saves(), threading.Event()

    def look() -> None:
        for _ in watchfiles.watch(
            *files.folders,
            watch_filter=lambda _, path: files.concern(path),
            stop_event=stop,
            debounce=GATHER_MS * 2,
            step=GATHER_MS,
            rust_timeout=200,
            recursive=False,
            raise_interrupt=False,
        ):
            found.happened.set()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join(2)


def loop(
    request: plan.Request,
    show: Callable[[Report], None],
    listen: Callable[[], object],
) -> None:
    """Evaluate now and after each save; returns only by an exception, such as KeyboardInterrupt.

    request: names one op, or one reference and solution. show: gets each finished report.
    listen: a context manager that yields a listener of run.Progress, one for each run.
    """
    (first,) = plan.plans(request)
    files = Files(Path(first.solution).resolve(), Path(first.reference).resolve())
    spare = _Spare()
    with saves(files) as saved:
        try:
            while True:
                saved.begin()
                try:
                    show(_once(request, first, spare, saved, listen))
                    spare.prepare(request)
                    saved.wait()
                except Superseded:
                    continue
        finally:
            spare.end()


def _once(request: plan.Request, first: Plan, spare: _Spare, saved: Saves, listen) -> Report:
    """One evaluation; a reference that cannot be read is a report, too: the author is typing."""
    try:
        plans = plan.plans(request)
    except Failed as failed:
        return _unplanned(first, failed.failure)
    keep, judging = spare.take(plans[0])
    with listen() as step:

        def checked(progress: run.Progress) -> None:
            saved.check()
            step(progress)

        try:
            (report,) = run.evaluate(plans, checked, keep, {plans[0].op: judging})
        finally:
            spare.put_back(judging)
    return report


def _unplanned(one: Plan, failure: Failure) -> Report:
    return Report(one.op, one.reference, one.solution, failure=failure)


class _Spare:
    """The judge process that waits for the next save."""

    def __init__(self) -> None:
        self._judging: Judging | None = None
        self._keep: Path | None = None
        self._reference = ""

    def prepare(self, request: plan.Request) -> None:
        """Start one for the next save, where there is none."""
        try:
            (one,) = plan.plans(request)
        except Failed:
            return
        if not self._fits(one):
            self._start(one)

    def take(self, wanted: Plan) -> tuple[Path, Judging]:
        """A folder for the run and a process that is ready for it, or getting ready meanwhile."""
        if not self._fits(wanted):
            self._start(wanted)
        judging, self._judging = self._judging, None
        return self._keep, judging

    def put_back(self, judging: Judging) -> None:
        """One that never saw a solution serves the next save; any other is ended."""
        if judging.released:
            judging.end()
        else:
            self._judging = judging

    def _fits(self, wanted: Plan) -> bool:
        judging = self._judging
        return (
            judging is not None
            and judging.alive
            and judging.plan == wanted
            and self._reference == _text(wanted.reference)
        )

    def _start(self, one: Plan) -> None:
        self.end()
        self._reference, self._keep = _text(one.reference), run.run_folder(cache.root())
        self._judging = Judging(one, self._keep, waits=True)

    def end(self) -> None:
        if self._judging is not None:
            self._judging.end()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return ""
