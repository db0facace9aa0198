"""The checked mode's Python side: guarded tensor memory, outputs nobody wrote, traffic by line.

A solution built with mode "checked" tells the runtime of every load and store of its kernels; what
it finds comes with `harness.simt.findings()` and as `Fault`. Here is what tensors have to do with it.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import compiler, runtime_library
from .outcomes import Finding

ALLOCATOR = Path(__file__).resolve().parent / "allocator" / "allocator.cpp"
_STORE, _SHARED, _ATOMIC = 1, 2, 4


@dataclass(frozen=True)
class LineTraffic:
    """One kind of access of one line of one kernel, in the blocks that were looked at.

    Counts are of warp accesses: up to 32 lanes doing the same access. `sectors` are the 32-byte
    pieces of global memory they touch, `passes` the rounds shared memory needs; `least_*` is what
    the same bytes need at best.
    """

    kernel: str
    file: str
    line: int
    what: str  # load | store | atomic | shared load | shared store | shared atomic
    bytes_per_lane: int
    warp_accesses: int
    lanes: int
    bytes: int
    sectors: int
    least_sectors: int
    passes: int
    least_passes: int

    @property
    def lanes_per_access(self) -> float:
        return self.lanes / max(self.warp_accesses, 1)

    @property
    def excess(self) -> float:
        """How many times more sectors or passes than needed; 1.0 is best."""
        used, least = self.sectors + self.passes, self.least_sectors + self.least_passes
        return used / least if least else 1.0


@dataclass(frozen=True)
class KernelTraffic:
    """All launches of one kernel since the last call; bytes as asked for by global accesses."""

    kernel: str
    launches: int
    blocks: int
    sampled_blocks: int
    threads: int  # per block, of the last launch
    bytes_read: int
    bytes_written: int
    distinct_bytes_read: int  # each byte once a launch
    distinct_bytes_written: int
    lines: tuple[LineTraffic, ...]


@functools.cache
def _allocator() -> ctypes.CDLL:
    """The library that gives CPU tensors guarded memory; compiled once per cache folder."""
    import torch

    ctypes.CDLL(str(compiler.runtime_library()), mode=ctypes.RTLD_GLOBAL)
    path = compiler.folder() / "allocator.so"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        root = Path(torch.__file__).parent
        include, lib = f"-I{root / 'include'}", f"-L{root / 'lib'}"
        flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-w"]
        command = [compiler.host_compiler(), *flags, include, str(ALLOCATOR), lib, "-lc10"]
        done = subprocess.run([*command, "-o", str(part)], capture_output=True, text=True)
        if done.returncode:
            raise compiler.BuildFailed(done.stderr[-2000:])
        part.rename(path)
    return ctypes.CDLL(str(path))


@functools.cache
def _runtime() -> ctypes.CDLL:
    library = runtime_library.library()
    library.simt_take_traffic.restype = ctypes.c_char_p
    library.simt_access_unwritten.restype = ctypes.c_longlong
    return library


def guard_tensors(on: bool = True) -> None:
    """From now on tensors get memory with guard space around it, filled with a pattern of NaNs.

    Only such tensors have bounds; memory from elsewhere (an arena of the harness) is checked for
    races alone. Call it before the inputs are made.
    """
    _allocator().simt_allocator_use(int(on))


def unwritten_outputs(value) -> list[Finding]:
    """Findings about tensors in `value` (any nesting of list, tuple, dict) with fresh memory left."""
    found = []
    for index, tensor in enumerate(_tensors(value)):
        count, first = _unwritten(tensor)
        if count > 0:
            size = tensor.element_size()
            message = (
                f"output {index} of shape {tuple(tensor.shape)}: {-(-count // size)} of "
                f"{tensor.numel()} elements were never written, the first is {first // size}"
            )
            found.append(Finding("output never written", "error", message))
    return found


def _tensors(value):
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _unwritten(tensor) -> tuple[int, int]:
    """Bytes never written and the offset of the first; (0, 0) where that cannot be told."""
    if tensor.layout != _strided() or not tensor.numel() or not tensor.is_contiguous():
        return 0, 0
    first = ctypes.c_longlong()
    bytes_ = ctypes.c_size_t(tensor.numel() * tensor.element_size())
    address = ctypes.c_void_p(tensor.data_ptr())
    count = _runtime().simt_access_unwritten(address, bytes_, ctypes.byref(first))
    return (count, first.value) if count > 0 else (0, 0)


def _strided():
    import torch

    return torch.strided


def traffic() -> list[KernelTraffic]:
    """What the kernels of this process moved since the last call."""
    kernels = json.loads(_runtime().simt_take_traffic())
    runtime_library._locate([line for kernel in kernels for line in kernel["lines"]])
    return [_kernel_traffic(kernel) for kernel in kernels]


def _what(flags: int) -> str:
    kind = "atomic" if flags & _ATOMIC else "store" if flags & _STORE else "load"
    return f"shared {kind}" if flags & _SHARED else kind


def _kernel_traffic(raw: dict) -> KernelTraffic:
    merged: dict[tuple, dict[str, int]] = {}
    for item in raw["lines"]:
        key = (item["file"], item["line"], _what(item["flags"]), item["width"])
        sums = merged.setdefault(key, {})
        for name in ["warp_accesses", "lanes", "bytes", "sectors", "least_sectors", "passes", "least_passes"]:
            sums[name] = sums.get(name, 0) + item[name]
    lines = [
        LineTraffic(raw["kernel"], file, line, what, width, **sums)
        for (file, line, what, width), sums in sorted(merged.items())
        if line
    ]
    names = ["kernel", "launches", "blocks", "sampled_blocks", "threads", "bytes_read", "bytes_written", "distinct_bytes_read", "distinct_bytes_written"]
    return KernelTraffic(**{name: raw[name] for name in names}, lines=tuple(lines))
