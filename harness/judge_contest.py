"""Everyone who is timed in one case, over the wire: fresh inputs, verified outputs."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from harness import check, inputs, judge_accept, wire
from harness.judge_expected import Answer, Oracle
from harness.judge_remote import Remote
from harness.judge_session import Session
from harness.judge_verify import name_of, structure
from harness.records import GRAPH_REPLAY, Case, Failed, Outcome, Raw

SLOW_DRAW_S = 0.05  # above this, samples are made of one draw by moving its rows
KEPT = 64  # samples, so that contestants who are some rounds apart share them
WINDOW_BYTES = 6 << 30  # of prepared inputs and answers kept at a time
COMPILE_S = 240.0
OUTBOX_SLACK = 1 << 16


@dataclass(frozen=True)
class Sample:
    """Inputs of one timed call and the right answer to them."""

    packed: wire.Packed
    answer: Answer
    seed: int
    requires: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes + self.answer.nbytes


class Supply:
    """Sample number i of a case: the same for every contestant, and for none of them twice."""

    def __init__(self, session: Session, case: Case, oracle: Oracle):
        self.session, self.case, self.oracle = session, case, oracle
        self.on_device = True
        self.slow = False
        self.rolls = True  # until a reference turns out to mind
        self.base: wire.Packed | None = None  # what new samples are made of where drawing is slow
        self._made: dict[int, Sample] = {}

    def take(self, number: int) -> Sample:
        found = self._made.get(number)
        if found is None:
            started = time.monotonic()
            found = self._made[number] = self._make(number)
            if number == 2 and time.monotonic() - started > SLOW_DRAW_S:
                self.slow = True
            self._forget()
        return found

    def _make(self, number: int) -> Sample:
        seed = self.session.seed_for(self.case, "timed", number)
        rolled = self.rolls and self.base is not None
        values = [self._rolled(seed) if rolled else self._draw(seed)]
        if self.slow and self.base is None:
            self.base = wire.pack(values, self.session.place.device)
        if self.case.backward:
            values.append(self.oracle.output_gradients(values[0], seed, "random"))
        packed = wire.pack(values, self.session.place.device)
        answer = self.oracle.answer(packed, seed)
        if not self.case.backward:
            return Sample(packed, answer, seed)
        tensors = [t for t in wire.tensors_of(values[0])]
        floats = [i for i, tensor in enumerate(tensors) if tensor.is_floating_point()]
        pairs = zip(floats, answer.gradients, strict=False)
        wanted = tuple(i for i, gradient in pairs if gradient is not None)
        return Sample(packed, _of_gradients(answer), seed, wanted)

    def _draw(self, seed: int) -> list:
        """Drawn on the GPU where get_inputs allows it, for speed; the values are as secret."""
        if self.on_device:
            try:
                with torch.device(self.session.place.device):
                    return inputs.draw(self.session.reference, self.case, seed)
            except Failed:
                self.on_device = False
        return inputs.draw(self.session.reference, self.case, seed)

    def _rolled(self, seed: int) -> list:
        """Where drawing is slow: the base inputs, their floating rows moved on by a secret step."""
        storages = [image.clone().untyped_storage() for image in self.base.storages]
        values = wire.unpack(self.base.tree, storages)[0]
        rng = random.Random(seed)
        for tensor in wire.tensors_of(values):
            if tensor.is_floating_point() and _has_rows(tensor):
                tensor.copy_(torch.roll(tensor, rng.randrange(1, len(tensor)), 0))
        return values

    def draw_all(self) -> bool:
        """From now on draw every sample; False where that is so already.

        Moved rows may be no valid input, as those of a triangular matrix: a wrong result for them
        says nothing of the solution.
        """
        moved = self.rolls and self.base is not None
        self.rolls = False
        if moved:
            self._made.clear()
        return moved

    def _forget(self) -> None:
        """The oldest go first; one that is asked for again is made again."""
        held = self._made
        while len(held) > KEPT or (len(held) > 2 and _bytes(held.values()) > WINDOW_BYTES):
            held.pop(next(iter(held)))


def _has_rows(tensor: torch.Tensor) -> bool:
    """Whether rows can be moved: a vector may be sorted, and repeated memory has no rows."""
    return tensor.ndim >= 2 and len(tensor) > 1 and 0 not in tensor.stride()


def _bytes(samples: Iterable[Sample]) -> int:
    return sum(sample.nbytes for sample in samples)


def _of_gradients(answer: Answer) -> Answer:
    """A backward call's result is its gradients."""
    found = tuple(g for g in answer.gradients if g is not None)
    return dataclasses.replace(
        answer,
        tree={"list": [{"leaf": i} for i in range(len(found))]},
        leaves=found,
        gradients=(),
    )


