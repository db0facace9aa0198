"""The name of the last kernel launched, by CUPTI's call-backs: for a re-run after a crash only.

With CUDA_LAUNCH_BLOCKING=1 the last kernel launched before an error is the one that failed.
"""

from __future__ import annotations

import ctypes

from harness.cudart import loaded_library

DRIVER_API, RUNTIME_API = 1, 2


class _CallbackData(ctypes.Structure):
    """CUpti_CallbackData of cupti_callbacks.h, CUDA 11 to 13."""

    _fields_ = [
        ("site", ctypes.c_int),
        ("function_name", ctypes.c_char_p),
        ("function_params", ctypes.c_void_p),
        ("function_return_value", ctypes.c_void_p),
        ("symbol_name", ctypes.c_char_p),
    ]


_Callback = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_CallbackData)
)


class LastLaunch:
    """Remembers the mangled name of each kernel as it is launched. Raises OSError without CUPTI."""

    def __init__(self):
        path = loaded_library("libcupti")
        if path is None:
            raise OSError("torch has loaded no libcupti in this process")
        self.mangled = ""
        self._callback = _Callback(self._see)
        cupti, subscriber = ctypes.CDLL(path), ctypes.c_void_p()
        if cupti.cuptiSubscribe(ctypes.byref(subscriber), self._callback, None) != 0:
            raise OSError("CUPTI takes no subscriber")
        for domain in (DRIVER_API, RUNTIME_API):
            cupti.cuptiEnableDomain(ctypes.c_uint32(1), subscriber, ctypes.c_int(domain))

    def _see(self, user, domain, callback_id, data) -> None:
        name = data.contents.symbol_name
        function = data.contents.function_name or b""
        if data.contents.site == 0 and name and b"aunch" in function:
            self.mangled = name.decode(errors="replace")

    @property
    def kernel(self) -> str:
        """As the source names it; "" where none was launched."""
        return demangle(self.mangled)


def demangle(name: str) -> str:
    """`void scale<float>(float*)` for `_Z5scaleIfEvPT_`; what cannot be read stays as it is."""
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return name
    function.restype = ctypes.c_void_p
    status = ctypes.c_int()
    result = function(name.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not result:
        return name
    text = ctypes.cast(result, ctypes.c_char_p).value.decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(result))
    return text
