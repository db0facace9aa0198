import pytest

from harness import scores
from harness.records import (
    Bound,
    Case,
    CaseReport,
    Check,
    Failure,
    Outcome,
    Ratio,
    Report,
    Speed,
    Stat,
    Timing,
)

RIGHT = Check(True, 3, 0.0, 0.0)
BIG = Bound(10**9, 0, 250.0, 208.0, "memory")


def timed(speed_up, device_us=500.0, bound=BIG, **more):
    stat = Stat(device_us, device_us, device_us, 0.0, 20)
    ratios = tuple(
        Ratio(rival, value, value, value, "faster")
        for rival, value in (("eager", 2 * speed_up), ("compile", speed_up))
    )
    speed = Speed(Timing("solution", device=stat), ratios=ratios, bound=bound, **more)
    return CaseReport(Case("c"), RIGHT, speed)


def report(*cases, failure=None):
    return Report("op", "r.py", "s.py", cases=cases, failure=failure)


WRONG = CaseReport(Case("w"), Check(False, 1, 9.0, 1.0))
UNTIMED = CaseReport(Case("u"), RIGHT, not_timed="no GPU")
SKIPPED = CaseReport(Case("s"))
BROKEN = Failure(Outcome.DOES_NOT_BUILD, "build", "no")


def shares(*reports, **more):
    return {s.p: s.share for s in scores.fast_p(reports, **more)}


def test_fast_p_counts_wrong_and_broken_in_the_denominator():
    found = shares(report(timed(1.2), timed(0.7), WRONG), report(failure=BROKEN))
    assert found == {0.0: 0.5, 0.5: 0.5, 0.8: 0.25, 1.0: 0.25, 1.5: 0.0, 2.0: 0.0}


def test_the_threshold_itself_is_not_passed():
    assert shares(report(timed(1.0)))[1.0] == 0.0


def test_an_untimed_case_is_correct_but_has_no_speed():
    zero, one = scores.fast_p([report(timed(1.2), UNTIMED)], thresholds=(0.0, 1.0))
    assert (zero.share, zero.counted) == (1.0, 2)
    assert (one.share, one.counted, one.untimed) == (1.0, 1, 1)


def test_nothing_timed_is_none_not_zero():
    found = shares(report(UNTIMED))
    assert found[0.0] == 1.0
    assert found[1.0] is None
    assert scores.geometric_mean([report(UNTIMED, WRONG)]) is None
    assert scores.share_of_floor([report(UNTIMED)]) is None


def test_skipped_cases_do_not_count():
    assert shares(report(SKIPPED, timed(1.2)))[0.0] == 1.0
    assert scores.fast_p([report(SKIPPED)])[0].share is None


def test_geometric_mean_over_correct_timed_cases():
    reports = [report(timed(4.0), timed(1.0), WRONG, UNTIMED)]
    assert scores.geometric_mean(reports) == pytest.approx(2.0)
    assert scores.geometric_mean(reports, "eager") == pytest.approx(4.0)


def test_share_of_floor_leaves_out_what_is_bound_by_something_else():
    in_l2 = Bound(10**6, 0, 0.25, 0.2, "memory", l2_resident=True)
    cases = [timed(1, 500.0), timed(1, 10.0, in_l2), timed(1, 1000.0, launch_bound=True)]
    assert scores.share_of_floor([report(*cases)]) == pytest.approx(0.5)