class Contestant:
    """One implementation in one candidate process; timing.Contestant."""

    def __init__(self, who: str, remote: Remote, which: str, contest: Contest):
        self.who, self.remote, self.which, self.contest = who, remote, which, contest
        self.number = 0
        self.captured = False
        self.called = False

    def sample_call(self) -> Raw:
        reply = self._ask("call")
        try:
            raw = Raw(**{k: v for k, v in reply["raw"].items() if isinstance(v, int | float)})
        except (TypeError, KeyError, AttributeError):
            raise self._failed(Outcome.REFUSED, "a sample without a time") from None
        if not 0 < raw.host_us <= raw.call_us < 1e9:
            raise self._failed(Outcome.REFUSED, f"a time that cannot be: {raw.call_us} µs")
        return raw

    def sample_device(self, method: str) -> float | str | None:
        if method != GRAPH_REPLAY:
            return self._device("activity")
        if not self.captured:
            reply = self._ask("capture", verify=False)
            if "why" in reply:
                return str(reply["why"])[:200]
            self.captured = True
        return self._device("replay")

    def _device(self, how: str) -> float | str | None:
        reply = self._ask(how)
        if "why" in reply:
            return str(reply["why"])[:200]
        us = reply.get("us")
        if us is None:
            return None
        if not isinstance(us, int | float) or not 0 <= us < 1e9:
            raise self._failed(Outcome.REFUSED, f"a time that cannot be: {us!r} µs")
        return float(us)

    def _ask(self, how: str, verify: bool = True) -> dict:
        """One sample over inputs that this contestant has not seen."""
        sample = self.contest.supply.take(self.number)
        self.number += 1
        limit = COMPILE_S if self.which == "compile" and not self.called else 30.0
        reply = self.contest.ask(self.remote, sample, limit, how=how, which=self.which)
        self.called = True
        if verify and "why" not in reply:
            problem = self.contest.problem(self.remote, reply, sample)
            if problem and self.contest.supply.draw_all():
                self.captured = False
                return self._ask(how)
            if problem:
                raise self._failed(Outcome.WRONG, f"{problem} (in a timed call)")
        return reply

    def _failed(self, outcome: Outcome, text: str) -> Failed:
        prefix = "" if self.who == "solution" else f"{self.who}: "
        return Failed(outcome, "timing", f"{prefix}{text}")


class Contest:
    """One case's contestants, their inputs and the oracle."""

    def __init__(self, session: Session, case: Case):
        self.session, self.case = session, case
        self.notes: list[str] = []
        self.solution = session.remote()
        seed = session.seed_for(case, "timed weights")
        self.oracle, _ = session.model(self.solution, case, seed)
        self.seed = seed
        self.supply = Supply(session, case, self.oracle)

    def contestants(self) -> list[Contestant]:
        """The solution, then every rival that can be had; why one cannot is a note."""
        found = [Contestant("solution", self.solution, "plain", self)]
        plan = self.session.plan
        rivals = [(who, "baseline", plan.reference) for who in plan.rivals]
        rivals += [(f"peer:{_peer(path)}", "peer", path) for path in plan.peers]
        for who, role, path in rivals:
            try:
                remote = self.session.rival(role, path)
                if role == "peer" or who == "eager" or not self._built(remote):
                    self.session.model(remote, self.case, self.seed)
                    remote.built = (self.case.label, self.seed)
            except Failed as failed:
                self.notes.append(f"{who} was not timed: {failed.failure.message[:160]}")
                continue
            which = "compile" if who == "compile" else "plain"
            found.append(Contestant(who, remote, which, self))
        return found

    def _built(self, remote: Remote) -> bool:
        return getattr(remote, "built", None) == (self.case.label, self.seed)

    def ask(self, remote: Remote, sample: Sample, limit_s: float, **fields) -> dict:
        remote.boxes(sample.packed.nbytes, sample.answer.nbytes + OUTBOX_SLACK)
        return remote.request(
            "timing",
            min(limit_s, self.session.left(limit_s)),
            do=fields.pop("do", "time"),
            seed=sample.seed,
            backward=self.case.backward,
            requires=list(sample.requires),
            expect=sample.answer.sizes,
            **remote.post(sample.packed),
            **fields,
        )

    def problem(self, remote: Remote, reply: dict, sample: Sample) -> str:
        """What is wrong with a timed call's result; "" for nothing."""
        answer, reference = sample.answer, self.session.reference
        problem = structure(reply.get("result"), answer.tree) if not self.case.backward else ""
        leaves = remote.collect("timing", reply.get("leaves"))
        if problem or len(leaves) < len(answer.leaves):
            missing = "a gradient is missing" if self.case.backward else "too few results"
            return problem or missing
        for index, expected in enumerate(answer.leaves):
            leaf, tensor = leaves[index]
            name = name_of(index, len(answer.leaves))
            if tensor is None or tensor.dtype != expected.native.dtype:
                got = f"{leaf.dtype} {list(leaf.shape)}"
                return f"{name} is {got}, want {expected.native.dtype}"
            if reference.accepts is not None and tensor.shape == expected.native.shape:
                continue
            tolerance = check.tolerance_for(expected, reference.tolerance)
            found = check.compare(tensor, expected, tolerance, name)
            if not found.ok:
                return found.message
        if reference.accepts is not None:
            tensors = [tensor for _, tensor in leaves]
            return judge_accept.refusal(reference, self.case, sample.packed, answer.tree, tensors)
        return ""

    def work(self) -> dict | None:
        """What the reference says must move and be computed; else every tensor once."""
        sample = self.supply.take(0)
        reference = self.session.reference
        declared = reference.work_backward if self.case.backward else reference.work
        if declared is not None:
            storages = [image.untyped_storage() for image in sample.packed.storages]
            arguments = wire.unpack(sample.packed.tree, storages)[0]
            return declared(self.oracle.model, *arguments)
        if self.case.backward:
            return None
        given = sum(slot.nbytes for slot in sample.packed.slots)
        return {"bytes": given + sum(sample.answer.sizes), "flops": 0}


def _peer(path: str) -> str:
    return Path(path).stem.split("__")[-1]
