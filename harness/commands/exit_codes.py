"""Exit codes.

0: all right. 1: a solution is wrong or failed. 2: the request cannot be carried out as written.
3: the environment lacks something. 4: nothing wrong, but something could only be judged on a GPU.
"""

from __future__ import annotations

from harness.records import Outcome, Report

OK, BAD, USAGE, ENVIRONMENT, NEEDS_GPU = range(5)


def of(reports: tuple[Report, ...]) -> int:
    """0 only if every case of every solution is right."""
    if reports and all(report.ok for report in reports):
        return OK
    outcomes = {
        outcome
        for report in reports
        for outcome in (
            [report.failure.outcome] if report.failure else [c.outcome for c in report.cases]
        )
    }
    if outcomes <= {Outcome.CORRECT, Outcome.NEEDS_GPU} and Outcome.NEEDS_GPU in outcomes:
        return NEEDS_GPU
    if outcomes <= {Outcome.CORRECT, Outcome.ENVIRONMENT} and Outcome.ENVIRONMENT in outcomes:
        return ENVIRONMENT
    return BAD
