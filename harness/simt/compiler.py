"""The host compiler: flags, the runtime library, precompiled headers, extensions; all cached."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import cache

from .outcomes import BuildFailed, NeedsGPU

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"
RUNTIME = HERE / "runtime"
ALLOCATOR = HERE / "torch_allocator" / "allocator.cpp"
_COMMON = ["-fPIC", "-g1", "-w", "-pthread"]
_MODE = {
    "bindings": ["-O0"],  # host code without kernels: pybind11 is slow to optimise
    "plain": ["-O1"],
    "checked": [
        "-O1",
        "-fsanitize=thread,alignment",
        "--param=tsan-distinguish-volatile=1",
        "--param=tsan-instrument-func-entry-exit=0",
        "-DSIMT_CHECKED=1",
    ],
}


@dataclass(frozen=True)
class Recipe:
    """How one kind of source is compiled: `parts` of torch it needs, the mode, the standard."""

    parts: tuple[str, ...]  # of STABLE, TORCH, PYBIND, ALL
    mode: str = "plain"
    standard: str = "c++20"


def host_compiler() -> str:
    """$CXX or g++; BuildFailed where there is none."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    if found is None:
        raise BuildFailed("no host compiler: install g++ or set CXX")
    return found


@functools.cache
def _fingerprint(*folders: Path) -> str:
    """Changes with the files of the folders, the compiler, torch and Python."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            digest.update(path.name.encode() + path.read_bytes())
    version = subprocess.run([host_compiler(), "--version"], capture_output=True, check=True)
    digest.update(version.stdout + _torch_version().encode())
    digest.update(sysconfig.get_python_version().encode() + str(_torch_folder()).encode())
    digest.update(repr((_COMMON, _MODE)).encode())
    return digest.hexdigest()[:16]


def _torch_folder() -> Path:
    import importlib.util

    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent


def _torch_version() -> str:
    text = (_torch_folder() / "version.py").read_text()
    return re.search(r"__version__ = ['\"]([^'\"]+)", text)[1]


def _folder(kind: str, *sources: Path) -> Path:
    path = cache.root() / "simt" / f"{kind}-{_fingerprint(*sources)}"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def _locked(path: Path):
    """One process at a time makes `path`; what is made needs no lock, and no writable cache."""
    if path.exists():
        yield
        return
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(list(command), capture_output=True, text=True)
    if done.returncode:
        raise BuildFailed(_errors(done.stderr))


def _errors(log: str) -> str:
    """The compiler's errors, each cut to a readable length."""
    lines = [line[:400] for line in log.splitlines() if re.search(r"\berror\b|undefined", line)]
    return "\n".join(lines[:20]) or log[-2000:]


def runtime_library() -> Path:
    """Compiled once per fingerprint, some 10 s."""
    path = _folder("runtime", INCLUDE / "simt", RUNTIME) / "libsteelyard_simt.so"
    with _locked(path):
        if not path.exists():
            sources = sorted(str(p) for p in RUNTIME.glob("*.cpp"))
            target = f"{path}.tmp"
            flags = ["-std=c++17", "-O2", *_COMMON, "-shared"]
            _run([host_compiler(), *flags, *sources, "-o", target])
            os.rename(target, path)
    return path


def torch_allocator() -> Path:
    """The allocator of the checked mode, compiled once against torch's headers."""
    runtime = runtime_library()
    folder = _folder("torch", ALLOCATOR.parent, INCLUDE / "simt", RUNTIME)  # as the runtime's
    path = folder / "libsteelyard_simt_torch.so"
    with _locked(path):
        if not path.exists():
            target = f"{path}.tmp"
            command = [host_compiler(), "-std=c++20", "-O2", *_COMMON, "-shared"]
            command += [*_torch_includes(), str(ALLOCATOR), "-o", target]
            libraries = [f"-L{_torch_folder() / 'lib'}", "-lc10", str(runtime)]
            _run([*command, *libraries, f"-Wl,-rpath,{runtime.parent}"])
            os.rename(target, path)
    return path


def _torch_includes() -> list[str]:
    root = _torch_folder() / "include"
    api = root / "torch" / "csrc" / "api" / "include"
    return ["-isystem", str(root), "-isystem", str(api)]


