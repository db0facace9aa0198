"""The arguments of load_inline and load as one Request, with torch's meaning of each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.build_recipe import Request, Source, split_flags
from harness.records import Failed, Outcome

IMPLICIT_CPP = ("#include <torch/extension.h>",)
IMPLICIT_CUDA = ("#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>")


@dataclass(frozen=True)
class Strings:
    """What load_inline alone takes."""

    cpp_sources: Any
    cuda_sources: Any
    functions: Any
    no_implicit_headers: bool
    safe: bool  # with_pytorch_error_handling


@dataclass(frozen=True)
class Flags:
    """What load_inline and load both take, as it was given."""

    cflags: Any = None
    cuda_cflags: Any = None
    ldflags: Any = None
    include_paths: Any = None
    user_file: str | None = None  # relative paths are looked for beside it, too


def from_strings(name: str, written: Strings, flags: Flags, with_cuda: bool | None) -> Request:
    """Sources main.cpp and cuda.cu, with the includes and bindings that torch adds."""
    cpp, cuda = _as_list(written.cpp_sources), _as_list(written.cuda_sources)
    names = _functions(written.functions)
    implicit = not written.no_implicit_headers
    if implicit:
        cpp = [*IMPLICIT_CPP, *cpp]
        cuda = [*IMPLICIT_CUDA, *cuda] if cuda else []
    bound = _text(cpp).count("\n")
    if written.functions is not None:
        cpp += _bindings(names, written.safe)
    skip = len(IMPLICIT_CPP) if implicit else 0
    sources = [Source("main.cpp", _text(cpp), skip=skip, bound=bound)]
    if cuda:
        skip = len(IMPLICIT_CUDA) if implicit else 0
        sources.append(Source("cuda.cu", _text(cuda), skip=skip))
    return _request(name, tuple(sources), flags, with_cuda, tuple(names))


def from_files(name: str, sources: Any, flags: Flags, with_cuda: bool | None) -> Request:
    """Files are looked for in the current folder and beside the solution. Raises Failed."""
    files = tuple(_file(path, flags.user_file) for path in _as_list(sources))
    return _request(name, files, flags, with_cuda, ())


def _request(
    name: str,
    sources: tuple[Source, ...],
    flags: Flags,
    with_cuda: bool | None,
    functions: tuple[str, ...],
) -> Request:
    return Request(
        name=name,
        sources=sources,
        cflags=split_flags(flags.cflags),
        cuda_cflags=split_flags(flags.cuda_cflags),
        ldflags=split_flags(flags.ldflags),
        include_paths=tuple(
            str(_there(path, flags.user_file).absolute()) for path in _as_list(flags.include_paths)
        ),
        with_cuda=any(s.cuda for s in sources) if with_cuda is None else bool(with_cuda),
        functions=functions,
    )


def _functions(functions) -> dict[str, str]:
    """Function names and their docstrings, as torch reads a name, a list or a dict."""
    if functions is None:
        return {}
    if isinstance(functions, str):
        return {functions: functions}
    if isinstance(functions, list | tuple):
        return {str(name): str(name) for name in functions}
    if isinstance(functions, dict):
        return {str(name): str(text) for name, text in functions.items()}
    raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(functions)}")


def _bindings(functions: dict[str, str], safe: bool) -> list[str]:
    lines = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for name, text in functions.items():
        target = f"torch::wrap_pybind_function({name})" if safe else name
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'm.def("{name}", {target}, "{quoted}");')
    return [*lines, "}"]


def _file(path: str, user_file: str | None) -> Source:
    found = _there(path, user_file)
    if not found.is_file():
        sentence = f"load: there is no source file {path}"
        raise Failed(Outcome.DOES_NOT_BUILD, "build", sentence)
    text = found.read_bytes().decode("utf-8", "surrogateescape")
    return Source(found.name, text, str(found.resolve()))


def _there(path: str, user_file: str | None) -> Path:
    """A relative path beside the solution if it exists there, else in the current folder."""
    beside = Path(user_file or ".").parent / path
    return beside if beside.exists() else Path(path)


def _as_list(value) -> list[str]:
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | os.PathLike) else [str(v) for v in value]


def _text(parts: list[str]) -> str:
    return "\n".join(parts) + "\n"
