"""One call's answer against the expected one: structure, types, memory, values, inputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from harness import check, wire
from harness.check import Comparison, Expected
from harness.judge_expected import Answer
from harness.records import Tolerance


@dataclass
class Verdict:
    """What one call came to. `problem` is "" for a right one."""

    problem: str = ""
    worst: float = 0.0
    worst_abs: float = 0.0
    worst_rel: float = 0.0
    mismatch: str = ""  # as Check has it
    notes: list[str] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    shares_earlier: bool = False


def keep_worst(so_far, found) -> None:
    """Raise the three measures of a Verdict or Tally to those of a Comparison or Verdict."""
    so_far.worst = max(so_far.worst, found.worst)
    so_far.worst_abs = max(so_far.worst_abs, found.worst_abs)
    so_far.worst_rel = max(so_far.worst_rel, found.worst_rel)


@dataclass(frozen=True)
class Received:
    """A candidate's reply after the judge has copied every tensor out of the mailbox."""

    tree: object
    leaves: list[tuple[wire.Leaf, torch.Tensor | None]]
    gradients: list[tuple[wire.Leaf | None, torch.Tensor | None]]
    inputs_after: list[torch.Tensor]
    guards: list[str]
    findings: list[dict]


def verify(
    got: Received, want: Answer, packed: wire.Packed, tolerance: Tolerance, cuda: bool
) -> Verdict:
    """Everything that must hold after one call, in the order in which a reader would ask."""
    verdict = Verdict()
    verdict.problem = (
        _findings(got)
        or structure(got.tree, want.tree)
        or _leaves(got, want, tolerance, cuda, verdict)
        or _gradients(got, want, tolerance, verdict)
        or _inputs(got, want, packed)
        or _guards(got)
    )
    return verdict


def name_of(index: int, count: int) -> str:
    return "out" if count == 1 else f"out {index}"


def _findings(got: Received) -> str:
    for finding in got.findings:
        if finding.get("severity") == "error":
            return str(finding.get("message"))[:400]
    return ""


def structure(got: object, want: dict, where: str = "the result") -> str:
    """The first place where the nesting of lists, tuples, dicts and scalars differs; "" if none."""
    if not isinstance(got, dict) or len(got) != 1:
        return f"{where} has no structure"
    (kind, body), (want_kind, want_body) = next(iter(got.items())), next(iter(want.items()))
    if kind == "bad":
        return f"{where} is {str(body)[:120]}; want {_words(want)}"
    if kind in ("list", "tuple") and want_kind in ("list", "tuple"):
        if len(body) != len(want_body):
            return f"{where} has {len(body)} items, want {len(want_body)}"
        pairs = enumerate(zip(body, want_body, strict=True))
        found = (structure(g, w, f"item {i} of {where}") for i, (g, w) in pairs)
        return next((text for text in found if text), "")
    if kind != want_kind:
        return f"{where} is {_words(got)}, want {_words(want)}"
    if kind == "dict":
        return _dicts(body, want_body, where)
    if kind == "value" and not _same_scalar(body, want_body):
        return f"{where} is {body!r}, want {want_body!r}"
    return ""


def _dicts(got: list, want: list, where: str) -> str:
    mine, theirs = dict(got), dict(want)
    if mine.keys() != theirs.keys():
        return f"{where} has keys {sorted(mine)}, want {sorted(theirs)}"
    found = (structure(mine[key], theirs[key], f"{key!r} of {where}") for key in theirs)
    return next((text for text in found if text), "")


def _same_scalar(got: object, want: object) -> bool:
    if isinstance(got, float) and isinstance(want, float):
        return got == want or abs(got - want) <= 1e-6 * abs(want) or (got != got and want != want)
    return type(got) is type(want) and got == want


def _words(tree: dict) -> str:
    (kind, body), *_ = tree.items()
    if kind == "leaf":
        return "a tensor"
    if kind == "value":
        return repr(body)
    if kind == "bad":
        return str(body)
    return f"a {kind} of {len(body)}"