def flags(recipe: Recipe) -> list[str]:
    defines = [f"-DSIMT_WITH_{part}=1" for part in recipe.parts if part != "ALL"]
    if "ALL" in recipe.parts:
        defines.append("-DSIMT_ALL_OF_TORCH=1")
    return [
        f"-std={recipe.standard}",
        *_COMMON,
        *_MODE[recipe.mode],
        *defines,
        "-fvisibility=hidden",
        "-ffp-contract=off",
        "-fno-strict-aliasing",
        f"-I{INCLUDE}",
        *_torch_includes(),
        "-isystem",
        sysconfig.get_paths()["include"],
    ]


def precompiled(recipe: Recipe) -> Path:
    """Folder that holds the precompiled simt_solution.h of this recipe; made once."""
    name = "-".join(["pch", recipe.mode, recipe.standard, *recipe.parts]).lower()
    path = _folder("headers", INCLUDE) / name
    path.mkdir(exist_ok=True)
    header, compiled = path / "simt_solution.h", path / "simt_solution.h.gch"
    with _locked(path / "made"):
        if not compiled.exists():
            header.write_text('#include "simt/solution.h"\n')
            target = f"{compiled}.tmp"
            _run([host_compiler(), *flags(recipe), "-x", "c++-header", str(header), "-o", target])
            os.rename(target, compiled)
    return path


def _libraries(parts: set[str]) -> list[str]:
    lib = _torch_folder() / "lib"
    names = []
    if "TORCH" in parts:
        names = ["-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]
    elif "STABLE" in parts:
        names = ["-ltorch_cpu"]
    return [f"-L{lib}", *names]


@dataclass(frozen=True)
class Part:
    """One translation unit of an extension."""

    code: str
    recipe: Recipe


def _compile(part: Part, source: Path, module: str, options: Sequence[str]) -> Path:
    """Object file beside `source`."""
    source.write_text(part.code)
    target = source.with_suffix(".o")
    include = [f"-I{precompiled(part.recipe)}", f"-DTORCH_EXTENSION_NAME={module}"]
    command = [host_compiler(), *include, *flags(part.recipe), *options]
    _run([*command, "-c", str(source), "-o", str(target)])
    return target


def extension(parts: Sequence[Part], options: Sequence[str], name: str) -> Path:
    """Compiles to a shared library that imports as `name`_<digest>; cached by content."""
    runtime = runtime_library()
    key = hashlib.sha256(repr((list(parts), list(options))).encode()).hexdigest()[:16]
    module = f"{re.sub(r'[^0-9A-Za-z_]', '_', name)}_{key}"
    path = _folder("extensions", INCLUDE, RUNTIME) / module
    path.mkdir(parents=True, exist_ok=True)
    library, refused = path / f"{module}.so", path / "refused.txt"
    try:
        with _locked(library):
            if not library.exists():
                _link(library, parts, options, runtime)
    except BuildFailed as failed:
        refused.write_text(str(failed), encoding="utf-8")
        raise
    except PermissionError:  # where a solution runs it may not write; the build came before
        raise _not_built(name, refused) from None
    return library


def _link(library: Path, parts: Sequence[Part], options: Sequence[str], runtime: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(_compile, part, library.with_name(f"unit_{i}.cpp"), library.stem, options)
            for i, part in enumerate(parts)
        ]
        objects = [str(job.result()) for job in jobs]
    needed = {p for part in parts for p in part.recipe.parts}
    link = [*_libraries(needed), str(runtime), f"-Wl,-rpath,{runtime.parent}"]
    target = f"{library}.tmp"
    _run([host_compiler(), "-shared", *objects, "-o", target, *link])
    os.rename(target, library)


def _not_built(name: str, refused: Path) -> NeedsGPU | BuildFailed:
    """nvcc has accepted what is run: where the host compiler did not, it takes a GPU."""
    if refused.is_file():
        first = refused.read_text(encoding="utf-8").splitlines()[0]
        return NeedsGPU(f"the host compiler refuses {name} ({first})")
    return BuildFailed(f"{name} was not built ahead: call load_inline when the file is imported")
