import math
import random
from statistics import median

import pytest

from harness import intervals
from harness.records import Stat


def test_five_values_carry_no_interval_and_six_do():
    assert intervals.median_interval([1, 2, 3, 4, 5]) == (0.0, math.inf)
    assert intervals.median_interval([6, 5, 4, 3, 2, 1]) == (1, 6)


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (9, 2), (20, 6), (50, 18), (100, 40)])
def test_ranks_are_those_of_the_published_table(count, rank):
    # Conover, Practical Nonparametric Statistics: 95 % intervals of the median.
    assert intervals._rank(count, 0.95) == rank


def draws(kind, rng, count):
    make = {
        "normal": lambda: 10 + rng.gauss(0, 1),
        "long tail": lambda: 10 + rng.expovariate(1.0),
        "two modes": lambda: rng.choice((10, 11)) + rng.gauss(0, 0.1),
        "outliers": lambda: 10 + rng.gauss(0, 0.1) + (50 if rng.random() < 0.05 else 0),
    }[kind]
    return [make() for _ in range(count)]


TRUE_MEDIAN = {
    "normal": 10.0,
    "long tail": 10 + math.log(2),
    "two modes": 10.5,
    "outliers": None,
}


@pytest.mark.parametrize("kind", TRUE_MEDIAN)
@pytest.mark.parametrize("count", [8, 40])
def test_interval_covers_the_median_at_its_nominal_rate(kind, count):
    rng = random.Random(f"{kind} {count}")
    truth = TRUE_MEDIAN[kind] or median(draws(kind, rng, 200_000))
    runs = 2000
    hits = 0
    for _ in range(runs):
        low, high = intervals.median_interval(draws(kind, rng, count))
        hits += low <= truth <= high
    # Order statistics are conservative: never under 95 % but for the simulation's own 1 %.
    assert 0.94 <= hits / runs <= 0.999


def test_stat_of_few_values_says_what_it_cannot_know():
    few = intervals.stat([2.0, 3.0, 4.0])
    assert (few.median_us, few.low_us, few.high_us, few.spread, few.count) == (
        3.0, 0.0, math.inf, math.inf, 3,
    )  # fmt: skip
    assert intervals.stat([]) is None


def test_spread_is_the_interquartile_range_over_the_median():
    assert intervals.stat([8.0, 9.0, 10.0, 11.0, 12.0]).spread == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("low", "high", "noise", "word"),
    [
        (1.05, 1.10, 0.01, "faster"),
        (0.80, 0.90, 0.01, "slower"),
        (0.99, 1.02, 0.01, "same"),
        (1.005, 1.02, 0.01, "same"),
        (0.99, 1.10, 0.01, "cannot tell"),
        (1.02, 1.10, 0.05, "cannot tell"),
        (1.05, 1.10, None, "cannot tell"),
        (0.0, math.inf, 0.01, "cannot tell"),
    ],
)
def test_verdict(low, high, noise, word):
    assert intervals.verdict(low, high, noise) == word


def test_paired_ratio_removes_a_common_drift():
    pairs = [(10.0 * f, 20.0 * f) for f in (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7)]
    ratio = intervals.paired_ratio("eager", pairs, 0.01, "call")
    assert (ratio.median, ratio.verdict) == (pytest.approx(2.0), "faster")
    half = intervals.half_width(ratio.low, ratio.high)
    assert half == pytest.approx(intervals.LEAST_NOISE, rel=0.01)


def test_two_captures_of_one_call_are_the_same():
    # H200: a spin of 2 µs read 3.62 µs from one graph and 3.46 µs from another, without spread.
    pairs = [(3.62, 3.46)] * 20
    found = intervals.paired_ratio("eager", pairs, intervals.step_of(pairs, "device"), "device")
    assert found.verdict == "same"
    assert found.low < 1 < found.high


def test_a_step_counts_for_less_on_a_longer_kernel():
    assert intervals.step_of([(3.0, 2.5)], "device") == pytest.approx(0.1)
    assert intervals.step_of([(300.0, 250.0)], "device") == intervals.LEAST_NOISE
    assert intervals.step_of([(3.0, 2.5)], "call") == intervals.LEAST_NOISE


def test_ratio_of_two_runs_divides_the_far_ends():
    now, before = Stat(10, 9, 11, 0.1, 20), Stat(20, 18, 22, 0.1, 20)
    ratio = intervals.against("previous run", now, before, 0.01, "device")
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 18 / 11, 22 / 9)


def test_noise_is_never_less_than_what_two_builds_differ_by():
    assert intervals.noise_of(0.999, 1.001) == intervals.LEAST_NOISE
    assert intervals.noise_of(0.96, 1.01) == pytest.approx(0.04)