def _leaves(got: Received, want: Answer, tolerance: Tolerance, cuda: bool, verdict) -> str:
    count = len(want.leaves)
    for index, (leaf, tensor) in enumerate(got.leaves):
        expected, name = want.leaves[index], name_of(index, count)
        problem = _type(leaf, expected, verdict) or _memory(leaf, expected, want, index, cuda)
        if problem:
            return f"{name} {problem}"
        if tensor is None:
            return f"{name} was not handed over"
        found = check.compare(tensor, expected, check.tolerance_for(expected, tolerance), name)
        _note(found, verdict)
        verdict.tensors.append(tensor)
        verdict.shares_earlier |= bool(leaf.facts.get("earlier"))
        if not found.ok:
            verdict.mismatch = "values"
            return found.message
        if leaf.stride != want.strides[index] and tensor.numel() > 1:
            verdict.notes.append(
                f"{name} has strides {list(leaf.stride)}, the reference's "
                f"{list(want.strides[index])}"
            )
    return ""


def _type(leaf: wire.Leaf, expected: Expected, verdict: Verdict) -> str:
    native = expected.native
    wanted = wire.DTYPE_NAMES[native.dtype]
    if leaf.dtype != wanted:
        verdict.mismatch = "dtype"
        return f"is {leaf.dtype}, want {wanted}"
    if leaf.shape != tuple(native.shape):
        verdict.mismatch = "shape"
        return f"has shape {list(leaf.shape)}, want {list(native.shape)}"
    return ""


def _memory(leaf: wire.Leaf, expected: Expected, want: Answer, index: int, cuda: bool) -> str:
    """Device, and whose memory it is."""
    native, facts = expected.native, leaf.facts
    if cuda and facts.get("device") != native.device.type:
        return f"is on {facts.get('device')}, want {native.device.type}"
    shares_input, shares_output = want.aliases[index]
    if facts.get("inputs") and not shares_input:
        return f"shares memory with input storage {facts['inputs'][0]}; want memory of its own"
    if facts.get("outputs") and not shares_output:
        return f"shares memory with out {facts['outputs'][0]}; want memory of its own"
    return ""


def _note(found: Comparison, verdict: Verdict) -> None:
    keep_worst(verdict, found)


def _gradients(got: Received, want: Answer, tolerance: Tolerance, verdict: Verdict) -> str:
    """Gradients of the inputs; of the parameters too where both models have the same ones."""
    if not want.gradients:
        return ""
    for index, (leaf, _) in enumerate(got.leaves):
        if want.needs_grad[index] and not leaf.facts.get("requires_grad"):
            return f"{name_of(index, len(want.leaves))} has no gradient; the reference's has"
    if len(got.gradients) < len(want.gradients):
        verdict.notes.append("gradients of the parameters were not compared: other parameters")
    for index, (expected, (_, tensor)) in enumerate(
        zip(want.gradients, got.gradients, strict=False)
    ):
        name = f"gradient {index}"
        if expected is None or tensor is None:
            problem = _absent_gradient(expected, tensor, name)
            if problem:
                return problem
            continue
        if tensor.dtype != expected.native.dtype:
            return f"{name} is {tensor.dtype}, want {expected.native.dtype}"
        found = check.compare(tensor, expected, check.tolerance_for(expected, tolerance), name)
        _note(found, verdict)
        if not found.ok:
            return found.message
    return ""


def _absent_gradient(expected: Expected | None, tensor: torch.Tensor | None, name: str) -> str:
    """None and zeros mean the same."""
    if tensor is not None and bool((tensor != 0).any()):
        return f"{name} is not zero; the reference has none"
    if expected is not None and bool((expected.native != 0).any()):
        return f"{name} is missing"
    return ""


def _inputs(got: Received, want: Answer, packed: wire.Packed) -> str:
    """Inputs are as they were, or as the reference itself leaves them."""
    for index, (after, before) in enumerate(zip(got.inputs_after, packed.storages, strict=True)):
        if torch.equal(after, before):
            continue
        if want.inputs_after and torch.equal(after, want.inputs_after[index]):
            continue
        if _is_for_the_result(want, index, before):
            continue
        byte = int((after != before).to(torch.uint8).argmax())
        return f"input storage {index} was written to (byte {byte}); inputs must stay as they are"
    return ""


def _is_for_the_result(want: Answer, index: int, before: torch.Tensor) -> bool:
    """Memory that the reference writes its result into as well: compared as the result."""
    if not want.inputs_after or not any(in_input for in_input, _ in want.aliases):
        return False
    return not torch.equal(want.inputs_after[index], before)


def _guards(got: Received) -> str:
    return f"wrote outside of {got.guards[0]}" if got.guards else ""
