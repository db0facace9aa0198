"""Which GPU architecture to compile for: the GPU's own, what the user restricts, what PTX needs."""

from __future__ import annotations

import ctypes
import os
import re

from harness.records import Failed, Outcome

DEFAULT = (9, 0)  # without a GPU: H100 and H200
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

# Instructions that exist only in the architecture-specific target (the "a" of sm_90a).
SPECIFIC = re.compile(
    r"\bwgmma\b|\bsetmaxnreg\b|\btcgen05\b|\bwarpgroup_reg_(?:de)?alloc\b|\bMMA_64x\d+x\d+"
)
NAMED = {
    "Volta": "7.0+PTX",
    "Turing": "7.5+PTX",
    "Ampere": "8.0;8.6+PTX",
    "Ada": "8.9+PTX",
    "Hopper": "9.0+PTX",
    "Blackwell": "10.0;10.3;12.0;12.1+PTX",
}


def capability(device: str) -> tuple[int, int] | None:
    """Compute capability of "cuda:N" from the driver; None for "cpu" or without a driver."""
    if not device.startswith("cuda"):
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, value = ctypes.c_int(), ctypes.c_int()
    index = int(device.partition(":")[2] or 0)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), index):
        return None
    numbers = []
    for attribute in (MAJOR, MINOR):
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle):
            return None
        numbers.append(value.value)
    return numbers[0], numbers[1]


def choose(device: str) -> tuple[str, str]:
    """The architecture ("9.0") and a note; honours TORCH_CUDA_ARCH_LIST.

    Raises Failed(ENVIRONMENT) when the list holds nothing that the GPU can run.
    """
    gpu = capability(device)
    listed = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    if not listed or listed == "native":
        return _text(gpu or DEFAULT), ""
    entries = _entries(listed)
    target = gpu or DEFAULT
    runnable = [entry for entry in entries if _runs_on(entry, target)]
    if runnable:
        best = max(runnable, key=lambda entry: (_numbers(entry), "a" in entry))
        kept = best.removesuffix("+PTX") if _same_family(best, target) else best
        extra = f"; only {kept} is built" if len(entries) > 1 else ""
        return kept, f"TORCH_CUDA_ARCH_LIST={listed}{extra}" if kept != _text(target) else ""
    if gpu is not None:
        raise Failed(
            Outcome.ENVIRONMENT,
            "toolchain",
            f"TORCH_CUDA_ARCH_LIST={listed} has no code for this GPU (compute capability "
            f"{_text(gpu)}: no kernel image would be available); unset it or write {_text(gpu)}",
        )
    newest = max(entries, key=_numbers, default=_text(DEFAULT)).removesuffix("+PTX")
    return newest, f"TORCH_CUDA_ARCH_LIST={listed}: built for {newest}, not for {_text(DEFAULT)}"


def flags(arch: str, sources: str, user_flags: tuple[str, ...]) -> tuple[str, ...]:
    """nvcc's -gencode for "9.0" ("9.0a" where the sources need it); none if the user gave one."""
    if any("arch" in flag for flag in user_flags if "TORCH_EXTENSION_NAME" not in flag):
        return ()
    number = arch.removesuffix("+PTX")
    specific = _numbers(number)[0] >= 9 and SPECIFIC.search(sources)
    if specific and not number.endswith("a"):
        number += "a"
    digits = number.replace(".", "")
    code = f"compute_{digits}" if arch.endswith("+PTX") else f"sm_{digits}"
    return (f"-gencode=arch=compute_{digits},code={code}",)


def mismatch(user_flags: tuple[str, ...], gpu: tuple[int, int] | None) -> str | None:
    """Why nothing that these nvcc flags compile can run on the GPU; None where something can."""
    text = " ".join(user_flags)
    codes = re.findall(r"\b(sm|compute)_(\d+)[af]?", " ".join(re.findall(r"code=(\S+)", text)))
    # -arch=sm_80 is short for code of sm_80 and PTX of compute_80, which later GPUs can run.
    codes += [("compute", n) for n in re.findall(r"-arch(?:itecture)?[= ]sm_(\d+)", text)]
    if gpu is None or not codes:
        return None
    for kind, digits in codes:
        number = f"{digits[:-1]}.{digits[-1]}"
        if _runs_on(number + ("+PTX" if kind == "compute" else ""), gpu):
            return None
    listed = ", ".join(dict.fromkeys(f"{kind}_{digits}" for kind, digits in codes))
    return (
        f"extra_cuda_cflags compile for {listed} only and this GPU is {_text(gpu)}: no kernel "
        "image would be available; leave the -arch and -gencode flags out"
    )


def _entries(listed: str) -> list[str]:
    text = listed.replace(" ", ";")
    for name, numbers in NAMED.items():
        text = text.replace(name, numbers)
    entries = [entry for entry in text.split(";") if entry]
    wrong = [e for e in entries if not re.fullmatch(r"\d+\.\d[af]?(\+PTX)?", e)]
    if wrong:
        raise Failed(
            Outcome.ENVIRONMENT,
            "toolchain",
            f"TORCH_CUDA_ARCH_LIST={listed}: {wrong[0]!r} is none; unset it or write 9.0",
        )
    return entries


def _numbers(entry: str) -> tuple[int, int]:
    major, minor = re.match(r"(\d+)\.(\d)", entry).groups()
    return int(major), int(minor)


def _same_family(entry: str, gpu: tuple[int, int]) -> bool:
    major, minor = _numbers(entry)
    exact = entry.removesuffix("+PTX").endswith("a")
    return (major, minor) == gpu if exact else major == gpu[0] and minor <= gpu[1]


def _runs_on(entry: str, gpu: tuple[int, int]) -> bool:
    return _same_family(entry, gpu) or (entry.endswith("+PTX") and _numbers(entry) <= gpu)


def _text(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}.{numbers[1]}"
