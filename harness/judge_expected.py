"""What the right answer is: the reference, run in the judge, and the same in float64."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from harness import check, wire
from harness.check import Expected
from harness.inputs import FLOATS, seed_everything
from harness.problem import Reference
from harness.records import Case, Failed, Outcome

LARGEST_PRECISE = 1 << 28  # elements of one input or output for which a float64 run is affordable


@dataclass(frozen=True)
class Answer:
    """The expected result of one call."""

    tree: dict  # as candidate_result.Result makes it
    leaves: tuple[Expected, ...]
    strides: tuple[tuple[int, ...], ...]
    needs_grad: tuple[bool, ...]
    aliases: tuple[tuple[bool, ...], ...]  # per leaf: shares memory with an input, another leaf
    gradients: tuple[Expected | None, ...] = ()
    inputs_after: tuple[torch.Tensor, ...] | None = None  # images, where the reference wrote there

    @property
    def nbytes(self) -> int:
        tensors = [leaf.native for leaf in self.leaves]
        tensors += [g.native for g in self.gradients if g is not None]
        return sum(wire.aligned(t.numel() * t.element_size()) for t in tensors)

    @property
    def sizes(self) -> list[int]:
        return [leaf.native.numel() * leaf.native.element_size() for leaf in self.leaves]


class Oracle:
    """The reference's model for one case, under one weight seed."""

    def __init__(self, reference: Reference, case: Case, seed: int, device: torch.device):
        self.reference, self.case, self.device = reference, case, device
        try:
            seed_everything(seed)
            self.init = reference.init_inputs(case)
            torch.manual_seed(seed)
            self.model = reference.Model(*self.init).to(device)
        except Exception as error:
            raise _broken(reference, case, "Model()", error) from error
        self._initial = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        exact = reference.tolerance.rtol == 0 == reference.tolerance.atol
        self._precise_model = None if exact else _doubled(self.model)
        self.random: bool | None = None

    def state(self) -> dict[str, torch.Tensor]:
        return self._initial

    def answer(self, packed: wire.Packed, seed: int) -> Answer:
        """Run the reference on private copies of packed [arguments] or [arguments, gradients].

        Raises Failed(REFERENCE_FAILED), or Failed(OUT_OF_MEMORY) naming the judge.
        """
        arguments, gradients, images = _private(packed)
        try:
            native = self._run(self.model, arguments, seed, gradients)
        except torch.OutOfMemoryError as error:
            raise Failed(
                Outcome.OUT_OF_MEMORY,
                "judge",
                f"{self.reference.op}/{self.case.label}: the reference runs out of GPU memory in "
                f"the judge, not the solution ({str(error).splitlines()[0]})",
            ) from None
        except Exception as error:
            raise _broken(self.reference, self.case, "forward", error) from error
        precise = self._precise(packed, seed, gradients, native)
        wrote = any(not torch.equal(a, b) for a, b in zip(images, packed.storages, strict=True))
        return _answer(native, precise, arguments, tuple(images) if wrote else None)

    def output_gradients(self, arguments: list, seed: int, kind: str) -> list:
        """One gradient per output that has one: random, or of stride 0 as sum().backward() gives.

        Raises Failed(REFERENCE_FAILED).
        """
        packed = wire.pack([arguments], self.device)
        values, _, _ = _private(packed)
        for tensor in wire.tensors_of(values):
            tensor.requires_grad_(tensor.is_floating_point())
        _restore(self.model, self._initial)
        try:
            outputs = wire.tensors_of(self.model(*values))
        except Exception as error:
            raise _broken(self.reference, self.case, "forward", error) from error
        generator = torch.Generator().manual_seed(seed & 0x7FFFFFFF)
        return [_gradient(out, generator, kind) if out.requires_grad else None for out in outputs]

    def _run(self, model, arguments: list, seed: int, gradients: list | None) -> tuple:
        """(result, gradients of the float inputs, then of the parameters)."""
        _restore(model, self._initial)
        torch.manual_seed(seed)
        if gradients is None:
            with torch.no_grad():
                return model(*arguments), ()
        wanted = [t for t in wire.tensors_of(arguments) if t.is_floating_point()]
        for tensor in wanted:
            tensor.requires_grad_(True)
        value = model(*arguments)
        pairs = [
            (out, g.to(out.dtype))
            for out, g in zip(wire.tensors_of(value), gradients, strict=True)
            if g is not None and out.requires_grad
        ]
        parameters = [p for p in model.parameters() if p.requires_grad]
        found = torch.autograd.grad(
            [out for out, _ in pairs], wanted + parameters, [g for _, g in pairs], allow_unused=True
        )
        return value, found

    def _precise(self, packed, seed: int, gradients, native: tuple) -> tuple | None:
        """The same call in float64, or None where that makes no sense or does not work."""
        outputs = wire.tensors_of(native[0])
        if self._precise_model is None or self.is_random(packed):
            return None
        if not any(t.dtype in FLOATS for t in outputs):
            return None
        given = wire.unpack(packed.tree, [image.untyped_storage() for image in packed.storages])
        if any(t.numel() > LARGEST_PRECISE for t in (*outputs, *wire.tensors_of(given))):
            return None
        arguments, _, _ = _private(packed)
        try:
            wide = _widened(arguments)
            found = self._run(self._precise_model, wide, seed, gradients)
        except Exception:
            return None
        theirs = wire.tensors_of(found[0])
        alike = len(theirs) == len(outputs) and all(
            a.shape == b.shape and a.is_floating_point() == b.is_floating_point()
            for a, b in zip(theirs, outputs, strict=True)
        )
        return found if alike else None

    def is_random(self, packed: wire.Packed) -> bool:
        """Whether the result depends on the random seed, as dropout's does."""
        if self.random is None:
            results = []
            for seed in (1, 2):
                arguments, _, _ = _private(packed)
                value, _ = self._run(self.model, arguments, seed, None)
                results.append(wire.tensors_of(value))
            self.random = any(
                not check.compare(a, Expected(b), check.EXACT, "").ok
                for a, b in zip(*results, strict=True)
            )
        return self.random


