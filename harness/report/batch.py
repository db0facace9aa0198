"""What a person reads after a batch: verdicts counted, then both kinds of fast_p."""

from __future__ import annotations

from collections import Counter

from harness import scores
from harness.formats import kernelbench
from harness.records import Outcome, Report


def lines(reports: tuple[Report, ...]) -> list[str]:
    """Counts by verdict; fast_p ours (cases, device time) beside KernelBench's (files, calls)."""
    counts = Counter(verdict(report).value for report in reports)
    found = [f"{count:6} {name}" for name, count in counts.most_common()]
    found.append(f"{len(reports):6} files")
    theirs = kernelbench.fast_p(reports)
    found.append("fast_p   ours   KernelBench's")
    for mine, other in zip(scores.fast_p(reports), theirs, strict=True):
        found.append(f"p > {mine.p:<4g} {_share(mine):>5}  {_share(other):>6}")
    untimed = theirs[0].untimed
    if untimed:
        found.append(
            f"{untimed} right files have no time: left out of ours, not fast in KernelBench's"
        )
    return found


def verdict(report: Report) -> Outcome:
    """The first thing that is wrong with a file, or correct."""
    if report.failure is not None:
        return report.failure.outcome
    wrong = (c.outcome for c in report.cases if c.outcome is not Outcome.CORRECT)
    return next(wrong, Outcome.CORRECT if report.cases else Outcome.SKIPPED)


def _share(score: scores.FastP) -> str:
    return "–" if score.share is None else f"{score.share:.1%}"
