"""Find a CUDA compiler that fits torch: CUDA_HOME, PATH, the usual folders, pip's nvidia/cuNN."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

QUERY_S = 60.0


@dataclass(frozen=True)
class Cuda:
    """One CUDA folder: `root`/bin/nvcc and what belongs to it."""

    root: str
    nvcc: str
    release: tuple[int, int]
    build: str  # 13.0.88
    where: str  # how it was found: CUDA_HOME, PATH, folder, pip

    @property
    def label(self) -> str:
        return f"nvcc {self.build} in {self.root} (found by {self.where})"


@dataclass(frozen=True)
class Rejected:
    """A place that was looked at and cannot be used, and the reason."""

    place: str
    reason: str


def search(wanted: tuple[int, int] | None) -> tuple[Cuda | None, tuple[Rejected, ...]]:
    """The best CUDA folder for torch's CUDA release `wanted`, and what was passed over.

    The same release is best, then the same major release; among equals the first place looked
    at, so that a system CUDA goes before pip's.
    """
    found: list[Cuda] = []
    rejected: list[Rejected] = []
    seen: set[str] = set()
    for root, where in _places():
        real = os.path.realpath(root)
        if real in seen:
            continue
        seen.add(real)
        one = probe(root, where)
        if isinstance(one, Rejected):
            rejected.append(one)
        elif wanted is not None and one.release[0] != wanted[0]:
            reason = f"nvcc {one.build} is not CUDA {wanted[0]}, which torch was built with"
            rejected.append(Rejected(f"{root} ({where})", reason))
        elif one.release == wanted:
            return one, tuple(rejected)
        else:
            found.append(one)
    return (found[0] if found else None), tuple(rejected)


def probe(root: str, where: str) -> Cuda | Rejected:
    """Whether `root` is a whole CUDA compiler folder."""
    place = f"{root} ({where})"
    nvcc = os.path.join(root, "bin", "nvcc")
    if not os.path.isfile(nvcc):
        return Rejected(place, "has no bin/nvcc")
    if not os.access(nvcc, os.X_OK):
        return Rejected(place, "its bin/nvcc is not executable")
    build = nvcc_build(nvcc)
    if build is None:
        return Rejected(place, "its `nvcc --version` gives no release")
    if not include_dir(root):
        return Rejected(place, "has no include/cuda_runtime.h")
    if not os.path.exists(os.path.join(root, "nvvm", "bin", "cicc")):
        return Rejected(place, "has no nvvm/bin/cicc")
    major, minor = build.split(".")[:2]
    return Cuda(root, nvcc, (int(major), int(minor)), build, where)


def nvcc_build(nvcc: str) -> str | None:
    """The full version, such as 13.0.88, or None where the program does not give one."""
    text = _ask([nvcc, "--version"])
    full = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    short = re.search(r"release (\d+\.\d+)", text)
    if full:
        return full.group(1)
    return short.group(1) if short else None


def include_dir(root: str) -> str | None:
    """The folder that holds cuda_runtime.h."""
    for folder in (os.path.join(root, "include"), *_target_dirs(root, "include")):
        if os.path.exists(os.path.join(folder, "cuda_runtime.h")):
            return folder
    return None


def library_dirs(root: str) -> tuple[str, ...]:
    """Folders of `root` with libraries, stubs last."""
    folders = [os.path.join(root, "lib64"), os.path.join(root, "lib"), *_target_dirs(root, "lib")]
    folders += [os.path.join(folder, "stubs") for folder in folders]
    unique = {os.path.realpath(folder): folder for folder in reversed(folders)}
    return tuple(folder for folder in reversed(unique.values()) if os.path.isdir(folder))


def site_folders() -> tuple[str, ...]:
    """pip's `nvidia` folders on the import path."""
    folders = [os.path.join(entry, "nvidia") for entry in sys.path if entry]
    return tuple(dict.fromkeys(folder for folder in folders if os.path.isdir(folder)))


def _places() -> Iterator[tuple[str, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield os.environ[variable].rstrip("/") or "/", variable
    on_path = shutil.which("nvcc")
    if on_path:
        yield _root_of(on_path), "PATH"
    for folder in usual_folders():
        if (folder / "bin" / "nvcc").exists():
            yield str(folder), "folder"
    for nvidia in site_folders():
        for folder in sorted(Path(nvidia).glob("cu[0-9][0-9]"), reverse=True):
            yield str(folder), "pip"


def usual_folders() -> list[Path]:
    local = Path("/usr/local")
    folders = [local / "cuda", *_newest_first(local), Path("/opt/cuda")]
    return [*folders, Path("/usr/lib/nvidia-cuda-toolkit"), Path(sys.prefix)]


def _newest_first(parent: Path) -> list[Path]:
    def version(folder: Path) -> tuple[int, ...]:
        return tuple(int(n) for n in re.findall(r"\d+", folder.name))

    return sorted(parent.glob("cuda-[0-9]*"), key=version, reverse=True)


def _root_of(nvcc: str) -> str:
    """The CUDA folder of an nvcc; a wrapper script's own folder is none, so nvcc is asked."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    if include_dir(root) and os.path.exists(os.path.join(root, "nvvm")):
        return root
    match = re.search(r"^#\$ TOP=(.*)$", _ask([nvcc, "--dryrun", "-E", "-x", "cu", "-"]), re.M)
    if match:
        return os.path.realpath(match.group(1).strip().strip('"'))
    return os.path.dirname(os.path.dirname(os.path.abspath(nvcc)))


def _target_dirs(root: str, leaf: str) -> list[str]:
    return [str(folder) for folder in Path(root).glob(f"targets/*-linux/{leaf}")]


def _ask(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=QUERY_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")
