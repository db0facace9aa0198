"""One call of the model, forward or backward, and its result."""

from __future__ import annotations

import torch

from harness import wire
from harness.candidate_memory import Inputs
from harness.candidate_result import Result


class Call:
    """`inputs.values` is [arguments] or, for a backward case, [arguments, output gradients].

    message["requires"]: indices (among all tensors of the arguments) that need a gradient.
    """

    def __init__(self, model, inputs: Inputs, message: dict):
        self.model, self.inputs = model, inputs
        self.seed = message.get("seed")
        self.backward = bool(message.get("backward"))
        self.result: Result | None = None
        self.gradients: list[torch.Tensor | None] = []
        self._restore = _buffers(model)
        self._initial = _initial_buffers(model, self._restore)
        self.arguments = list(inputs.values[0])
        self.wanted: list[torch.Tensor] = []
        tensors = wire.tensors_of(self.arguments)
        for index in message.get("requires", []):
            tensor = tensors[index].detach()
            _replace(self.arguments, tensors[index], tensor.requires_grad_(True))
            self.wanted.append(tensor)

    def run(self) -> None:
        """The whole call: forward, and backward in a backward case."""
        self.reset()
        if not self.backward:
            self.result = Result(self.forward())
            return
        value = self.forward()
        self.result = Result(value)
        self.gradients = list(self.back(value))

    def forward(self):
        """What the model returns; no gradient is recorded unless the case is a backward one."""
        with torch.set_grad_enabled(self.backward):
            return self.model(*self.arguments)

    def back(self, value) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the wanted inputs and then of the parameters that have one.

        Once for each forward: the graph is not kept, and torch.compile may reuse its buffers.
        """
        outputs, given = [], []
        for tensor, gradient in zip(wire.tensors_of(value), self.inputs.values[1], strict=False):
            if gradient is not None and tensor.requires_grad:
                outputs.append(tensor)
                given.append(gradient)
        if not outputs:
            return (None,) * len(self.wanted)
        return torch.autograd.grad(
            outputs, self.wanted + self.parameters(), given, allow_unused=True
        )

    def parameters(self) -> list[torch.Tensor]:
        return [p for p in getattr(self.model, "parameters", list)() if p.requires_grad]

    def gradients_at(self, outbox: torch.Tensor, leaves: list[dict]) -> list[dict | None]:
        """Write the gradients behind the outputs; None where there is none."""
        ends = [leaf["at"] + _nbytes(leaf) for leaf in leaves if leaf["at"] is not None]
        at = wire.aligned(max(ends, default=0))
        found: list[dict | None] = []
        for gradient in self.gradients:
            if gradient is None:
                found.append(None)
                continue
            (leaf,) = Result(gradient).write(outbox, at) or [None]
            found.append(leaf)
            at += wire.aligned(gradient.numel() * gradient.element_size())
        return found

    def reset(self) -> None:
        """Same random numbers and same running statistics for every call."""
        if self.seed is not None:
            torch.manual_seed(self.seed)
        with torch.no_grad():
            for buffer, initial in zip(self._restore, self._initial, strict=True):
                buffer.copy_(initial)


def _nbytes(leaf: dict) -> int:
    count = wire.DTYPES[leaf["dtype"]].itemsize
    for size in leaf["shape"]:
        count *= size
    return count


def _buffers(model) -> list[torch.Tensor]:
    """Registered buffers, such as running statistics."""
    if not isinstance(model, torch.nn.Module):
        return []
    return [b for b in model.buffers() if b is not None]


def _initial_buffers(model, buffers: list[torch.Tensor]) -> list[torch.Tensor]:
    """Their first contents, taken once per model and kept on it."""
    kept = model.__dict__.get("_steelyard_buffers") if buffers else []
    if kept is None or len(kept) != len(buffers):
        kept = [b.detach().clone() for b in buffers]
        model.__dict__["_steelyard_buffers"] = kept
    return kept


def _replace(items: list, old: torch.Tensor, new: torch.Tensor) -> None:
    for index, item in enumerate(items):
        if item is old:
            items[index] = new
        elif isinstance(item, list):
            _replace(item, old, new)
