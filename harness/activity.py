"""Device time from CUPTI's activity records: when each kernel, copy and fill began and ended.

Called through ctypes on the libcupti that torch has loaded. Every record kind used here has
`start` at byte 16 and `end` at byte 24 (cupti_activity.h of CUDA 12 and 13), a kernel record
also its name's address at byte 104.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

from harness.cudart import loaded_library

COPY, FILL, CONCURRENT_KERNEL, PEER_COPY = 1, 2, 10, 22
KINDS = (CONCURRENT_KERNEL, COPY, FILL, PEER_COPY)
BUFFER_BYTES = 1 << 20
FORCED = 1

_Request = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Complete = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


@dataclass(frozen=True)
class Activity:
    """One piece of work on the device: nanoseconds on the device's clock; kernels have a name."""

    kind: int
    start_ns: int
    end_ns: int
    name: str = ""


class Recorder:
    """Collects activity records between `start` and `stop`. Raises RuntimeError with CUPTI's code.

    One per process: CUPTI has one set of buffer call-backs.
    """

    def __init__(self):
        path = loaded_library("libcupti")
        if path is None:
            raise RuntimeError("torch has loaded no libcupti in this process")
        self._cupti = ctypes.CDLL(path)
        self._buffers: dict[int, ctypes.Array] = {}
        self._records: list[Activity] = []
        self._callbacks = (_Request(self._request), _Complete(self._complete))
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Record inside the block, which starts and ends with an idle device."""
        started = []
        try:
            for kind in KINDS:
                self._call("cuptiActivityEnable", ctypes.c_int(kind))
                started.append(kind)
            yield
        finally:
            for kind in started:
                self._call("cuptiActivityDisable", ctypes.c_int(kind))

    def take(self) -> list[Activity]:
        """The records collected since the last call, by start; wait for the device first."""
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(FORCED))
        taken, self._records = self._records, []
        return sorted(taken, key=lambda a: a.start_ns)

    def _call(self, name: str, *arguments) -> None:
        code = getattr(self._cupti, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} answered {code}")

    def _request(self, buffer, size, limit) -> None:
        memory = (ctypes.c_uint64 * (BUFFER_BYTES // 8))()
        address = ctypes.addressof(memory)
        self._buffers[address] = memory
        buffer[0], size[0], limit[0] = address, BUFFER_BYTES, 0

    def _complete(self, context, stream, buffer, size, valid) -> None:
        record = ctypes.c_void_p(None)
        advance = self._cupti.cuptiActivityGetNextRecord
        while advance(ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)) == 0:
            activity = _parse(record.value)
            if activity is not None:
                self._records.append(activity)
        self._buffers.pop(buffer, None)


def _parse(address: int) -> Activity | None:
    kind = ctypes.c_uint32.from_address(address).value
    if kind not in KINDS:
        return None
    start = ctypes.c_uint64.from_address(address + 16).value
    end = ctypes.c_uint64.from_address(address + 24).value
    name = b""
    if kind == CONCURRENT_KERNEL:
        name = ctypes.c_char_p.from_address(address + 104).value or b""
    return Activity(kind, start, end, name.decode(errors="replace"))


def busy_us(activities: list[Activity]) -> float:
    """Time during which at least one activity ran: overlaps count once, gaps not at all."""
    total, reached = 0, 0
    for activity in sorted(activities, key=lambda a: a.start_ns):
        total += max(0, activity.end_ns - max(activity.start_ns, reached))
        reached = max(reached, activity.end_ns)
    return total / 1e3
