"""Timing on the judge's side: interleaved samples, when to stop, verdicts. Reads no device."""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness import intervals, sampling
from harness.records import (
    Bound,
    Failed,
    Outcome,
    Overhead,
    Ratio,
    Speed,
    Timing,
)
from harness.sampling import Contestant, Control, Samples

BUDGET_S = 0.6
LATE_US = 10.0  # device work this long after the end of a call is not an interrupt
LATE_SHARE = 0.5  # of the calls: a busy host delays single waits by tens of µs on honest machines


class Watch(Protocol):
    """Looks at the card while it is busy; harness.device.Watch is one."""

    def look(self) -> None: ...

    def warnings(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Conditions:
    """How to sample. `width`: stop when every speed-up's interval is within ± this share."""

    width: float = 0.01
    least_rounds: int = 8
    most_rounds: int = 1000
    warm_up: int = 3
    overrun: float = 5.0  # least_rounds may take this many budgets, not more
    launch: Overhead | None = None
    watch: Watch | None = None
    now: Callable[[], float] = time.perf_counter


def measure(
    contestants: Sequence[Contestant],
    bound: Bound | None,
    budget_s: float = BUDGET_S,
    rng: random.Random | None = None,
    conditions: Conditions | None = None,
) -> Speed:
    """Sample all contestants in random order until the speed-ups are known or the budget ends.

    Without a contestant "control" the solution itself is sampled a second time as one. Raises
    Failed when the solution fails, works on after its calls have ended, or is faster than the
    device can be; a rival's failure is in its Timing.
    """
    rng, conditions = rng or random.Random(), conditions or Conditions()
    everyone = [Samples(c) for c in contestants]
    solution = next(s for s in everyone if s.who == "solution")
    if all(s.who != "control" for s in everyone):
        everyone.append(Samples(Control(solution.contestant)))
    sampling.warm_up(everyone, conditions.warm_up)
    sampling.choose_method(everyone)
    end = conditions.now() + budget_s
    _sample(everyone, end, budget_s, rng, conditions)
    _refuse_late_work(everyone)
    speed = _reduce(everyone, bound, conditions)
    _refuse_impossible(speed)
    return speed


def _sample(
    everyone: list[Samples],
    end: float,
    budget_s: float,
    rng: random.Random,
    conditions: Conditions,
) -> None:
    """Rounds of one sample of each kind for each contestant, in random order."""
    latest = end + (conditions.overrun - 1) * budget_s
    look_at = conditions.least_rounds
    for count in range(1, conditions.most_rounds + 1):
        sampling.one_round(everyone, rng)
        now = conditions.now()
        if now > (end if count >= conditions.least_rounds else latest):
            break
        if count >= look_at:
            look_at = max(count + 1, int(count * 1.25))
            if conditions.watch is not None:
                conditions.watch.look()
            if _known(everyone, conditions.width):
                break
    if conditions.watch is not None:
        conditions.watch.look()


def _known(everyone: list[Samples], width: float) -> bool:
    """Whether each speed-up that will be shown has an interval within ± width."""
    solution = next(s for s in everyone if s.who == "solution")
    for rival in everyone:
        if rival is solution or rival.not_timed:
            continue
        for basis in ("call", "device"):
            pairs = sampling.pairs(solution, rival, basis)
            found = intervals.quotient(pairs)
            if found is not None and intervals.half_width(*found[1:]) > width:
                return False
    return True


def _refuse_late_work(everyone: list[Samples]) -> None:
    """A call whose device work goes on after it has ended is timed as less than it takes.

    A wait of a busy host is long without any work: twice what half of a rival's calls show is no
    evidence.
    """
    usual = [_usual_late_us(s) for s in everyone if s.who not in ("solution", "control")]
    limit_us = max(LATE_US, 2 * statistics.median_high(usual) if usual else 0.0)
    for samples in everyone:
        message = _late_work(samples, limit_us)
        if message and samples.who in ("solution", "control"):
            raise Failed(Outcome.REFUSED, "timing", message)
        samples.not_timed = samples.not_timed or message


def _usual_late_us(samples: Samples) -> float:
    late = [raw.late_us for raw in samples.calls if raw is not None]
    return statistics.median(late) if late else 0.0


def _late_work(samples: Samples, limit_us: float) -> str:
    """The evidence, or "" where too few calls worked on after their end."""
    calls = [raw for raw in samples.calls if raw is not None]
    late = [raw.late_us for raw in calls if raw.late_us > limit_us]
    if len(late) < 3 or len(late) <= LATE_SHARE * len(calls):
        return ""
    return (
        f"{samples.who}: the device was at work again for up to {max(late):.0f} µs after the call "
        f"had returned and the device had been waited for ({len(late)} of {len(calls)} calls)"
    )


def _refuse_impossible(speed: Speed) -> None:
    stat = speed.solution.device or speed.solution.call
    if speed.bound is None or stat is None or stat.median_us >= 0.97 * speed.bound.least_us:
        return
    raise Failed(
        Outcome.REFUSED,
        "timing",
        f"{stat.median_us:.2f} µs is less than the {speed.bound.least_us:.2f} µs that this device "
        f"needs at its datasheet peak for {speed.bound.bytes} bytes and {speed.bound.flops} "
        "operations: the call did not do the work, or work() counts too much",
    )


def _reduce(everyone: list[Samples], bound: Bound | None, conditions: Conditions) -> Speed:
    solution = next(s for s in everyone if s.who == "solution")
    control = next(s for s in everyone if s.who == "control")
    rivals = [s for s in everyone if s is not solution and s is not control]
    noises = {basis: _noise(solution, control, basis) for basis in ("call", "device")}
    calls = _ratios(solution, rivals, "call", noises)
    device = {r.rival: r for r in _ratios(solution, rivals, "device", noises)}
    ours, launch = _timing(solution), conditions.launch
    basis = "device" if ours.device else "call"
    speed = Speed(
        solution=ours,
        rivals=tuple(_timing(s) for s in rivals),
        ratios=tuple(device.get(r.rival, r) for r in calls),
        bound=bound,
        noise=noises[basis],
        launch_us=launch.call_us if launch else None,
        launch_bound=_launch_bound(ours, launch),
        call_ratios=calls,
        control=_timing(control),
        warnings=conditions.watch.warnings() if conditions.watch else (),
    )
    return _with_warnings(speed, conditions.width)


def _ratios(solution, rivals, basis, noises) -> tuple[Ratio, ...]:
    found = (
        intervals.paired_ratio(r.who, sampling.pairs(solution, r, basis), noises[basis], basis)
        for r in rivals
        if not r.not_timed
    )
    return tuple(r for r in found if r is not None)


def _noise(solution: Samples, control: Samples, basis: str) -> float | None:
    pairs = sampling.pairs(solution, control, basis)
    found = intervals.quotient(pairs)
    return found and intervals.noise_of(*found[1:], intervals.step_of(pairs, basis))


def _timing(samples: Samples) -> Timing:
    if samples.not_timed:
        return Timing(samples.who, not_timed=samples.not_timed)
    calls = [raw for raw in samples.calls if raw is not None]
    device = intervals.stat([us for us in samples.device if us is not None])
    method = samples.method if device else ""
    return Timing(
        samples.who,
        call=intervals.stat([raw.call_us for raw in calls]),
        device=device,
        host=intervals.stat([raw.host_us for raw in calls]),
        device_method=method or (samples.no_device and f"none: {samples.no_device}"),
    )


def _launch_bound(ours: Timing, launch: Overhead | None) -> bool:
    """Whether a call takes less than twice what a call of an empty kernel takes."""
    return bool(launch and ours.call and ours.call.median_us < 2 * launch.call_us)


def _with_warnings(speed: Speed, width: float) -> Speed:
    warnings = list(speed.warnings)
    for ratio in speed.ratios:
        reached = intervals.half_width(ratio.low, ratio.high)
        if reached > max(width, intervals.SAME_WITHIN):
            warnings.append(f"speed-up against {ratio.rival} is known only to ±{reached:.1%}")
    share = speed.of_floor
    if share is not None and share > 1.05 and not speed.bound.l2_resident:
        warnings.append(f"faster than the floor ({share:.0%}): part of the output stays in L2")
    return dataclasses.replace(speed, warnings=tuple(warnings))
