"""Contestants and clocks that cost no time."""

import random

from harness.records import GRAPH_REPLAY, Failed, Outcome, Raw


class FakeClock:
    """Time that moves only when a fake contestant is called."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


class FakeContestant:
    """Log-normal times about `us` with spread `sigma`; `drift(seconds)` scales them.

    methods: those by which it has device times. fails_at: number of the call that raises.
    """

    def __init__(self, who, us, sigma=0.02, *, clock=None, seed=0, **behaviour):
        self.who = who
        self.calls = 0
        self.order = behaviour.get("order")
        self._us, self._sigma = us, sigma
        self._clock = clock
        self._rng = random.Random(f"{who} {seed}")
        self._methods = behaviour.get("methods", (GRAPH_REPLAY,))
        self._drift = behaviour.get("drift", lambda seconds: 1.0)
        self._late_us = behaviour.get("late_us", 0.0)
        self._fails_at = behaviour.get("fails_at")
        self._sample_s = behaviour.get("sample_s", 1e-3)

    def sample_call(self):
        self.calls += 1
        if self.order is not None:
            self.order.append(self.who)
        if self.calls == self._fails_at:
            raise Failed(Outcome.WRONG, "timing", f"{self.who}: out[0] differs")
        us = self._draw()
        return Raw(us, us / 2, self._late_us)

    def sample_device(self, method):
        if method not in self._methods:
            return f"no {method}"
        return self._draw() / 2

    def _draw(self):
        if self._clock is not None:
            self._clock.seconds += self._sample_s
        now = self._clock.seconds if self._clock else 0.0
        return self._us * self._rng.lognormvariate(0, self._sigma) * self._drift(now)
