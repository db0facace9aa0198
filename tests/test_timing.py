import random

import pytest
from fakes import FakeClock, FakeContestant

from harness import intervals, timing
from harness.records import ACTIVITY_RECORDS, GRAPH_REPLAY, Bound, Failed, Outcome, Overhead
from harness.timing import Conditions


def run(*contestants, clock=None, seed=1, bound=None, budget_s=0.6, **conditions):
    known = Conditions(now=clock or FakeClock(), **conditions)
    return timing.measure(contestants, bound, budget_s, random.Random(seed), known)


def pair(us=10.0, rival_us=20.0, **behaviour):
    clock = behaviour.setdefault("clock", FakeClock())
    seed = behaviour.pop("seed", 0)
    return (
        FakeContestant("solution", us, seed=seed, **behaviour),
        FakeContestant("eager", rival_us, seed=seed, **behaviour),
    ), clock


def test_speed_up_and_verdict():
    speed = run(*pair()[0])
    (ratio,) = speed.ratios
    assert ratio.median == pytest.approx(2.0, rel=0.02)
    assert (ratio.rival, ratio.verdict, ratio.basis) == ("eager", "faster", "device")
    assert speed.call_ratios[0].basis == "call"
    assert speed.solution.device_method == GRAPH_REPLAY
    assert speed.solution.host.median_us == pytest.approx(5.0, rel=0.05)
    assert speed.noise == pytest.approx(intervals.DEVICE_STEP_US / 5, rel=0.02)


def test_same_code_is_called_the_same_in_95_of_100_runs():
    words = []
    for seed in range(100):
        contestants, clock = pair(10.0, 10.0, sigma=0.03, seed=seed, sample_s=5e-4)
        words.append(run(*contestants, clock=clock, seed=seed).ratios[0].verdict)
    assert words.count("same") >= 95
    assert words.count("faster") + words.count("slower") <= 2


@pytest.mark.parametrize("sigma", [0.01, 0.05])
def test_interval_covers_the_true_speed_up_in_spite_of_the_stopping_rule(sigma):
    hits = 0
    for seed in range(150):
        contestants, clock = pair(10.0, 10.3, sigma=sigma, seed=seed, sample_s=1e-4)
        (ratio,) = run(*contestants, clock=clock, seed=seed).call_ratios
        sampled = 1 + intervals.LEAST_NOISE  # what the interval was widened by beyond sampling
        hits += ratio.low * sampled <= 1.03 <= ratio.high / sampled
    assert hits / 150 >= 0.92


def test_a_quiet_machine_stops_early_and_a_noisy_one_uses_its_budget():
    contestants, clock = pair(sigma=0.001)
    quiet = run(*contestants, clock=clock)
    contestants, clock = pair(sigma=0.3)
    noisy = run(*contestants, clock=clock)
    assert quiet.solution.call.count == Conditions().least_rounds
    assert noisy.solution.call.count > 10 * quiet.solution.call.count / 2
    assert clock.seconds == pytest.approx(0.6, rel=0.2)
    assert any("known only to" in w for w in noisy.warnings)


def test_slow_calls_end_at_the_overrun_and_cannot_tell():
    contestants, clock = pair(sample_s=0.3)
    speed = run(*contestants, clock=clock)
    assert speed.solution.call.count < 6
    assert speed.ratios[0].verdict == "cannot tell"
    assert clock.seconds < 8


def test_a_common_drift_does_not_move_the_speed_up():
    drift = {"drift": lambda seconds: 1 + seconds, "sigma": 0.005}
    contestants, clock = pair(10.0, 10.0, **drift)
    (ratio,) = run(*contestants, clock=clock, width=1e-6).ratios
    assert ratio.median == pytest.approx(1.0, abs=0.01)


def test_order_is_random_and_every_contestant_has_one_sample_a_round():
    order = []
    clock = FakeClock()
    contestants = [FakeContestant(w, 10, clock=clock, order=order) for w in ("solution", "eager")]
    run(*contestants, clock=clock, warm_up=0)
    rounds = [tuple(order[i : i + 3]) for i in range(0, len(order), 3)]
    assert all(sorted(r) == ["eager", "solution", "solution"] for r in rounds)
    assert len(set(rounds)) > 1


