"""Load a solution, a peer or the reference; build the model; say what its parameters are."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import linecache
import sys
import traceback
from pathlib import Path

import torch

from harness import unpacked, wire
from harness.records import to_dict

MODULE = "steelyard_solution"


def load(path: str, role: str, entry: str = "ModelNew", beside: str = "") -> type:
    """The class to be judged or timed. Whatever the file raises comes through.

    entry: the class's name, or that of a function of one argument. beside: a folder whose modules
    the solution may import.
    """
    if beside:
        sys.path.insert(0, beside)
    if role == "baseline":
        from harness import problem

        return problem.load(path).Model
    spec = importlib.util.spec_from_file_location(MODULE, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    sys.argv = [path]
    spec.loader.exec_module(module)
    if entry != "ModelNew":
        return _of_function(module, entry)
    model = getattr(module, "ModelNew", None)
    if not inspect.isclass(model):
        raise AttributeError(f"{Path(path).name} defines no class ModelNew")
    return model


def _of_function(module, name: str) -> type:
    """A module without parameters whose forward is the solution's function."""
    function = getattr(module, name, None)
    if not callable(function):
        raise AttributeError(f"{Path(module.__file__).name} defines no function {name}")

    class Function(torch.nn.Module):
        def forward(self, data):
            return function(data)

    return Function


def prepare(role: str, device: str) -> None:
    """Stand in for torch's load_inline, so that a solution finds what was built before."""
    if role != "solution":
        return
    from harness import inline

    if device.startswith("cuda"):
        inline.install("cuda", device)
        return
    try:
        inline.install("cpu")
    except ImportError as error:  # a solution in plain PyTorch runs without it
        _refuse_to_build(error)


def _refuse_to_build(why: ImportError) -> None:
    import torch.utils.cpp_extension as extension

    def refuse(*args, **kwargs):
        raise Unavailable(f"the CPU execution of kernels cannot be loaded: {why}")

    extension.load_inline = extension.load = refuse


class Unavailable(RuntimeError):
    """Something of the machine or of this project is missing: not the solution's fault."""


def build(model: type, init: list, seed: int, device: str) -> torch.nn.Module:
    """An instance on the device, in training mode as PyTorch leaves it, under a known seed."""
    torch.manual_seed(seed)
    made = model(*init)
    if not isinstance(made, torch.nn.Module):
        raise TypeError(f"{model.__name__} is no torch.nn.Module")
    return made.to(device)


def state(model: torch.nn.Module) -> list[dict]:
    """Name, shape, dtype and a digest of each parameter and persistent buffer."""
    found = []
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            found.append(
                {
                    "name": name,
                    "shape": list(tensor.shape),
                    "dtype": wire.DTYPE_NAMES.get(tensor.dtype, str(tensor.dtype)),
                    "digest": digest(tensor),
                }
            )
    return found


def digest(tensor: torch.Tensor) -> str:
    data = wire.raw_bytes(tensor.detach().cpu().contiguous())
    return hashlib.blake2b(data.numpy().tobytes(), digest_size=16).hexdigest()


def assign(model: torch.nn.Module, values: dict[str, torch.Tensor]) -> None:
    """Overwrite named parameters and buffers in place."""
    own = model.state_dict()
    with torch.no_grad():
        for name, value in values.items():
            own[name].copy_(value)


def describe(error: BaseException, path: str) -> dict:
    """What went wrong, as data: kind, type, message, and the lines of the solution's own file."""
    failed = getattr(error, "failed", None)
    message = str(error) or type(error).__name__
    return {
        "kind": kind_of(error),
        "type": type(error).__name__,
        "message": message[:4000],
        "where": _where(error, path),
        "trace": [line[:400] for line in _trace(error)],
        "failure": to_dict(failed.failure) if failed is not None else None,
        "construct": str(getattr(error, "construct", "")),
        "line": int(getattr(error, "line", 0) or 0),
    }


def kind_of(error: BaseException) -> str:
    """oom, cuda, needs_gpu, fault, build, exit or exception."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    if names & {"OutOfMemoryError", "MemoryError"} or "can't allocate memory" in text:
        return "oom"
    for name, kind in (
        ("NeedsGPU", "needs_gpu"),
        ("Fault", "fault"),
        ("BuildFailed", "build"),
        ("BuildError", "build"),
        ("SystemExit", "exit"),
        ("Unavailable", "environment"),
    ):
        if name in names:
            return kind
    if "CUDA error: out of memory" in text:
        return "oom"
    if "AcceleratorError" in names or "CUDA error" in text or "cudaError" in text:
        return "cuda"
    return "exception"


def _where(error: BaseException, path: str) -> str:
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if unpacked.is_own(f.filename, path)
    ]
    if isinstance(error, SyntaxError) and unpacked.is_own(error.filename or "", path):
        return f"{Path(error.filename).name}:{error.lineno}"
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _trace(error: BaseException) -> list[str]:
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        if unpacked.is_own(frame.filename, path_of_module()):
            source = linecache.getline(frame.filename, frame.lineno).strip()
            lines.append(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {source}")
    return lines[-8:]


def path_of_module() -> str:
    module = sys.modules.get(MODULE)
    return getattr(module, "__file__", "") or ""
