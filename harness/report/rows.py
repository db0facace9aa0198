"""Reports to rows of text: the one place that decides what each column says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.records import CaseReport, Outcome, Ratio, Report, Speed, Timing

COLUMNS = (
    "op", "case", "verdict", "kernel µs", "eager µs", "compile µs", "speed-up", "of floor",
    "worst error",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    op: str
    case: str
    verdict: str
    kernel: str = ""
    eager: str = ""
    compile: str = ""
    speedup: str = ""
    floor: str = ""
    error: str = ""
    peers: str = ""  # in the Markdown table alone, where there are any
    message: str = ""
    ok: bool = False
    timed: bool = False

    def cells(self) -> tuple[str, ...]:
        return (
            self.op, self.case, self.verdict, self.kernel, self.eager, self.compile, self.speedup,
            self.floor, self.error,
        )  # fmt: skip


def rows(reports: tuple[Report, ...]) -> tuple[Row, ...]:
    """Every case of every report; a report without cases is one row with its failure."""
    found = []
    for report in reports:
        if report.failure is not None:
            found.append(_failure_row(report))
        found.extend(_case_row(report.op, case) for case in report.cases)
    return tuple(found)


def microseconds(timing: Timing | None) -> str:
    """Device time where it was measured, else the whole call's."""
    stat = (timing.device or timing.call) if timing else None
    return f"{stat.median_us:.2f}" if stat and stat.median_us < 100 else _whole(stat)


def best_ratio(speed: Speed) -> Ratio | None:
    """The speed-up against the faster of eager and compile."""
    plain = [r for r in speed.ratios if r.rival in ("eager", "compile")]
    return min(plain, key=lambda r: r.median, default=None)


def _whole(stat) -> str:
    return f"{stat.median_us:.0f}" if stat else "–"


def _failure_row(report: Report) -> Row:
    failure = report.failure
    return Row(report.op, "–", failure.outcome.value, message=failure.message)


def _case_row(op: str, case: CaseReport) -> Row:
    verdict = case.outcome.value
    message = case.failure.message if case.failure else ""
    if case.failure is None and case.check is not None and not case.check.ok:
        message = case.check.message
    speed = case.speed
    return Row(
        op=op,
        case=case.case.label,
        verdict=", ".join((verdict, *case.labels)),
        kernel=microseconds(speed.solution) if speed else _not_timed(case),
        eager=microseconds(_rival(speed, "eager")),
        compile=microseconds(_rival(speed, "compile")),
        speedup=_speedup(speed),
        floor=_floor(speed),
        error=_error(case),
        peers=_peers(speed),
        message=message,
        ok=case.outcome is Outcome.CORRECT,
        timed=speed is not None,
    )


def _not_timed(case: CaseReport) -> str:
    return "not timed" if case.outcome is Outcome.CORRECT else "–"


def _rival(speed: Speed | None, who: str) -> Timing | None:
    return next((t for t in speed.rivals if t.who == who), None) if speed else None


def _peers(speed: Speed | None) -> str:
    found = [t for t in speed.rivals if t.who.startswith("peer:")] if speed else []
    timed = [t for t in found if t.device or t.call]
    return ", ".join(f"{t.who.removeprefix('peer:')} {microseconds(t)}" for t in timed)


def _speedup(speed: Speed | None) -> str:
    ratio = best_ratio(speed) if speed else None
    if ratio is None:
        return "–"
    mark = {"same": " =", "cannot tell": " ?", "slower": " slower"}.get(ratio.verdict, "")
    return f"{ratio.median:.2f}x{mark}"


def _floor(speed: Speed | None) -> str:
    share = speed.of_floor if speed else None
    if share is None:
        return "–"
    if speed.launch_bound:
        return f"{share:.0%} launch-bound"
    return f"{share:.0%}{' in L2' if speed.bound and speed.bound.l2_resident else ''}"


def _error(case: CaseReport) -> str:
    if case.check is None:
        return "–"
    worst = case.check.worst
    if case.check.ok and worst == 0:
        return "exact"
    if not math.isfinite(worst):
        return "not finite"
    return f"{worst:.2g} of tolerance" if worst < 1000 else ">1000 of tolerance"
