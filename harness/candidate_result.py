"""What a call returned, as plain data plus bytes in the outbox."""

from __future__ import annotations

import torch

from harness import wire
from harness.candidate_memory import Inputs, extent

TYPES = (torch.Tensor, torch.nn.Parameter)
# Taken before any solution could replace them on the class.
_storage = torch.Tensor.untyped_storage
_contiguous = torch.Tensor.contiguous


class Result:
    """The tensors of one result, held, and their description."""

    def __init__(self, value: object):
        self.tensors: list[torch.Tensor] = []
        self.tree = self._encode(value, 0)

    def _encode(self, value: object, depth: int) -> dict:
        if depth > 16:
            return {"bad": "nested more than 16 deep"}
        if isinstance(value, torch.Tensor):
            why = unusable(value)
            if why:
                return {"bad": why}
            self.tensors.append(value)
            return {"leaf": len(self.tensors) - 1}
        if type(value) in (list, tuple) or hasattr(value, "_fields"):
            kind = "list" if type(value) is list else "tuple"
            return {kind: [self._encode(item, depth + 1) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[str(k), self._encode(v, depth + 1)] for k, v in value.items()]}
        if value is None or type(value) in (bool, int, float, str):
            return {"value": value}
        return {"bad": f"a {type(value).__name__}"}

    def write(self, outbox: torch.Tensor, at: int = 0) -> list[dict]:
        """Copy every tensor's elements, contiguous, into the outbox from byte `at` on."""
        leaves = []
        for tensor in self.tensors:
            nbytes = tensor.numel() * tensor.element_size()
            fits = at + nbytes <= outbox.numel()
            if fits and nbytes:
                with torch.no_grad():
                    data = wire.raw_bytes(_contiguous(tensor.detach().resolve_conj()))
                    outbox[at : at + nbytes].copy_(data, non_blocking=True)
            leaves.append(
                {
                    "dtype": wire.DTYPE_NAMES.get(tensor.dtype, str(tensor.dtype)),
                    "shape": list(tensor.shape),
                    "stride": list(tensor.stride()),
                    "at": at if fits else None,
                }
            )
            at += wire.aligned(nbytes) if fits else 0
        return leaves

    def facts(self, inputs: Inputs, earlier: Result | None) -> list[dict]:
        """Per tensor: where it is, whose memory it shares."""
        held = [extent(t) for t in earlier.tensors] if earlier else []
        found = []
        for index, tensor in enumerate(self.tensors):
            mine = extent(tensor)
            twins = [i for i, t in enumerate(self.tensors[:index]) if overlap(mine, extent(t))]
            found.append(
                {
                    "device": tensor.device.type,
                    "requires_grad": tensor.requires_grad,
                    "inputs": inputs.owner(tensor),
                    "outputs": twins,
                    "earlier": [i for i, other in enumerate(held) if overlap(mine, other)],
                }
            )
        return found


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[1] > 0 and b[1] > 0 and a[0] < b[0] + b[1] and b[0] < a[0] + a[1]


def unusable(value: torch.Tensor) -> str:
    """Why a tensor is no plain tensor with memory of its own; "" for one that is."""
    if type(value) not in TYPES:
        return f"a {type(value).__name__} (a Tensor subclass); want exactly torch.Tensor"
    if value.layout is not torch.strided:
        return f"a tensor of layout {value.layout}; want a strided one"
    if value.device.type not in ("cpu", "cuda"):
        return f"a tensor on {value.device.type}; want one with memory"
    if vars(value) and any(callable(v) for v in vars(value).values()):
        return "a tensor with replaced methods; want a plain torch.Tensor"
    if wire.span(value) > _storage(value).nbytes():
        return "a tensor that reaches past the end of its storage"
    return ""
