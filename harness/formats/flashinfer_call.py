"""How a Solution or a reference is called and what counts as its result. Both sides import this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Output:
    """One output; shape: names of axes or sizes as digits, None for a Python number."""

    name: str
    shape: tuple[str, ...] | None
    dtype: str

    def empty(self, sizes: dict[str, int], device: torch.device) -> torch.Tensor:
        """Uninitialised memory for it; a number gets a tensor without dimensions."""
        shape = [sizes[axis] if axis in sizes else int(axis) for axis in self.shape or ()]
        return torch.empty(shape, dtype=getattr(torch, self.dtype), device=device)

    def tensor(self, value: object, device: torch.device) -> object:
        """A Python number as a tensor of the output's type; anything else as it is."""
        if isinstance(value, bool | int | float):
            return torch.tensor(value, dtype=getattr(torch, self.dtype), device=device)
        return value


def results(value: object, outputs: tuple[Output, ...], device: torch.device) -> object:
    """One tensor, or as many as there are outputs, in their order.

    value: a tensor or number, a tuple or list of them, or a dict by the outputs' names. What
    fits none of these is handed on as it is, for the judge to name.
    """
    names = [output.name for output in outputs]
    if isinstance(value, dict) and set(names) <= value.keys():
        value = tuple(value[name] for name in names)
    elif not isinstance(value, tuple | list):
        value = (value,)
    if len(value) != len(outputs):
        return tuple(value)
    found = tuple(out.tensor(v, device) for out, v in zip(outputs, value, strict=True))
    return found[0] if len(found) == 1 else found


def adapted(function: Callable, outputs: tuple[Output, ...], into: bool) -> type[torch.nn.Module]:
    """The class that is judged: built with the sizes of all axes, called with the inputs.

    into: the function writes into outputs that it gets after the inputs, and returns nothing.
    """

    class ModelNew(torch.nn.Module):
        def __init__(self, sizes: dict[str, int]):
            super().__init__()
            self.sizes = sizes

        def forward(self, *inputs):
            device = device_of(inputs)
            if not into:
                return results(function(*inputs), outputs, device)
            made = tuple(output.empty(self.sizes, device) for output in outputs)
            function(*inputs, *made)
            return made[0] if len(made) == 1 else made

    return ModelNew


def device_of(inputs: tuple) -> torch.device:
    """Of the first tensor; without one, the CUDA device of this process or the CPU."""
    for value in inputs:
        if isinstance(value, torch.Tensor):
            return value.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
