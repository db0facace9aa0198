"""Who is measured and one round of samples: random order, one method of device time for all."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Protocol

from harness.records import ACTIVITY_RECORDS, GRAPH_REPLAY, Failed, Raw

METHODS = (GRAPH_REPLAY, ACTIVITY_RECORDS)


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


@dataclass
class Samples:
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
class Control:
    """The solution once more, under another name."""

    solution: Contestant
    who: str = "control"

    def sample_call(self) -> Raw:
        return self.solution.sample_call()

    def sample_device(self, method: str) -> float | str | None:
        return self.solution.sample_device(method)


def warm_up(everyone: list[Samples], times: int) -> None:
    """The same path as a sample's; first calls load modules and fill allocators."""
    for samples in everyone:
        for _ in range(times):
            guard(samples, samples.contestant.sample_call)


def choose_method(everyone: list[Samples]) -> None:
    """One method of device time for all: the first that everyone has, else the solution's.

    Times by different methods are never compared.
    """
    timed = [s for s in everyone if not s.not_timed]
    reasons: dict[str, dict[str, str]] = {}
    for method in METHODS:
        answers = {s.who: guard(s, s.contestant.sample_device, method) for s in timed}
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


def one_round(everyone: list[Samples], rng: random.Random) -> None:
    for samples in everyone:
        samples.calls.append(None)
        samples.device.append(None)
    turns = [(s, kind) for s in everyone if not s.not_timed for kind in ("call", "device")]
    rng.shuffle(turns)
    for samples, kind in turns:
        if samples.not_timed:
            continue
        if kind == "call":
            samples.calls[-1] = guard(samples, samples.contestant.sample_call)
        elif samples.method:
            value = guard(samples, samples.contestant.sample_device, samples.method)
            if isinstance(value, str):
                samples.method, samples.no_device = "", value
            else:
                samples.device[-1] = value


def guard(samples: Samples, function, *arguments):
    """A rival's failure becomes its `not_timed`; the solution's is raised."""
    try:
        return function(*arguments)
    except Failed as failed:
        if samples.who in ("solution", "control"):
            raise
        samples.not_timed = failed.failure.message
        return None


def pairs(solution: Samples, rival: Samples, basis: str) -> list[tuple[float, float]]:
    """Both times of every round that has both."""
    if basis == "device" and not (solution.method and solution.method == rival.method):
        return []
    both = zip(solution.column(basis), rival.column(basis), strict=True)
    return [(ours, theirs) for ours, theirs in both if ours is not None and theirs is not None]
