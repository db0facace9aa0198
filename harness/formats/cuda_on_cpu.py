"""Problems that name the device "cuda" outright, run in the judge of a machine without one."""

from __future__ import annotations

import contextlib

import torch
from torch.overrides import TorchFunctionMode


def on_this_machine():
    """A context in which "cuda" is the CPU; without effect where there is a GPU."""
    return contextlib.nullcontext() if torch.cuda.is_available() else _cuda_is_cpu()


@contextlib.contextmanager
def _cuda_is_cpu():
    plain = torch.Generator
    torch.Generator = lambda device="cpu": plain("cpu")
    try:
        with _Mapped():
            yield
    finally:
        torch.Generator = plain


class _Mapped(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if "device" in kwargs:
            kwargs["device"] = _mapped(kwargs["device"])
        return func(*(_mapped(value) for value in args), **kwargs)


def _mapped(value):
    if isinstance(value, str | torch.device) and str(value).split(":")[0] == "cuda":
        return "cpu"
    return value
