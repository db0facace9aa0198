"""Ask the CUDA driver which GPUs there are, without importing torch."""

from __future__ import annotations

import ctypes

from harness.records import Failed, Outcome


def gpu_count() -> int:
    """Number of CUDA devices; 0 where there is no driver or no device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def choose(wanted: str | None) -> str:
    """The device of a run, "cpu" or "cuda:N". Raises Failed(ENVIRONMENT) for one that is absent."""
    count = gpu_count()
    if wanted is None:
        return "cuda:0" if count else "cpu"
    if wanted == "cpu":
        return "cpu"
    name, _, index = wanted.partition(":")
    if name != "cuda" or not (index.isdigit() or index == ""):
        raise Failed(
            Outcome.ENVIRONMENT, "device", f"--device {wanted}: want cpu, cuda or cuda:N (N from 0)"
        )
    if int(index or 0) >= count:
        raise Failed(
            Outcome.ENVIRONMENT,
            "device",
            f"--device {wanted}: this machine has {_gpus(count)}; use --device cpu to run the "
            "kernels' logic without a GPU",
        )
    return f"cuda:{index or 0}"


def _gpus(count: int) -> str:
    if count == 0:
        return "no CUDA device"
    return "one CUDA device, cuda:0" if count == 1 else f"{count} CUDA devices, to cuda:{count - 1}"
