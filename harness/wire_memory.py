"""Shared mailboxes for tensor bytes: host memory by memfd, GPU memory by CUDA IPC."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os

import torch

from harness.cudart import loaded_library


class CudaRuntime:
    """The CUDA runtime that torch itself has loaded, called directly."""

    def __init__(self):
        torch.cuda.init()
        path = loaded_library("libcudart")
        if path is None:
            raise MemoryError("torch has loaded no libcudart in this process")
        self._lib = ctypes.CDLL(path)
        self._lib.cudaGetErrorString.restype = ctypes.c_char_p

    def malloc(self, nbytes: int) -> int:
        pointer = ctypes.c_void_p()
        self._check(self._lib.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(nbytes)))
        return pointer.value

    def free(self, pointer: int) -> None:
        self._check(self._lib.cudaFree(ctypes.c_void_p(pointer)))

    def export(self, pointer: int) -> bytes:
        handle = _IpcHandle()
        self._check(self._lib.cudaIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(pointer)))
        return bytes(handle)

    def open(self, handle: bytes) -> int:
        if len(handle) != 64:
            raise MemoryError("a CUDA IPC handle has 64 bytes")
        pointer = ctypes.c_void_p()
        raw = _IpcHandle.from_buffer_copy(handle)
        lazy_peer_access = ctypes.c_uint(1)
        self._check(self._lib.cudaIpcOpenMemHandle(ctypes.byref(pointer), raw, lazy_peer_access))
        return pointer.value

    def close(self, pointer: int) -> None:
        self._check(self._lib.cudaIpcCloseMemHandle(ctypes.c_void_p(pointer)))

    def pin(self, pointer: int, nbytes: int) -> None:
        self._check(
            self._lib.cudaHostRegister(
                ctypes.c_void_p(pointer), ctypes.c_size_t(nbytes), ctypes.c_uint(1)
            )
        )

    def unpin(self, pointer: int) -> None:
        self._check(self._lib.cudaHostUnregister(ctypes.c_void_p(pointer)))

    def synchronize(self) -> str:
        """Wait for the device; "" or the error's words, sticky ones included."""
        code = self._lib.cudaDeviceSynchronize() or self._lib.cudaGetLastError()
        return self._text(code) if code else ""

    def last_error(self) -> str:
        """The pending error of an earlier launch, cleared by asking; "" for none."""
        code = self._lib.cudaGetLastError()
        return self._text(code) if code else ""

    def _text(self, code: int) -> str:
        return self._lib.cudaGetErrorString(ctypes.c_int(code)).decode()

    def _check(self, code: int) -> None:
        if code:
            self._lib.cudaGetLastError()
            raise MemoryError(f"CUDA error {code}: {self._text(code)}")


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_byte * 64)]


class _DevicePointer:
    def __init__(self, pointer: int, nbytes: int):
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


def device_bytes(pointer: int, nbytes: int, device: torch.device) -> torch.Tensor:
    """Device memory as a flat uint8 tensor that does not own it."""
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8, device=device)
    return torch.as_tensor(_DevicePointer(pointer, nbytes), device=device)


def host_bytes(pointer: int, nbytes: int) -> torch.Tensor:
    """Host memory as a flat uint8 tensor that does not own it."""
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer((ctypes.c_ubyte * nbytes).from_address(pointer), dtype=torch.uint8)


class HostBox:
    """A mailbox in shared host memory, pinned where a CUDA runtime is given."""

    kind = "host"

    def __init__(self, nbytes: int, fd: int | None = None, cuda: CudaRuntime | None = None):
        nbytes = max(nbytes, 1)
        self.nbytes = nbytes
        self.fd = (
            os.memfd_create("steelyard", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            if fd is None
            else fd
        )
        if fd is None:
            os.ftruncate(self.fd, nbytes)
            _seal(self.fd)
        self._map = mmap.mmap(self.fd, nbytes)
        self._view = (ctypes.c_ubyte * nbytes).from_buffer(self._map)
        self._pointer = ctypes.addressof(self._view)
        self._cuda = cuda
        if cuda:
            cuda.pin(self._pointer, nbytes)
        self.bytes = host_bytes(self._pointer, nbytes)

    def describe(self) -> dict:
        return {"kind": "host", "nbytes": self.nbytes}

    def close(self) -> None:
        if self._cuda:
            self._cuda.unpin(self._pointer)
        self.bytes = None
        os.close(self.fd)
        del self._view
        self._map.close()


class DeviceBox:
    """A mailbox in GPU memory that its maker owns and the other side opens by its IPC handle."""

    kind = "ipc"

    def __init__(self, nbytes: int, cuda: CudaRuntime, device: torch.device, handle: bytes = b""):
        self.nbytes = max(nbytes, 1)
        self._cuda, self._mine = cuda, not handle
        self._pointer = cuda.open(handle) if handle else cuda.malloc(self.nbytes)
        self.handle = handle or cuda.export(self._pointer)
        self.bytes = device_bytes(self._pointer, self.nbytes, device)

    def describe(self) -> dict:
        return {"kind": "ipc", "nbytes": self.nbytes, "handle": self.handle.hex()}

    def close(self) -> None:
        self.bytes = None
        if self._mine:
            self._cuda.free(self._pointer)
        else:
            self._cuda.close(self._pointer)


def _seal(fd: int) -> None:
    """Keep the other side from shrinking the file, which would crash the reader of the mapping."""
    shrink, grow, no_more = 2, 4, 1
    fcntl.fcntl(fd, 1033, shrink | grow | no_more)  # F_ADD_SEALS
