"""The CUDA runtime that torch has already loaded, called through ctypes.

Nothing a solution assigns to torch or to Python's modules can replace these functions.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

L2_BYTES = 38  # cudaDevAttrL2CacheSize
KERNEL, COPY, FILL = 0, 1, 2  # cudaGraphNodeType


def loaded_library(name: str) -> str | None:
    """Path of a shared library of this process whose file name starts with `name`."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split(maxsplit=5)[-1]
        if re.match(rf"{name}\.so", path.rsplit("/", 1)[-1]):
            return path
    return None


class Runtime:
    """Events, device-wide wait and attributes of the current device.

    A CUDA error raises RuntimeError("CUDA error: ..."), as torch does.
    """

    def __init__(self):
        path = loaded_library("libcudart")
        if path is None:
            raise RuntimeError("CUDA error: torch has loaded no libcudart in this process")
        library = ctypes.CDLL(path)
        handle, text = ctypes.c_void_p, ctypes.c_char_p
        self._synchronize = _function(library, "cudaDeviceSynchronize")
        self._reset = _function(library, "cudaCtxResetPersistingL2Cache")
        self._create = _function(library, "cudaEventCreateWithFlags", handle, ctypes.c_uint)
        self._record = _function(library, "cudaEventRecord", handle, handle)
        self._query = _function(library, "cudaEventQuery", handle)
        self._elapsed = _function(library, "cudaEventElapsedTime", handle, handle, handle)
        self._attribute = _function(
            library, "cudaDeviceGetAttribute", handle, ctypes.c_int, ctypes.c_int
        )
        self._nodes = _function(library, "cudaGraphGetNodes", handle, handle, handle)
        self._kind = _function(library, "cudaGraphNodeGetType", handle, handle)
        self._clear = _function(library, "cudaGetLastError")
        self._text = _function(library, "cudaGetErrorString", ctypes.c_int, result=text)

    def synchronize(self) -> None:
        """Wait until every stream of the device is idle."""
        self._check(self._synchronize())

    def reset_persisting(self) -> None:
        """Turn persisting L2 lines into normal ones; no effect where a device has none."""
        if self._reset() != 0:
            self._clear()

    def event(self) -> ctypes.c_void_p:
        """A timing event."""
        event = ctypes.c_void_p()
        self._check(self._create(ctypes.byref(event), 0))
        return event

    def record(self, event, stream: int) -> None:
        self._check(self._record(event, stream))

    def done(self, event) -> bool:
        """Whether the device has passed the event."""
        code = self._query(event)
        if code == 600:  # cudaErrorNotReady
            return False
        self._check(code)
        return True

    def elapsed_us(self, start, end) -> float:
        """Device time between two passed events."""
        value = ctypes.c_float()
        self._check(self._elapsed(ctypes.byref(value), start, end))
        return value.value * 1e3

    def attribute(self, which: int, device: int) -> int:
        value = ctypes.c_int()
        self._check(self._attribute(ctypes.byref(value), which, device))
        return value.value

    def node_kinds(self, graph: int) -> list[int]:
        """The cudaGraphNodeType of every node of a cudaGraph_t: KERNEL, COPY, FILL, ..."""
        count = ctypes.c_size_t()
        self._check(self._nodes(graph, None, ctypes.byref(count)))
        nodes = (ctypes.c_void_p * count.value)()
        if count.value:
            self._check(self._nodes(graph, nodes, ctypes.byref(count)))
        return [self._node_kind(node) for node in nodes]

    def _node_kind(self, node: int) -> int:
        kind = ctypes.c_int()
        self._check(self._kind(node, ctypes.byref(kind)))
        return kind.value

    def clear_error(self) -> None:
        """Forget the last non-sticky error, such as that of a capture that failed."""
        self._clear()

    def _check(self, code: int) -> None:
        if code != 0:
            self._clear()
            raise RuntimeError(f"CUDA error: {self._text(code).decode()}")


def _function(library, name: str, *arguments, result=ctypes.c_int):
    function = getattr(library, name)
    function.argtypes, function.restype = arguments, result
    return function
