"""NVIDIA's tools beside the compiler: looked for in CUDA's folder, on PATH, in pip's packages."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from harness import toolchain_cuda
from harness.records import Failed, Outcome

REMEDY = {
    "cuobjdump": "it comes with CUDA and with the package triton (pip install triton)",
    "ncu": "install Nsight Compute (Debian's and NVIDIA's package nsight-compute) and put it on "
    "PATH",
    "compute-sanitizer": "it comes with CUDA; put CUDA's bin folder on PATH",
}


def find(name: str) -> str:
    """The program's path. Raises Failed(ENVIRONMENT) with where it comes from."""
    for folder in _folders():
        path = folder / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    on_path = shutil.which(name)
    if on_path:
        return on_path
    raise Failed(Outcome.ENVIRONMENT, "tools", f"{name} was not found; {REMEDY[name]}")


def require(name: str, device: str) -> str:
    """The path of a tool that looks at a running GPU. Raises Failed with all that is missing."""
    missing, path = [], ""
    if not device.startswith("cuda"):
        missing.append("a CUDA device is needed and there is none")
    try:
        path = find(name)
    except Failed as failed:
        missing.append(failed.failure.message)
    if missing:
        raise Failed(Outcome.ENVIRONMENT, "tools", "; ".join(missing))
    return path


def _folders() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin"
    for root in toolchain_cuda.usual_folders():
        yield root / "bin"
        yield root / "compute-sanitizer"
    for nvidia in toolchain_cuda.site_folders():
        yield from sorted(Path(nvidia).glob("cu[0-9][0-9]/bin"), reverse=True)
    triton = importlib.util.find_spec("triton")
    for folder in (triton.submodule_search_locations or ()) if triton else ():
        yield Path(folder) / "backends" / "nvidia" / "bin"
