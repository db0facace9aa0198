"""Scores over many reports. A case that was not timed is counted as such, never as a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from harness.records import CaseReport, Outcome, Ratio, Report

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)  # KernelBench's
NOT_COUNTED = (Outcome.SKIPPED, Outcome.NEEDS_GPU)


@dataclass(frozen=True)
class FastP:
    """Share of cases that are correct and more than `p` times as fast as the rival.

    For p = 0 it is the share of correct cases. `share` is None where nothing can be counted;
    `untimed`: correct cases without a speed-up, which are left out for p > 0.
    """

    p: float
    share: float | None
    counted: int
    untimed: int


def cases(reports: Sequence[Report]) -> list[CaseReport | None]:
    """All cases that count; a report that failed before its cases counts as one, None."""
    found: list[CaseReport | None] = []
    for report in reports:
        if not report.cases and report.failure is not None:
            found += [] if report.failure.outcome in NOT_COUNTED else [None]
        found += [c for c in report.cases if c.outcome not in NOT_COUNTED]
    return found


def ratio(case: CaseReport | None, rival: str) -> Ratio | None:
    """The case's speed-up against "eager", "compile", ..., or "best": the fastest of the two."""
    if case is None or case.speed is None:
        return None
    wanted = ("eager", "compile") if rival == "best" else (rival,)
    found = [r for r in case.speed.ratios if r.rival in wanted]
    return min(found, key=lambda r: r.median, default=None)


def fast_p(
    reports: Sequence[Report], rival: str = "best", thresholds: Sequence[float] = THRESHOLDS
) -> tuple[FastP, ...]:
    """KernelBench's fast_p over cases."""
    rows = cases(reports)
    right = [c for c in rows if c is not None and c.outcome is Outcome.CORRECT]
    speeds = [r.median for r in (ratio(c, rival) for c in right) if r is not None]
    untimed = len(right) - len(speeds)
    scores = []
    for p in thresholds:
        counted = len(rows) - (untimed if p > 0 else 0)
        good = sum(s > p for s in speeds) if p > 0 else len(right)
        scores.append(FastP(p, good / counted if counted else None, counted, untimed))
    return tuple(scores)


def geometric_mean(reports: Sequence[Report], rival: str = "best") -> float | None:
    """Geometric mean of the speed-ups of correct, timed cases; None when there are none."""
    found = (ratio(c, rival) for c in cases(reports))
    logs = [math.log(r.median) for r in found if r is not None and r.median > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def share_of_floor(reports: Sequence[Report]) -> float | None:
    """Median share of the floor over cases larger than L2 and not launch-bound, else None."""
    shares = [
        c.speed.of_floor
        for c in cases(reports)
        if c is not None
        and c.speed is not None
        and c.speed.of_floor is not None
        and not c.speed.launch_bound
        and not c.speed.bound.l2_resident
    ]
    return median(shares) if shares else None
