"""The checked mode's Python side: what kernels moved by source line, outputs nobody wrote.

A solution built with mode "checked" tells the runtime of every load and store of its kernels; what
it finds comes with `harness.simt.findings()` and as `Fault`. Call `traffic()` before `findings()`:
both take away what there is.
"""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass

from . import runtime_library
from .outcomes import Finding


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
    """All launches of one kernel; bytes of global memory as its accesses ask for them."""

    kernel: str
    launches: int
    blocks: int
    sampled_blocks: int
    threads: int  # per block, of the last launch
    bytes_read: int
    bytes_written: int
    distinct_bytes_read: int  # each byte once a launch
    distinct_bytes_written: int
    lines: tuple[LineTraffic, ...] = ()


def traffic() -> list[KernelTraffic]:
    """What the checked kernels of this process moved since the last call."""
    library = runtime_library.library()
    library.simt_take_traffic.restype = library.simt_take_kernels.restype = ctypes.c_char_p
    raw = runtime_library._locate(json.loads(library.simt_take_traffic()))
    kernels = json.loads(library.simt_take_kernels())
    return [KernelTraffic(**k, lines=_lines(k["kernel"], raw)) for k in kernels]


_SUMMED = ("warps", "lanes", "bytes", "sectors", "least", "passes", "conflicts")


def _lines(kernel: str, raw: list[dict]) -> tuple[LineTraffic, ...]:
    """The places of one kernel, added up by line, kind and width."""
    merged: dict[tuple, dict[str, int]] = {}
    for item in raw:
        if item["kernel"] != kernel or not item["line"]:
            continue
        sums = merged.setdefault((item["file"], item["line"], _what(item), item["width"]), {})
        for name in _SUMMED:
            sums[name] = sums.get(name, 0) + item[name]
    return tuple(
        LineTraffic(
            *(kernel, file, line, what, width),
            *(sums["warps"], sums["lanes"], sums["bytes"], sums["sectors"], sums["least"]),
            *(sums["passes"], sums["passes"] - sums["conflicts"]),
        )
        for (file, line, what, width), sums in sorted(merged.items())
    )


def _what(item: dict) -> str:
    kind = "atomic" if item["atomic"] else "store" if item["write"] else "load"
    return f"shared {kind}" if item["shared"] else kind


def unwritten_outputs(value) -> list[Finding]:
    """Findings about tensors in `value` (any nesting of list, tuple, dict) with fresh memory left.

    Works for tensors made by torch after `install()` in checked mode; others cannot be told.
    """
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
    import torch

    if tensor.layout != torch.strided or not tensor.numel() or not tensor.is_contiguous():
        return 0, 0
    function = runtime_library.library().simt_access_unwritten
    function.restype = ctypes.c_longlong
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_longlong)]
    first = ctypes.c_longlong()
    bytes_ = tensor.numel() * tensor.element_size()
    count = function(tensor.data_ptr(), bytes_, ctypes.byref(first))
    return (count, first.value) if count > 0 else (0, 0)
