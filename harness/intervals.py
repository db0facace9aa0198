"""Medians, distribution-free confidence intervals and verdicts. Pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median, quantiles

from harness.records import Ratio, Stat

CONFIDENCE = 0.95
SAME_WITHIN = 0.03  # "same" excludes a difference of more than this
LEAST_NOISE = 0.005  # one comparison repeated on an H200 moved by up to 0.5 %, beyond its interval
DEVICE_STEP_US = 0.25  # two captures of one call differed by up to 0.17 µs on an H200, steadily


@lru_cache(maxsize=4096)
def _rank(count: int, confidence: float) -> int:
    """Largest k with P(Binomial(count, 1/2) < k) <= (1 - confidence) / 2; 0 when there is none.

    The k-th smallest and k-th largest value then enclose the median with that confidence,
    whatever the distribution.
    """
    tail = (1 - confidence) / 2
    below = 0.0
    for k in range(count // 2 + 1):
        below += math.exp(
            math.lgamma(count + 1)
            - math.lgamma(k + 1)
            - math.lgamma(count - k + 1)
            - count * math.log(2)
        )
        if below > tail:
            return k
    return count // 2


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Interval that holds the true median; (0, inf) when so few values cannot give one (n < 6)."""
    k = _rank(len(values), confidence)
    if k == 0:
        return 0.0, math.inf
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


def stat(values: Sequence[float]) -> Stat | None:
    """Median with interval, spread (IQR / median) and count; None for no values.

    A spread that the count cannot carry (fewer than 4) is infinite.
    """
    if not values:
        return None
    middle = median(values)
    low, high = median_interval(values)
    spread = math.inf
    if len(values) >= 4 and middle > 0:
        first, _, third = quantiles(values, n=4, method="inclusive")
        spread = (third - first) / middle
    return Stat(middle, low, high, spread, len(values))


def half_width(low: float, high: float) -> float:
    """Half the interval of a ratio, relative to its middle; inf when unbounded or not positive."""
    if not (low > 0 and math.isfinite(high)):
        return math.inf
    return (high - low) / (high + low)


def noise_of(low: float, high: float, step: float = LEAST_NOISE) -> float:
    """How far an A/A ratio's interval reaches from 1, at least `step`."""
    return max(high - 1, 1 - low, step)


def verdict(low: float, high: float, noise: float | None, step: float = LEAST_NOISE) -> str:
    """faster, same, slower or cannot tell, from a speed-up's interval and the A/A noise.

    faster or slower: the interval lies beyond the noise. same: it excludes a difference of more
    than SAME_WITHIN, or than `step`, the least that can be resolved, where that is more. Without
    an A/A control nothing is called faster or slower.
    """
    if noise is not None and low > 1 + noise:
        return "faster"
    if noise is not None and high < 1 / (1 + noise):
        return "slower"
    limit = 1 + max(SAME_WITHIN, step)
    return "same" if low >= 1 / limit and high <= limit else "cannot tell"


def quotient(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Median and interval of rival / solution over (solution µs, rival µs) of the same rounds."""
    values = [theirs / ours for ours, theirs in pairs if ours > 0 and theirs > 0]
    return (median(values), *median_interval(values)) if values else None


def step_of(pairs: Sequence[tuple[float, float]], basis: str) -> float:
    """The least relative difference that can be resolved: a repeat differs by as much."""
    if basis != "device" or not pairs:
        return LEAST_NOISE
    shorter = min(median(ours for ours, _ in pairs), median(theirs for _, theirs in pairs))
    return max(LEAST_NOISE, DEVICE_STEP_US / shorter) if shorter > 0 else math.inf


def paired_ratio(
    rival: str, pairs: Sequence[tuple[float, float]], noise: float | None, basis: str
) -> Ratio | None:
    """Speed-up over rounds. Its interval is widened by the step: a repeat falls inside."""
    found = quotient(pairs)
    if found is None:
        return None
    middle, low, high = found
    step = step_of(pairs, basis)
    word = verdict(low, high, noise, step)
    return Ratio(rival, middle, low / (1 + step), high * (1 + step), word, basis)


def against(rival: str, ours: Stat, theirs: Stat, noise: float | None, basis: str) -> Ratio:
    """Speed-up from two runs that were not interleaved, such as this one and the previous.

    The interval divides the ends of the two intervals, so it is wider than a paired one.
    """
    low = theirs.low_us / ours.high_us
    high = theirs.high_us / ours.low_us if ours.low_us > 0 else math.inf
    word = verdict(low, high, noise)
    return Ratio(rival, theirs.median_us / ours.median_us, low, high, word, basis)
