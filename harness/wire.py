"""How the judge and a candidate talk: JSON frames on a socket, tensor bytes in shared memory.

Nothing is ever unpickled. Either side may be hostile to the other: every length, offset, dtype
and shape that arrives is checked before it is used.
"""

from __future__ import annotations

import array
import json
import math
import select
import socket
import struct
import time
from dataclasses import dataclass

import torch

MAX_FRAME = 8 << 20
ALIGN = 512  # bytes; as torch's CUDA allocator aligns
DTYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}
DTYPE_NAMES = {kind: name for name, kind in DTYPES.items()}


class WireError(Exception):
    """A frame or a descriptor that is not what the protocol says."""


class Closed(Exception):
    """The other side has gone."""


class Channel:
    """Length-prefixed JSON frames over a Unix stream socket; file descriptors may ride along."""

    def __init__(self, sock: socket.socket):
        self._sock = sock
        self._buffer = bytearray()
        self._fds: list[int] = []

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def send(self, message: dict, fds: tuple[int, ...] = ()) -> None:
        """Raises Closed when nobody reads any more, WireError for an oversized message."""
        body = json.dumps(message).encode()
        if len(body) > MAX_FRAME:
            raise WireError(f"frame of {len(body)} bytes, at most {MAX_FRAME}")
        frame = struct.pack("<I", len(body)) + body
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sent = self._sock.sendmsg([frame], rights)
            if sent < len(frame):
                self._sock.sendall(frame[sent:])
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self, timeout_s: float | None = None) -> tuple[dict, list[int]]:
        """One message and the descriptors that came with it.

        Raises TimeoutError, Closed, or WireError for a frame that is not a JSON object.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (size,) = struct.unpack("<I", self._read(4, deadline))
        if size > MAX_FRAME:
            raise WireError(f"frame of {size} bytes announced, at most {MAX_FRAME}")
        body = self._read(size, deadline)
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            raise WireError("a frame is not JSON") from None
        if not isinstance(message, dict):
            raise WireError("a frame is not a JSON object")
        fds, self._fds = self._fds, []
        return message, fds

    def _read(self, count: int, deadline: float | None) -> bytes:
        while len(self._buffer) < count:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and (left <= 0 or not select.select([self._sock], [], [], left)[0]):
                raise TimeoutError
            try:
                data, rights, _flags, _address = self._sock.recvmsg(1 << 16, socket.CMSG_SPACE(64))
            except OSError as error:
                raise Closed(str(error)) from None
            for _level, _kind, raw in rights:
                self._fds.extend(array.array("i", raw[: len(raw) - len(raw) % 4]))
            if not data:
                raise Closed("end of stream")
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


@dataclass(frozen=True)
class Slot:
    """A byte range of a mailbox."""

    at: int
    nbytes: int


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor as a flat uint8 tensor over the same memory."""
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return torch.empty(0, dtype=torch.uint8, device=tensor.device)
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    start = tensor.storage_offset() * tensor.element_size()
    return whole.set_(tensor.untyped_storage(), start, (size,), (1,))


def span(tensor: torch.Tensor) -> int:
    """Bytes from the start of the storage to the end of the last element."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset() + last + 1) * tensor.element_size()


def over_storage(storage, dtype: torch.dtype, layout: dict) -> torch.Tensor:
    """A tensor that is nobody's view, laid over `storage` as `layout` says."""
    whole = torch.empty(0, dtype=dtype, device=storage.device)
    return whole.set_(storage, layout["offset"], tuple(layout["shape"]), tuple(layout["stride"]))


@dataclass
class Packed:
    """Call arguments as plain data: `tree` refers to `storages`, byte images on the device."""

    tree: dict
    storages: list[torch.Tensor]  # flat uint8, one per distinct storage
    slots: list[Slot]

    @property
    def nbytes(self) -> int:
        return sum(aligned(slot.nbytes) for slot in self.slots)


def pack(values, device: torch.device | str = "cpu") -> Packed:
    """Tensors (layout, sharing of storages and all), numbers, strings, lists, tuples and dicts.

    Raises WireError for anything else: only plain data may cross.
    """
    packer = _Packer(torch.device(device))
    tree = packer.encode(values)
    slots, at = [], 0
    for image in packer.images:
        slots.append(Slot(at, image.numel()))
        at += aligned(image.numel())
    return Packed(tree, packer.images, slots)


