"""install(): in this process "cuda" means CPU tensors, so that unchanged Python code runs."""

from __future__ import annotations

import contextlib
import types

from . import runtime_library
from .load import know_all, load, load_inline, mode, raise_fault
from .outcomes import NeedsGPU

_installed = False


def _is_cuda(device) -> bool:
    import torch

    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.split(":")[0] == "cuda"


def _mapped(value):
    return "cpu" if _is_cuda(value) else value


def _device_mode():
    import torch
    from torch.overrides import TorchFunctionMode

    checked = mode() == "checked"

    class CudaIsCpu(TorchFunctionMode):
        """Every torch function sees the CPU where the caller said cuda."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if func is torch.Tensor.cuda:
                return args[0]
            if "device" in kwargs:
                device = kwargs["device"]
                is_index = isinstance(device, int) and not isinstance(device, bool)
                kwargs["device"] = "cpu" if is_index else _mapped(device)
            kwargs.pop("pin_memory", None)
            args = tuple(_mapped(a) if isinstance(a, str | torch.device) else a for a in args)
            if checked and isinstance(func, torch._ops.OpOverloadPacket | torch._ops.OpOverload):
                know_all(args)
            try:
                return func(*args, **kwargs)
            except RuntimeError as error:
                raise_fault(error)
                raise

    return CudaIsCpu()


class Stream:
    """The one stream; everything on it is done when the call returns."""

    cuda_stream = 0
    device_index = 0
    stream_id = 0

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def synchronize(self):
        pass

    def query(self):
        return True

    def wait_stream(self, _):
        pass

    def wait_event(self, _):
        pass

    def record_event(self, event=None):
        return event or Event()


class Event:
    """Has always happened; measures nothing."""

    def __init__(self, *_, **__):
        pass

    def record(self, stream=None):
        pass

    def wait(self, stream=None):
        pass

    def synchronize(self):
        pass

    def query(self):
        return True

    def elapsed_time(self, _):
        return 0.0


def _needs_gpu(construct: str):
    def refuse(*_, **__):
        raise NeedsGPU(construct)

    return refuse


def _properties(*_):
    """What the modelled sm_90 device says of itself."""
    return types.SimpleNamespace(
        name="CPU (simt)",
        major=9,
        minor=0,
        multi_processor_count=132,
        total_memory=8 << 30,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        regs_per_multiprocessor=65536,
        L2_cache_size=50 << 20,
        is_integrated=0,
        gcnArchName="",
    )


def _nothing(*_, **__):
    return None


_WITHOUT_EFFECT = (
    "synchronize",
    "empty_cache",
    "set_device",
    "set_stream",
    "init",
    "ipc_collect",
    "manual_seed",
    "manual_seed_all",
    "reset_peak_memory_stats",
)


def _cuda_functions() -> dict[str, object]:
    functions = dict.fromkeys(_WITHOUT_EFFECT, _nothing)
    graph = _needs_gpu("CUDA graph")
    return functions | {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "current_stream": lambda *_: Stream(),
        "default_stream": lambda *_: Stream(),
        "stream": lambda *_: contextlib.nullcontext(),
        "device": lambda *_: contextlib.nullcontext(),
        "device_of": lambda *_: contextlib.nullcontext(),
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": _properties,
        "get_device_name": lambda *_: "CPU (simt)",
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "CUDAGraph": graph,
        "graph": graph,
    }


def _tensor_is_cuda(tensor) -> bool:
    return tensor.device.type == "cpu"


def install() -> None:
    """From now on, and once only: load_inline builds for the CPU, and the CPU answers to "cuda"."""
    global _installed
    if _installed:
        return
    _installed = True
    import torch

    # First of all: importing cpp_extension warns where there is no device.
    for name, value in _cuda_functions().items():
        setattr(torch.cuda, name, value)
    import torch.utils.cpp_extension as extension

    extension.load_inline = load_inline
    extension.load = load
    extension.CUDA_HOME = extension.CUDA_HOME or "/usr/local/cuda"
    torch.Tensor.is_cuda = property(_tensor_is_cuda)
    torch.nn.Module.cuda = lambda module, *_, **__: module
    torch.version.cuda = torch.version.cuda or "13.0"
    if mode() == "checked":
        _watch_memory()
    _device_mode().__enter__()


def _watch_memory() -> None:
    """Bounds of tensors: torch's own by its allocator, others when their pointer is asked for."""
    import torch

    runtime_library.track_torch()
    plain = torch.Tensor.data_ptr

    def data_ptr(tensor):
        runtime_library.know(tensor)
        return plain(tensor)

    torch.Tensor.data_ptr = data_ptr
