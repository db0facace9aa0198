"""Inputs that a solution cannot know beforehand: fresh seeds, several families of values."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

from harness import wire
from harness.problem import Reference
from harness.records import Case, Failed, Outcome

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Family:
    """A kind of values: `sizes` go to get_inputs, `change` maps each float tensor's elements."""

    name: str
    sizes: tuple[tuple[str, object], ...] = ()
    change: Callable[[torch.Tensor], torch.Tensor] | None = None


NORMAL = Family("normal")
SPECIALS = (float("nan"), float("inf"), float("-inf"), -0.0, 1e-40, 65504.0)


def seed_for(base: int, *words: object) -> int:
    """A seed of its own for each case, trial and family, derived from the run's secret one."""
    return random.Random(f"{base}/{'/'.join(map(str, words))}").getrandbits(62)


def draw(reference: Reference, case: Case, seed: int, family: Family = NORMAL) -> list:
    """Inputs of a case on the CPU. Raises Failed(REFERENCE_FAILED) when get_inputs does."""
    seed_everything(seed)
    sized = Case(case.name, {**case.sizes, **dict(family.sizes)}, case.backward)
    try:
        values = reference.inputs(sized)
    except Failed:
        raise
    except Exception as error:
        raise Failed(
            Outcome.REFERENCE_FAILED,
            "inputs",
            f"{reference.op}/{case.label}: get_inputs stops with {type(error).__name__}: {error}",
        ) from error
    if family.change is None:
        return values
    return changed(values, family.change)


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed & 0xFFFFFFFF)


def changed(values: list, change: Callable[[torch.Tensor], torch.Tensor]) -> list:
    """The same layout with every float tensor's elements mapped; integers stay what they are."""
    packed = wire.pack(values)
    images = [image.clone() for image in packed.storages]
    copy = wire.unpack(packed.tree, [image.untyped_storage() for image in images])
    for tensor in wire.tensors_of(copy):
        if tensor.dtype in FLOATS and tensor.numel() and 0 not in tensor.stride():
            tensor.copy_(change(tensor.clone()))
    return copy


def families(reference: Reference) -> tuple[Family, ...]:
    """Beside the normal one: what the reference declares in FAMILIES, else the generic ones.

    FAMILIES = {"name": dict(get_inputs arguments) or a function of one float tensor}. The generic
    ones keep zeros, order or sign, so that structure (triangles, sortedness) mostly survives; the
    judge leaves out those that the reference itself cannot take.
    """
    declared = getattr(reference.module, "FAMILIES", None)
    if declared is not None:
        return tuple(
            Family(name, change=kind) if callable(kind) else Family(name, tuple(kind.items()))
            for name, kind in declared.items()
        )
    exact = reference.tolerance.rtol == 0 == reference.tolerance.atol
    return (*GENERIC, SPECIAL) if exact else GENERIC


def _mirrored(tensor: torch.Tensor) -> torch.Tensor:
    return -tensor


def _scaled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 8


def _tied(tensor: torch.Tensor) -> torch.Tensor:
    """Few distinct values: many ties, constant stretches."""
    return (tensor * 2).round() / 2


def _special(tensor: torch.Tensor) -> torch.Tensor:
    """NaN, infinities, negative zero, a denormal and fp16's largest number here and there."""
    values = torch.tensor(SPECIALS, dtype=tensor.dtype)
    where = torch.rand(tensor.shape) < 0.05
    return torch.where(where, values[torch.randint(len(values), tensor.shape)], tensor)


GENERIC = (
    Family("mirrored", change=_mirrored),
    Family("scaled", change=_scaled),
    Family("ties", change=_tied),
)
SPECIAL = Family("special values", change=_special)
