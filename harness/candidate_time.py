"""Timed calls. The clock is older than the solution; the judge verifies the results."""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.candidate_call import Call
from harness.candidate_result import Result


class Stopwatch:
    """Samples of one call by whole time, graph replay or activity records."""

    def __init__(self, device: str):
        self.device = device
        self._clock = None
        self._replay = None

    def prepare(self) -> None:
        """Take hold of the clock's functions; on the CPU only when a sample is asked for."""
        if self.device.startswith("cuda"):
            self.clock()

    def clock(self):
        if self._clock is None:
            from harness.clock import Clock

            self._clock = Clock(self.device)
        return self._clock

    def overhead(self) -> dict:
        """What an empty kernel costs."""
        return vars(self.clock().launch_overhead())

    def time(self, how: str, call: Call, outbox: torch.Tensor) -> dict:
        """One sample; its result is in the outbox, where the window had just closed."""
        kept: list[dict] = []

        def keep(value) -> None:
            call.result = Result(value)
            kept.extend(call.result.write(outbox))

        timed = _timed(call)
        if how == "call":
            raw = self.clock().sample_call(timed, keep)
            answer = {"raw": vars(raw)}
        elif how == "activity":
            found = self.clock().sample_activity(timed, keep)
            answer = {"why": found} if isinstance(found, str) else {"us": found}
        elif how == "names":
            answer = self._names(timed)
        else:
            answer = self._graph(how, timed, keep, "backward" if call.backward else "")
        leaves = [{**leaf, "facts": {}} for leaf in kept]
        return {**answer, "result": call.result.tree if call.result else None, "leaves": leaves}

    def _names(self, timed: Callable) -> dict:
        """Which kernels one call runs, and for how long."""
        found = self.clock().activities(timed)
        if isinstance(found, str):
            return {"why": found}
        return {"ran": [[a.name[:300], a.end_ns - a.start_ns] for a in found if a.name][:200]}

    def _graph(self, how: str, timed: Callable, keep: Callable, kind: str) -> dict:
        if how == "capture":
            if kind == "backward":
                return {"why": "backward runs on the stream of its forward, outside the graph"}
            captured = self.clock().capture(timed)
            self._replay = None if isinstance(captured, str) else captured
            return {"why": captured} if isinstance(captured, str) else {"nodes": captured.nodes}
        if self._replay is None:
            return {"why": "nothing was captured"}
        us = self.clock().sample_replay(self._replay)
        keep(self._replay.output)
        return {"us": us}


def _timed(call: Call) -> Callable:
    """What goes inside the window: the forward call, or only the backward of one made before."""
    call.reset()
    if not call.backward:
        return call.forward
    value = call.forward()
    return lambda: [g for g in call.back(value) if g is not None]