def _private(packed: wire.Packed) -> tuple[list, list | None, list[torch.Tensor]]:
    """Arguments and output gradients over copies of the packed storages, and those copies."""
    images = [image.clone() for image in packed.storages]
    values = wire.unpack(packed.tree, [image.untyped_storage() for image in images])
    return values[0], values[1] if len(values) > 1 else None, images


def _gradient(out: torch.Tensor, generator: torch.Generator, kind: str) -> torch.Tensor:
    if kind == "expanded":
        return torch.full((), 0.5, dtype=out.dtype).expand(out.shape)
    return torch.randn(out.shape, generator=generator).to(out.dtype)


def encode(value: object, tensors: list) -> dict:
    """The structure of a result, as candidate_result.Result gives it."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"leaf": len(tensors) - 1}
    if isinstance(value, list):
        return {"list": [encode(item, tensors) for item in value]}
    if isinstance(value, tuple):
        return {"tuple": [encode(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[str(k), encode(v, tensors)] for k, v in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    return {"bad": f"a {type(value).__name__}"}


def _answer(native: tuple, precise: tuple | None, arguments, inputs_after) -> Answer:
    tensors: list[torch.Tensor] = []
    tree = encode(native[0], tensors)
    wide = wire.tensors_of(precise[0]) if precise else [None] * len(tensors)
    leaves, gradients = [], []
    for tensor, better in zip(tensors, wide, strict=True):
        useful = better is not None and tensor.is_floating_point()
        leaves.append(Expected(tensor.detach(), better.detach() if useful else None))
    better_grads = precise[1] if precise else (None,) * len(native[1])
    for gradient, better in zip(native[1], better_grads, strict=True):
        gradients.append(None if gradient is None else Expected(gradient, better))
    given = [t.untyped_storage().data_ptr() for t in wire.tensors_of(arguments) if t.numel()]
    storages = [t.untyped_storage().data_ptr() for t in tensors]
    return Answer(
        tree=tree,
        leaves=tuple(leaves),
        strides=tuple(t.stride() for t in tensors),
        needs_grad=tuple(t.requires_grad for t in tensors),
        aliases=tuple((s in given, storages.count(s) > 1) for s in storages),
        gradients=tuple(gradients),
        inputs_after=inputs_after,
    )


def _doubled(model: torch.nn.Module) -> torch.nn.Module | None:
    try:
        return copy.deepcopy(model).double()
    except Exception:
        return None


def _restore(model: torch.nn.Module, initial: dict[str, torch.Tensor]) -> None:
    """Undo what an earlier call did to running statistics."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if isinstance(value, torch.Tensor):
                value.copy_(initial[name])


def _widened(values):
    if isinstance(values, torch.Tensor):
        return values.double() if values.dtype in FLOATS else values
    if isinstance(values, list | tuple):
        return type(values)(_widened(v) for v in values)
    if isinstance(values, dict):
        return {k: _widened(v) for k, v in values.items()}
    return values


def _broken(reference: Reference, case: Case, what: str, error: Exception) -> Failed:
    return Failed(
        Outcome.REFERENCE_FAILED,
        "reference",
        f"{reference.op}/{case.label}: the reference's {what} stops with "
        f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
    )
