"""Records survive JSON, and impossible ones cannot be made."""

import json

import pytest

from harness.records import (
    Bound,
    Case,
    CaseReport,
    Check,
    Environment,
    Failure,
    Outcome,
    Ratio,
    Report,
    Speed,
    Stat,
    Timing,
    from_dict,
    to_dict,
)

STAT = Stat(2.0, 1.9, 2.1, 0.01, 50)
RIGHT = Check(True, 5, 0.25, 1e-6)
SPEED = Speed(
    Timing("solution", call=STAT, device=STAT),
    rivals=(Timing("eager", call=STAT), Timing("peer:x", not_timed="absent")),
    ratios=(Ratio("eager", 1.5, 1.4, 1.6, "faster"),),
    bound=Bound(100, 0, 1.0, 0.9, "memory"),
)


def report(*cases, failure=None):
    return Report("op", "r.py", "s.py", Environment(), cases=cases, failure=failure)


def test_report_survives_json():
    before = report(
        CaseReport(Case("headline", {"n": 3, "dtype": "float32"}), RIGHT, SPEED),
        CaseReport(Case("odd", backward=True), Check(False, 1, float("nan"), float("inf"), "m")),
        CaseReport(Case("x"), failure=Failure(Outcome.CRASHED, "check", "m", ("a", "b"))),
    )
    after = from_dict(Report, json.loads(json.dumps(to_dict(before))))
    assert after.cases[0] == before.cases[0]
    assert after.cases[2] == before.cases[2]
    assert str(after.cases[1].check.worst) == "nan"
    assert after.cases[1].check.worst_abs == float("inf")


def test_a_wrong_kernel_has_no_speed():
    with pytest.raises(ValueError, match="passed check"):
        CaseReport(Case("a"), Check(False, 1, 2.0, 1.0), SPEED)


def test_ok_needs_every_case_right_and_at_least_one():
    right = CaseReport(Case("a"), RIGHT)
    assert report(right).ok
    assert not report().ok
    assert not report(right, CaseReport(Case("b"), Check(False, 1, 2.0, 1.0))).ok
    assert not report(right, CaseReport(Case("b"))).ok
    assert not report(right, failure=Failure(Outcome.TIMED_OUT, "judge", "m")).ok


def test_share_of_floor_prefers_device_time_and_is_none_when_unknown():
    assert SPEED.of_floor == 0.5
    assert Speed(Timing("solution")).of_floor is None