def test_a_control_of_ones_own_gives_the_noise():
    contestants, clock = pair(100.0, 200.0, sigma=0.001)
    slow_twin = FakeContestant("control", 104, 0.001, clock=clock)
    speed = run(*contestants, slow_twin, clock=clock)
    assert speed.noise == pytest.approx(0.04, abs=0.005)
    assert speed.control.call.median_us == pytest.approx(104, rel=0.01)
    assert [t.who for t in speed.rivals] == ["eager"]


def test_one_method_for_all_when_one_is_not_capturable():
    clock = FakeClock()
    both = (GRAPH_REPLAY, ACTIVITY_RECORDS)
    speed = run(
        FakeContestant("solution", 10, clock=clock, methods=both),
        FakeContestant("eager", 20, clock=clock, methods=(ACTIVITY_RECORDS,)),
        clock=clock,
    )
    assert speed.solution.device_method == ACTIVITY_RECORDS
    assert speed.rivals[0].device_method == ACTIVITY_RECORDS
    assert speed.ratios[0].basis == "device"


def test_different_methods_are_not_compared_and_the_reason_is_kept():
    clock = FakeClock()
    speed = run(
        FakeContestant("solution", 10, clock=clock),
        FakeContestant("eager", 20, clock=clock, methods=(ACTIVITY_RECORDS,)),
        clock=clock,
    )
    assert speed.solution.device_method == GRAPH_REPLAY
    assert speed.rivals[0].device is None
    assert speed.rivals[0].device_method == "none: no graph replay"
    assert speed.ratios[0].basis == "call"


def test_no_method_at_all_leaves_the_whole_call():
    speed = run(*pair(methods=())[0])
    assert speed.solution.device is None
    assert speed.solution.device_method == "none: no graph replay; no activity records"
    assert speed.ratios[0].basis == "call"


def test_a_rivals_failure_is_its_own_and_no_number():
    clock = FakeClock()
    speed = run(
        FakeContestant("solution", 10, clock=clock),
        FakeContestant("eager", 20, clock=clock),
        FakeContestant("peer:x", 20, clock=clock, fails_at=6),
        clock=clock,
    )
    assert speed.rivals[1].not_timed == "peer:x: out[0] differs"
    assert speed.rivals[1].call is None
    assert [r.rival for r in speed.ratios] == ["eager"]


def test_the_solutions_failure_is_raised():
    with pytest.raises(Failed, match="solution: out") as caught:
        run(FakeContestant("solution", 10, fails_at=7), FakeContestant("eager", 20))
    assert caught.value.failure.outcome is Outcome.WRONG


def test_work_after_the_end_of_the_call_is_refused():
    with pytest.raises(Failed, match="at work again for up to 80 µs") as caught:
        run(FakeContestant("solution", 10, late_us=80), FakeContestant("eager", 20))
    assert caught.value.failure.outcome is Outcome.REFUSED


def test_waits_as_long_as_a_rivals_are_the_hosts():
    speed = run(FakeContestant("solution", 10, late_us=21), FakeContestant("eager", 20, late_us=12))
    assert speed.solution.call is not None
    with pytest.raises(Failed, match="at work again for up to 21 µs"):
        run(FakeContestant("solution", 10, late_us=21), FakeContestant("eager", 20, late_us=4))


def test_a_time_under_what_the_device_can_do_is_refused():
    bound = Bound(10**9, 0, 230.0, 208.0, "memory", least_us=195.0)
    with pytest.raises(Failed, match="datasheet peak for 1000000000 bytes"):
        run(*pair()[0], bound=bound)


def test_faster_than_the_floor_but_possible_is_a_warning():
    bound = Bound(10**8, 0, 7.0, 6.0, "memory", least_us=2.0)
    assert any("faster than the floor (140%)" in w for w in run(*pair()[0], bound=bound).warnings)


@pytest.mark.parametrize(("us", "marked"), [(10.0, True), (40.0, False)])
def test_calls_near_an_empty_launch_are_launch_bound(us, marked):
    contestants, clock = pair(us, 2 * us)
    speed = run(*contestants, clock=clock, launch=Overhead(8.0, 3.0))
    assert (speed.launch_bound, speed.launch_us) == (marked, 8.0)
