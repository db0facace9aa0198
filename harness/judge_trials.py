"""All trials of one case: which calls are made, with which inputs, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from harness import check, inputs, judge_accept, wire
from harness.inputs import NORMAL, Family
from harness.judge_expected import Answer, Oracle
from harness.judge_remote import Remote
from harness.judge_session import Session
from harness.judge_verify import Received, Verdict, keep_worst, name_of, verify
from harness.judge_weights import Match
from harness.records import Case, Check, Failed, Outcome, Tolerance

LARGE = 1 << 29  # bytes of inputs from which on the families of values are left out
OUTBOX_SLACK = 1 << 16
# Types, shapes, NaN and infinities still count; how close is close decides the problem itself.
OWN_CHECK = Tolerance(0.0, 1e300, "the problem's own check")


@dataclass
class Tally:
    """What the trials of a case came to."""

    trials: int = 0
    worst: float = 0.0
    worst_abs: float = 0.0
    worst_rel: float = 0.0
    reference_worst: float | None = None
    notes: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    kernels: int = 0
    calls_with_output: int = 0

    def note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < 12:
            self.notes.append(text)

    def label(self, text: str) -> None:
        if text not in self.labels:
            self.labels.append(text)


@dataclass(frozen=True)
class Prepared:
    """Inputs of one trial, packed, and the right answer to them."""

    packed: wire.Packed
    answer: Answer
    seed: int
    what: str = ""


class Wrong(Exception):
    """A trial's result is wrong: the sentence of the row."""

    def __init__(self, prepared: Prepared, problem: str, mismatch: str):
        super().__init__(problem)
        self.prepared, self.mismatch = prepared, mismatch


