"""The run of one plan: what is fixed for it, and the candidate process that is replaced at need."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harness import inputs, judge_weights, wire
from harness.formats import flashinfer_solution
from harness.judge_expected import Oracle
from harness.judge_remote import Place, Remote
from harness.judge_weights import Match
from harness.problem import Reference
from harness.records import Case, Failed, Plan

LOAD_S = 120.0
CALL_S = 60.0


@dataclass
class Session:
    """Plan, reference, place, secret seed, and the living candidate if there is one."""

    plan: Plan
    reference: Reference
    place: Place
    seed: int
    say: Callable[[str], None] = lambda text: None
    deadline: float = 0.0
    printed: str = ""
    sandbox: tuple[str, ...] = ()
    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    kept: dict = field(default_factory=dict)  # what is asked once for all cases
    rivals: dict[str, Remote] = field(default_factory=dict)
    _remote: Remote | None = None
    _prepared: Remote | None = None  # a candidate process that has loaded nothing yet

    def __post_init__(self):
        self.begin()

    def begin(self) -> None:
        """The run's time counts from here."""
        self.deadline = time.monotonic() + 0.9 * self.plan.time_limit_s

    def left(self, at_most: float = CALL_S) -> float:
        """Seconds that one step may take; never so many that no report could be written."""
        return max(1.0, min(at_most, self.plan.time_limit_s / 3, self.deadline - time.monotonic()))

    def out_of_time(self) -> bool:
        return time.monotonic() > self.deadline

    def remote(self) -> Remote:
        """The candidate with the solution loaded; a new one after the last one ended."""
        if self._remote is None or not self._remote.alive:
            self._keep()
            self._remote = self.start()
        return self._remote

    def start(self, extra: dict[str, str] | None = None) -> Remote:
        """A further candidate process with the solution loaded."""
        made = self._fresh(extra or {})
        self.sandbox = made.sandbox
        try:
            made.request("load", self.left(LOAD_S), do="load", path=self._file(), **self._how())
        except Failed:
            self.printed = made.printed() or self.printed
            made.kill()
            raise
        return made

    def _file(self) -> str:
        return flashinfer_solution.module_of(self.plan.reference, self.plan.solution)

    def prepare(self) -> None:
        """Start the first candidate process ahead of its solution."""
        self._prepared = self._begun({})

    def _fresh(self, extra: dict[str, str]) -> Remote:
        if self._prepared is None or extra:
            return self._begun(extra)
        found, self._prepared = self._prepared, None
        return found

    def _begun(self, extra: dict[str, str]) -> Remote:
        return Remote("solution", self.plan.solution, self.place, extra)

    def _how(self) -> dict[str, str]:
        return {"entry": self.plan.entry, "beside": self.plan.beside}

    def rival(self, role: str, path: str) -> Remote:
        """The process of the reference ("baseline") or of a peer; replaced when it has ended."""
        found = self.rivals.get(path)
        if found is None or not found.alive:
            found = self.rivals[path] = Remote(role, path, self.place)
            found.request("load", LOAD_S, do="load", path=os.path.abspath(path))
        return found

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def model(self, remote: Remote, case: Case, weights: int) -> tuple[Oracle, Match]:
        """Both models under one seed, and their parameters made equal where that is possible."""
        oracle = Oracle(self.reference, case, weights, self.place.device)
        init = wire.pack(oracle.init)
        remote.boxes(init.nbytes, 1)
        answer = remote.request("model", self.left(), do="model", seed=weights, **remote.post(init))
        state = answer.get("state")
        found = judge_weights.match(oracle.state(), state if isinstance(state, list) else [])
        if found.copies:
            values = {ours: oracle.state()[theirs] for ours, theirs in found.copies}
            packed = wire.pack(values, self.place.device)
            remote.boxes(packed.nbytes, 1)
            remote.request("model", self.left(), do="weights", **remote.post(packed))
        return oracle, found

    def inputs(self, case: Case, family: inputs.Family, *words: object) -> list:
        return inputs.draw(self.reference, case, self.seed_for(case, family.name, *words), family)

    def seed_for(self, case: Case, *words: object) -> int:
        return inputs.seed_for(self.seed, case.label, *words)

    def close(self) -> None:
        for unused in (*self.rivals.values(), self._prepared):
            if unused is not None:
                unused.kill()
        if self._remote is not None:
            self._remote.child.output.text(0.2)
            self._keep()
            self._remote.kill()

    def _keep(self) -> None:
        if self._remote is not None:
            self.printed = self._remote.printed() or self.printed
            self.changes += [c for c in self._remote.changes if c not in self.changes]
