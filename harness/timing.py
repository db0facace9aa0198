"""Timing on the judge's side: interleaved samples, when to stop, verdicts. Reads no device."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness import intervals
from harness.records import (
    ACTIVITY_RECORDS,
    GRAPH_REPLAY,
    Bound,
    Failed,
    Outcome,
    Overhead,
    Ratio,
    Raw,
    Speed,
    Timing,
)

BUDGET_S = 0.6
METHODS = (GRAPH_REPLAY, ACTIVITY_RECORDS)
LATE_US = 10.0  # device work this long after the end of a call is not an interrupt


class Contestant(Protocol):
    """One implementation, called with fresh inputs for every sample; its outputs are verified.

    `who`: solution, eager, compile, control, peer:NAME. A sample that cannot be had raises Failed.
    """

    who: str

    def sample_call(self) -> Raw:
        """One whole call."""

    def sample_device(self, method: str) -> float | str | None:
        """Device time in microseconds by `method` (GRAPH_REPLAY or ACTIVITY_RECORDS).

        A string says why this contestant has none by that method, None that this one sample
        was void.
        """


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


@dataclass
class _Samples:
    """What one contestant gave; lists are parallel to the rounds, None where there is no value."""

    contestant: Contestant
    calls: list[Raw | None] = field(default_factory=list)
    device: list[float | None] = field(default_factory=list)
    method: str = ""
    no_device: str = ""
    not_timed: str = ""

    @property
    def who(self) -> str:
        return self.contestant.who

    def column(self, basis: str) -> list[float | None]:
        if basis == "device":
            return self.device
        return [raw and raw.call_us for raw in self.calls]


@dataclass(frozen=True)
class _Control:
    """The solution once more, under another name."""

    solution: Contestant
    who: str = "control"

    def sample_call(self) -> Raw:
        return self.solution.sample_call()

    def sample_device(self, method: str) -> float | str | None:
        return self.solution.sample_device(method)


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
    everyone = [_Samples(c) for c in contestants]
    solution = next(s for s in everyone if s.who == "solution")
    if all(s.who != "control" for s in everyone):
        everyone.append(_Samples(_Control(solution.contestant)))
    end = conditions.now() + budget_s
    _warm_up(everyone, conditions.warm_up)
    _choose_method(everyone)
    _sample(everyone, end, budget_s, rng, conditions)
    for samples in everyone:
        _refuse_late_work(samples)
    speed = _reduce(everyone, bound, conditions)
    _refuse_impossible(speed)
    return speed


def _warm_up(everyone: list[_Samples], times: int) -> None:
    """The same path as a sample's; first calls load modules and fill allocators."""
    for samples in everyone:
        for _ in range(times):
            _guard(samples, samples.contestant.sample_call)


def _choose_method(everyone: list[_Samples]) -> None:
    """One method of device time for all: the first that everyone has, else the solution's.

    Times by different methods are never compared.
    """
    timed = [s for s in everyone if not s.not_timed]
    reasons: dict[str, dict[str, str]] = {}
    for method in METHODS:
        answers = {s.who: _guard(s, s.contestant.sample_device, method) for s in timed}
        reasons[method] = {who: a for who, a in answers.items() if isinstance(a, str)}
        if not reasons[method]:
            break
    complete = [m for m in reasons if not reasons[m]]
    possible = [m for m in reversed(list(reasons)) if "solution" not in reasons[m]]
    chosen = next(iter(complete + possible), "")
    for samples in timed:
        why = reasons.get(chosen, {}).get(samples.who, "")
        if not chosen:
            why = "; ".join(r[samples.who] for r in reasons.values() if samples.who in r)
        samples.method = "" if why else chosen
        samples.no_device = why


def _sample(
    everyone: list[_Samples],
    end: float,
    budget_s: float,
    rng: random.Random,
    conditions: Conditions,
) -> None:
    """Rounds of one sample of each kind for each contestant, in random order."""
    latest = end + (conditions.overrun - 1) * budget_s
    look_at = conditions.least_rounds
    for count in range(1, conditions.most_rounds + 1):
        _round(everyone, rng)
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


def _round(everyone: list[_Samples], rng: random.Random) -> None:
    for samples in everyone:
        samples.calls.append(None)
        samples.device.append(None)
    turns = [(s, kind) for s in everyone if not s.not_timed for kind in ("call", "device")]
    rng.shuffle(turns)
    for samples, kind in turns:
        if samples.not_timed:
            continue
        if kind == "call":
            samples.calls[-1] = _guard(samples, samples.contestant.sample_call)
        elif samples.method:
            value = _guard(samples, samples.contestant.sample_device, samples.method)
            if isinstance(value, str):
                samples.method, samples.no_device = "", value
            else:
                samples.device[-1] = value


def _guard(samples: _Samples, function, *arguments):
    """A rival's failure becomes its `not_timed`; the solution's is raised."""
    try:
        return function(*arguments)
    except Failed as failed:
        if samples.who in ("solution", "control"):
            raise
        samples.not_timed = failed.failure.message
        return None


def _known(everyone: list[_Samples], width: float) -> bool:
    """Whether each speed-up that will be shown has an interval within ± width."""
    solution = next(s for s in everyone if s.who == "solution")
    for rival in everyone:
        if rival is solution or rival.not_timed:
            continue
        for basis in ("call", "device"):
            pairs = _pairs(solution, rival, basis)
            ratio = intervals.paired_ratio(rival.who, pairs, None, basis)
            if ratio is not None and intervals.half_width(ratio.low, ratio.high) > width:
                return False
    return True


def _pairs(solution: _Samples, rival: _Samples, basis: str) -> list[tuple[float, float]]:
    """Both times of every round that has both."""
    if basis == "device" and not (solution.method and solution.method == rival.method):
        return []
    both = zip(solution.column(basis), rival.column(basis), strict=True)
    return [(ours, theirs) for ours, theirs in both if ours is not None and theirs is not None]


def _refuse_late_work(samples: _Samples) -> None:
    """A call whose device work goes on after it has ended is timed as less than it takes."""
    calls = [raw for raw in samples.calls if raw is not None]
    late = [raw.late_us for raw in calls if raw.late_us > LATE_US]
    if len(late) < 3 or len(late) * 5 < len(calls):
        return
    message = (
        f"{samples.who}: the device was at work again for up to {max(late):.0f} µs after the call "
        f"had returned and the device had been waited for ({len(late)} of {len(calls)} calls)"
    )
    if samples.who in ("solution", "control"):
        raise Failed(Outcome.REFUSED, "timing", message)
    samples.not_timed = message


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


def _reduce(everyone: list[_Samples], bound: Bound | None, conditions: Conditions) -> Speed:
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
        intervals.paired_ratio(r.who, _pairs(solution, r, basis), noises[basis], basis)
        for r in rivals
        if not r.not_timed
    )
    return tuple(r for r in found if r is not None)


def _noise(solution: _Samples, control: _Samples, basis: str) -> float | None:
    ratio = intervals.paired_ratio("control", _pairs(solution, control, basis), None, basis)
    return None if ratio is None else intervals.noise_of(ratio.low, ratio.high)


def _timing(samples: _Samples) -> Timing:
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
