"""A stand-in for torch.utils.cpp_extension.load_inline that builds for the CPU."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import compiler, runtime_library
from .bindings import as_functions
from .compiler import Part, Recipe
from .outcomes import NeedsGPU
from .translate import Source, Unit, unit

_FULL_TORCH = re.compile(r"torch::(?:nn|autograd|optim|jit|data)\b|<torch/(?:torch|all)\.h>")


@dataclass(frozen=True)
class Request:
    """What load_inline was asked for, as far as it matters here."""

    name: str
    cuda: tuple[Source, ...]
    cpp: tuple[Source, ...]
    functions: dict[str, str]
    options: tuple[str, ...]
    implicit_headers: bool
    mode: str


def mode() -> str:
    """$STEELYARD_SIMT_MODE: plain (default) or checked."""
    return os.environ.get("STEELYARD_SIMT_MODE") or "plain"


def _as_list(value) -> list[str]:
    if not value:
        return []
    return [value] if isinstance(value, str) else list(value)


def _placed(text: str, fallback: str) -> Source:
    """The source with its file and line, where a calling Python file holds it verbatim."""
    frame = sys._getframe(1)
    for _ in range(12):
        if frame is None or not text.strip():
            break
        path = frame.f_code.co_filename
        if not path.startswith(str(compiler.HERE)) and os.path.isfile(path):
            whole = Path(path).read_text(errors="replace")
            at = whole.find(text)
            if at >= 0:
                return Source(text, os.path.abspath(path), whole.count("\n", 0, at) + 1)
        frame = frame.f_back
    return Source(text, fallback)


def _options(flags: Sequence[str], include_paths: Sequence[str]) -> tuple[str, ...]:
    """Only definitions and include paths mean something to the host compiler."""
    kept = [f for f in flags if re.match(r"-[DU]\w", f) or f.startswith("-I")]
    return (*dict.fromkeys(kept), *(f"-I{p}" for p in include_paths))


def _parts(made: Unit, implicit_headers: bool) -> tuple[str, ...]:
    """Which of torch's headers the source needs, so that lean sources build in seconds."""
    headers = " ".join(made.headers)
    stable = "torch/csrc/stable/" in headers or "aoti_torch/" in headers
    parts = ["STABLE"] if stable else []
    heavy = r"torch/(?:extension|types|torch|all)\.h"
    if not stable:
        heavy += r"|torch/(?:library|script)\.h|\bATen/|\bc10/"
    if implicit_headers or re.search(heavy, headers):
        parts.append("TORCH")
        if _FULL_TORCH.search(made.code):
            parts.append("ALL")
    elif "pybind11/" in headers or "PYBIND11_MODULE" in made.code:
        parts.append("PYBIND")
    return tuple(parts)


_PRELUDE = '#include "simt_solution.h"'


def _lean_bindings(request: Request) -> list[Part] | None:
    """Kernels and bindings apart, where the kernels need nothing of Python or torch."""
    cuda = unit(request.cuda, {}, _PRELUDE)
    cpp = unit(request.cpp, request.functions, _PRELUDE)
    needed = _parts(cuda, False)
    if request.implicit_headers or needed or "PYBIND11_MODULE" not in cpp.code:
        return None
    kernels = Part(cuda.code, Recipe((), request.mode))
    return [kernels, Part(cpp.code, Recipe(_parts(cpp, False), "bindings"))]


def build(request: Request) -> Path:
    """The shared library; raises NeedsGPU, SyntaxError or BuildFailed. Imports nothing."""
    parts = _lean_bindings(request)
    if parts is None:
        made = unit((*request.cuda, *request.cpp), request.functions, _PRELUDE)
        needed = _parts(made, request.implicit_headers)
        parts = [Part(made.code, Recipe(needed, request.mode))]
    return compiler.extension(parts, request.options, request.name)


def load_inline(
    name,
    cpp_sources,
    cuda_sources=None,
    functions=None,
    extra_cflags=None,
    extra_cuda_cflags=None,
    extra_ldflags=None,
    extra_include_paths=None,
    build_directory=None,
    verbose=False,
    with_cuda=None,
    is_python_module=True,
    no_implicit_headers=False,
    **_,
):
    """Same arguments and result as torch's; raises NeedsGPU or BuildFailed."""
    flags = [*_as_list(extra_cflags), *_as_list(extra_cuda_cflags)]
    request = Request(
        name=name,
        cuda=tuple(_placed(text, f"{name}.cu") for text in _as_list(cuda_sources)),
        cpp=tuple(_placed(text, f"{name}.cpp") for text in _as_list(cpp_sources)),
        functions=as_functions(functions),
        options=_options(flags, _as_list(extra_include_paths)),
        implicit_headers=not no_implicit_headers,
        mode=mode(),
    )
    library = build(request)
    runtime_library.library()
    if not is_python_module:
        return _load_operators(library)
    return _import(library)


def load(name, sources, *_, **__):
    """torch's load() of files on disk: read them and go on as with inline sources."""
    texts = {"cu": [], "cpp": []}
    for path in _as_list(sources):
        texts["cu" if str(path).endswith((".cu", ".cuh")) else "cpp"].append(Path(path).read_text())
    allowed = ("extra_cflags", "extra_cuda_cflags", "extra_include_paths", "is_python_module")
    kept = {key: value for key, value in __.items() if key in allowed}
    return load_inline(name, texts["cpp"], texts["cu"], no_implicit_headers=True, **kept)


def _load_operators(library: Path) -> None:
    import torch

    torch.ops.load_library(str(library))


def _import(library: Path) -> types.ModuleType:
    import torch  # noqa: F401  # its libraries must be in the process first

    spec = importlib.util.spec_from_file_location(library.stem, library)
    module = importlib.util.module_from_spec(spec)
    sys.modules[library.stem] = module
    spec.loader.exec_module(module)
    for name, value in list(vars(module).items()):
        if callable(value) and not name.startswith("__") and not isinstance(value, type):
            setattr(module, name, _raising_faults(value))
    return module


def _raising_faults(function):
    """The function, with a kernel's fault raised as Fault rather than as RuntimeError."""

    checked = mode() == "checked"

    @functools.wraps(function)
    def call(*args, **kwargs):
        if checked:
            know_all((args, tuple(kwargs.values())))
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            raise_fault(error)
            raise

    return call


def know_all(value) -> None:
    """Tells the runtime of every tensor in nested tuples and lists of arguments."""
    import torch

    if isinstance(value, torch.Tensor):
        runtime_library.know(value)
    elif isinstance(value, tuple | list):
        for item in value:
            know_all(item)


def raise_fault(error: RuntimeError) -> None:
    """Raises the Fault or NeedsGPU that `error` stands for; returns where it is neither."""
    found = re.match(r"needs a GPU: (.*) at (.*):(\d+) in kernel", str(error))
    if found:
        runtime_library.take_fault()
        raise NeedsGPU(found[1], int(found[3]), found[2]) from None
    if (fault := runtime_library.take_fault()) is not None:
        raise fault from None