class Trials:
    """Checks one case. Raises Failed where there is no answer; a wrong answer is a Check."""

    def __init__(self, session: Session, case: Case):
        self.session, self.case = session, case
        self.cuda = session.place.cuda is not None
        self.tally = Tally()
        self.trivial: dict[int, dict[str, torch.Tensor]] = {}
        self.remote: Remote
        self.oracle: Oracle
        self.match: Match

    def run(self) -> tuple[Check, tuple[str, ...]]:
        self.remote = self.session.remote()
        self._build("weights")
        try:
            self._sequence()
        except Wrong as wrong:
            return self._wrong(wrong), tuple(self.tally.labels)
        return self._check(True, ""), tuple(self.tally.labels)

    def _build(self, *words: object) -> None:
        seed = self.session.seed_for(self.case, *words)
        self.oracle, self.match = self.session.model(self.remote, self.case, seed)
        if self.match.how in ("by name", "by shape"):
            self.tally.note(f"weights copied {self.match.how} (other values under the same seed)")

    def _sequence(self) -> None:
        first = self._prepare(NORMAL, 0)
        self._judge_tolerance(first)
        got = self._trial(first)
        second = self._prepare(NORMAL, 1)
        self._depends(first, second)
        self._trial(second, hold=True)
        self._held(got)
        third = self._prepare(NORMAL, 2)
        fresh = self._trial(third, reuse=True)
        self._repeat(third, fresh)
        if self.case.backward:
            self._trial(self._prepare(NORMAL, 5, "expanded"))
        if self.cuda:
            self._other_stream()
        if first.packed.nbytes <= LARGE:
            self._families()
        if self.match.how != "none":
            self._build("other weights")
            self._trial(self._prepare(NORMAL, 3))
        self._label_kernels()

    def _prepare(self, family: Family, number: int, gradients: str = "random") -> Prepared:
        """Draw, pack and answer. In a backward case the output gradients belong to the inputs."""
        kind = (
            " and a gradient of stride 0, as sum().backward() gives"
            if gradients != "random"
            else ""
        )
        values = [self.session.inputs(self.case, family, number)]
        seed = self.session.seed_for(self.case, family.name, number, "call")
        if self.case.backward:
            values.append(self.oracle.output_gradients(values[0], seed, gradients))
        packed = wire.pack(values, self.session.place.device)
        what = kind if family is NORMAL else f" with {family.name} inputs"
        return Prepared(packed, self.oracle.answer(packed, seed), seed, what)

    def _call(self, prepared: Prepared, **options) -> tuple[Received, dict]:
        self.remote.boxes(prepared.packed.nbytes, prepared.answer.nbytes + OUTBOX_SLACK)
        reply = self.remote.request(
            "call",
            self.session.left(),
            do="call",
            seed=prepared.seed,
            backward=self.case.backward,
            requires=self._requires(prepared),
            expect=prepared.answer.sizes,
            **self.remote.post(prepared.packed),
            **options,
        )
        leaves = self.remote.collect("call", reply.get("leaves"))
        gradients = self.remote.collect("call", reply.get("grads", []))
        after = self.remote.inbox_images(prepared.packed)
        guards = [str(g) for g in reply.get("guards", [])][:4]
        findings = [f for f in reply.get("findings", []) if isinstance(f, dict)]
        return Received(reply.get("result"), leaves, gradients, after, guards, findings), reply

    def _requires(self, prepared: Prepared) -> list[int]:
        if not self.case.backward:
            return []
        arguments = wire.unpack(
            prepared.packed.tree, [s.untyped_storage() for s in prepared.packed.storages]
        )[0]
        tensors = wire.tensors_of(arguments)
        return [i for i, tensor in enumerate(tensors) if tensor.is_floating_point()]

    def _attempt(self, prepared: Prepared, **options) -> tuple[Verdict, dict]:
        got, reply = self._call(prepared, **options)
        reference = self.session.reference
        tolerance = OWN_CHECK if reference.accepts else reference.tolerance
        verdict = verify(got, prepared.answer, prepared.packed, tolerance, self.cuda)
        if reference.accepts and not verdict.problem:
            tree, tensors = prepared.answer.tree, verdict.tensors
            verdict.problem = judge_accept.refusal(
                reference, self.case, prepared.packed, tree, tensors
            )
            verdict.mismatch = "values" if verdict.problem else ""
            self._measure(prepared, verdict)
        if not verdict.problem:
            verdict.problem = self._shortcut(verdict)
            verdict.mismatch = "values" if verdict.problem else ""
        self._observe(got, reply)
        return verdict, reply

    def _measure(self, prepared: Prepared, verdict: Verdict) -> None:
        """How far a result that the problem's own check judged is off by our default tolerance."""
        verdict.worst = verdict.worst_abs = verdict.worst_rel = 0.0
        for leaf, tensor in zip(prepared.answer.leaves, verdict.tensors, strict=True):
            ours = check.tolerance_for(leaf, self.session.reference.tolerance)
            found = check.compare(tensor, leaf, ours, "out")
            keep_worst(verdict, found)
            if not found.ok and not verdict.problem:
                self.tally.note(f"right by the problem's own check, not by ours: {found.message}")

    def _trial(self, prepared: Prepared, **options) -> Verdict:
        """One call that must be right; a wrong one is made again to tell wrong from flaky."""
        verdict, _ = self._attempt(prepared, **options)
        tally = self.tally
        tally.trials += 1
        if verdict.problem:
            self._flaky(prepared, verdict.problem, options.get("reuse", False))
            keep_worst(tally, verdict)
            where = " where the memory of an earlier input holds new contents"
            raise Wrong(
                prepared,
                verdict.problem + prepared.what + (where if options.get("reuse") else ""),
                verdict.mismatch,
            )
        keep_worst(tally, verdict)
        for note in verdict.notes:
            tally.note(note)
        return verdict

    def _flaky(self, prepared: Prepared, problem: str, reuse: bool) -> None:
        """Repeats of a wrong trial in the same way. Raises Failed(FLAKY) where some are right."""
        again = [self._once_more(prepared, number, reuse) for number in range(3)]
        if all(again):
            return
        if reuse and any(again):
            return
        raise Failed(
            Outcome.FLAKY,
            "check",
            f"{self._place()}: right in {again.count('')} of {len(again)} repeats with "
            f"{'like' if reuse else 'the same'} inputs, and once: {problem}{prepared.what}",
        )

    def _once_more(self, prepared: Prepared, number: int, reuse: bool) -> str:
        """The same inputs again, or, where memory was reused, new contents in reused memory."""
        if not reuse:
            return self._attempt(prepared)[0].problem
        self._attempt(self._prepare(NORMAL, 100 + 2 * number))
        return self._attempt(self._prepare(NORMAL, 101 + 2 * number), reuse=True)[0].problem

    def _observe(self, got: Received, reply: dict) -> None:
        self.tally.kernels += int(reply.get("kernels", 0))
        self.tally.calls_with_output += any(t is not None and t.numel() for _, t in got.leaves)
        if int(reply.get("threads", 0)) > 0:
            self.tally.label("leaves threads running after a call")
        for finding in got.findings:
            if finding.get("severity") == "warning":
                self.tally.note(str(finding.get("message"))[:200])

    def _shortcut(self, verdict: Verdict) -> str:
        """Where a loose tolerance admits a trivial answer, that answer itself is still wrong."""
        for index, answers in self.trivial.items():
            got = verdict.tensors[index]
            for name, answer in answers.items():
                if (
                    got.shape == answer.shape
                    and check.compare(got, check.Expected(answer), check.EXACT, "").ok
                    and not name.startswith("the result")
                ):
                    out = name_of(index, len(verdict.tensors))
                    return f"{out} is {name}; the reference's result is not"
        return ""

    def _judge_tolerance(self, prepared: Prepared) -> None:
        """What the tolerance lets pass, and how far the reference is from float64."""
        declared = self.session.reference.tolerance
        arguments = wire.unpack(
            prepared.packed.tree, [s.untyped_storage() for s in prepared.packed.storages]
        )[0]
        tensors = wire.tensors_of(arguments)
        for index, leaf in enumerate(prepared.answer.leaves):
            tolerance = check.tolerance_for(leaf, declared)
            passing = check.trivial_answers(leaf, tolerance, tensors)
            if passing:
                self.trivial[index] = passing
                self.tally.note(
                    f"the tolerance ({tolerance.rtol:g}, {tolerance.atol:g}) would pass "
                    f"{', '.join(passing)} for {name_of(index, len(prepared.answer.leaves))}"
                )
            own = check.own_error(leaf, tolerance)
            if own is not None:
                worst = self.tally.reference_worst
                self.tally.reference_worst = own if worst is None else max(worst, own)
        self._random(prepared)

    def _random(self, prepared: Prepared) -> None:
        if not self.case.backward and self.oracle.is_random(prepared.packed):
            self.tally.note("the reference draws random numbers: compared under equal seeds")

    def _depends(self, first: Prepared, second: Prepared) -> None:
        pairs = zip(first.answer.leaves, second.answer.leaves, strict=False)
        same = [
            a.native.shape == b.native.shape and torch.equal(a.native, b.native) for a, b in pairs
        ]
        if same and all(same) and any(leaf.native.numel() for leaf in first.answer.leaves):
            self.tally.note("the reference's result is the same for different inputs")

    def _held(self, first: Verdict) -> None:
        """The first result, held by the caller across the second call, is still what it was."""
        reply = self.remote.request("call", self.session.left(), do="held")
        now = [tensor for _, tensor in self.remote.collect("call", reply.get("leaves"))]
        for index, (before, after) in enumerate(zip(first.tensors, now, strict=False)):
            if after is None or torch.equal(_bits(before), _bits(after)):
                continue
            self.tally.label("reuses its output buffer: each call overwrites the last result")
            self.tally.note(
                f"{name_of(index, len(now))} of an earlier call, still held, changes with the next"
            )
            return

    def _repeat(self, prepared: Prepared, before: Verdict) -> None:
        """The same contents at other addresses give the same result."""
        after = self._trial(prepared)
        pairs = zip(before.tensors, after.tensors, strict=False)
        if all(torch.equal(_bits(a), _bits(b)) for a, b in pairs):
            return
        self.tally.note("not bit-repeatable: equal inputs give results that differ in rounding")

    def _other_stream(self) -> None:
        """Called on a stream of its own, as under CUDA graphs and in overlapped training."""
        prepared = self._prepare(NORMAL, 4)
        verdict, _ = self._attempt(prepared, stream=True)
        if not verdict.problem:
            self.tally.trials += 1
            return
        plain = self._trial(prepared)
        if not plain.problem:
            self.tally.label(
                "ignores the current CUDA stream: wrong when called on another one; launch on "
                "at::cuda::getCurrentCUDAStream()"
            )

    def _families(self) -> None:
        for family in inputs.families(self.session.reference):
            declared = family.change is None or family not in (*inputs.GENERIC, inputs.SPECIAL)
            try:
                prepared = self._prepare(family, 0)
            except Failed as failed:
                if declared:
                    raise
                self.tally.note(f"{family.name} inputs left out: {failed.failure.message[:120]}")
                continue
            if not declared and family is not inputs.SPECIAL and not self._sane(prepared):
                continue
            self._trial(prepared)

    def _sane(self, prepared: Prepared) -> bool:
        """Whether a generic family's inputs are within what the reference is made for."""
        for leaf in prepared.answer.leaves:
            native = leaf.native
            if native.is_floating_point() and not bool(native.isfinite().all()):
                return False
            tolerance = check.tolerance_for(leaf, self.session.reference.tolerance)
            own = check.own_error(leaf, tolerance)
            if own is not None and own > 0.5:
                return False
        return True

    def _label_kernels(self) -> None:
        """On the CPU the execution counts launches; on the GPU the clock asks once (see timing)."""
        if not self.cuda and self.tally.calls_with_output and self.tally.kernels == 0:
            self.tally.label("no kernel of yours ran")

    def _wrong(self, wrong: Wrong) -> Check:
        if self.match.how == "differ":
            raise Failed(
                Outcome.DOES_NOT_LOAD,
                "weights",
                f"{self._place()}: weights differ, so the results cannot be compared: "
                f"{self.match.why}",
                (str(wrong),),
            )
        return self._check(False, f"{self._place()}: {wrong}", wrong.mismatch)

    def _check(self, ok: bool, message: str, mismatch: str = "") -> Check:
        tally = self.tally
        return Check(
            ok=ok,
            trials=tally.trials,
            worst=tally.worst,
            worst_abs=tally.worst_abs,
            message=message,
            reference_worst=tally.reference_worst,
            notes=tuple(tally.notes),
            worst_rel=tally.worst_rel,
            mismatch=mismatch,
        )

    def _place(self) -> str:
        return f"{self.session.plan.op}/{self.case.label}"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return wire.raw_bytes(tensor.contiguous())