class _Packer:
    def __init__(self, device: torch.device):
        self.device = device
        self.images: list[torch.Tensor] = []
        self._seen: dict[int, int] = {}
        self._needed: dict[int, int] = {}

    def encode(self, value) -> dict:
        self._measure(value)
        return self._encode(value)

    def _measure(self, value) -> None:
        for tensor in tensors_of(value):
            if tensor.layout is not torch.strided:
                raise WireError(f"a tensor of layout {tensor.layout}; only strided ones cross")
            key = tensor.untyped_storage().data_ptr()
            self._needed[key] = max(self._needed.get(key, 0), span(tensor))

    def _encode(self, value) -> dict:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.Size):
            return {"tuple": [{"value": int(v)} for v in value]}
        if isinstance(value, list):
            return {"list": [self._encode(v) for v in value]}
        if isinstance(value, tuple):
            return {"tuple": [self._encode(v) for v in value]}
        if isinstance(value, dict):
            if not all(isinstance(k, str | int | float | bool) for k in value):
                raise WireError("a dict with keys that are neither strings nor numbers")
            return {"dict": [[k, self._encode(v)] for k, v in value.items()]}
        if isinstance(value, torch.dtype):
            return {"dtype": DTYPE_NAMES[value]}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return {"value": value}
        raise WireError(f"a {type(value).__name__}; only tensors, numbers and text cross")

    def _tensor(self, tensor: torch.Tensor) -> dict:
        if tensor.dtype not in DTYPE_NAMES:
            raise WireError(f"a tensor of dtype {tensor.dtype}")
        storage = tensor.untyped_storage()
        key = storage.data_ptr() if span(tensor) else -1 - len(self.images)
        if key not in self._seen:
            image = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            size = self._needed.get(key, 0)
            if size:
                image.set_(storage, 0, (size,), (1,))
            self._seen[key] = len(self.images)
            self.images.append(image.to(self.device))
        return {
            "tensor": {
                "storage": self._seen[key],
                "dtype": DTYPE_NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "stride": list(tensor.stride()),
                "offset": tensor.storage_offset() if span(tensor) else 0,
                "grad": bool(tensor.requires_grad),
            }
        }


def tensors_of(value) -> list[torch.Tensor]:
    """Every tensor in a nest of lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_of(item)]
    return []


def unpack(tree: dict, storages: list) -> object:
    """The inverse of pack: the values of `tree` over the given storages (torch.UntypedStorage)."""
    (kind, body), *_ = tree.items()
    if kind == "value":
        return body
    if kind == "list":
        return [unpack(item, storages) for item in body]
    if kind == "tuple":
        return tuple(unpack(item, storages) for item in body)
    if kind == "dict":
        return {key: unpack(item, storages) for key, item in body}
    if kind == "dtype":
        return DTYPES[body]
    if kind == "device":
        return torch.device(body)
    if kind == "tensor":
        return over_storage(storages[body["storage"]], DTYPES[body["dtype"]], body)
    raise WireError(f"unknown node {kind!r}")


@dataclass(frozen=True)
class Leaf:
    """A tensor that came back, as its sender describes it; nothing here is trusted but checked."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    at: int | None  # bytes into the outbox, contiguous; None: it did not fit
    facts: dict

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def leaf(body: object) -> Leaf:
    """A checked Leaf from plain data. Raises WireError."""
    try:
        found = Leaf(
            dtype=str(body["dtype"]),
            shape=tuple(int(n) for n in body["shape"]),
            stride=tuple(int(n) for n in body["stride"]),
            at=None if body["at"] is None else int(body["at"]),
            facts=dict(body.get("facts", {})),
        )
    except (KeyError, TypeError, ValueError):
        raise WireError("a tensor's description is incomplete") from None
    if found.dtype not in DTYPES or len(found.shape) > 64 or min((0, *found.shape)) < 0:
        raise WireError(f"a tensor described as {found.dtype} {list(found.shape)[:8]}")
    return found
