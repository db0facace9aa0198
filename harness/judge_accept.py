"""A problem's own check of a result, run in the judge on copies."""

from __future__ import annotations

import torch

from harness import wire
from harness.problem import Reference
from harness.records import Case


def refusal(
    reference: Reference, case: Case, packed: wire.Packed, tree: dict, tensors: list[torch.Tensor]
) -> str:
    """Why the problem's own check does not accept the result; "" when it does.

    tree, tensors: the structure of the result, already found to be the expected one.
    """
    storages = [image.clone().untyped_storage() for image in packed.storages]
    arguments = wire.unpack(packed.tree, storages)[0]
    good, why = reference.accepts(case, arguments, _built(tree, tensors))
    return "" if good else f"the problem's own check refuses the result: {why.strip()[:300]}"


def _built(tree: dict, tensors: list[torch.Tensor]):
    ((kind, body),) = tree.items()
    if kind == "leaf":
        return tensors[body]
    if kind == "list":
        return [_built(item, tensors) for item in body]
    if kind == "tuple":
        return tuple(_built(item, tensors) for item in body)
    if kind == "dict":
        return {key: _built(item, tensors) for key, item in body}
    return body
