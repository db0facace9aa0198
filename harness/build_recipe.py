"""One library to build: its sources and flags, the commands that build it, and its cache key."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from harness import toolchain_arch
from harness.toolchain import Toolchain

FORMAT = 1  # raise it when the commands below change their meaning

# What torch passes to nvcc, too.
NVCC_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)
TORCH_LIBRARIES = ("-ltorch_cpu", "-ltorch", "-lc10")
CUDA_LIBRARIES = ("-lc10_cuda", "-ltorch_cuda")
HIDDEN_INPUTS = (
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
)


@dataclass(frozen=True)
class Source:
    """A file to compile: `text`, written as `name` in the work folder unless it lies at `path`."""

    name: str
    text: str
    path: str | None = None
    skip: int = 0  # lines at the top that are not the user's
    bound: int | None = None  # the last line before generated bindings

    @property
    def argument(self) -> str:
        return self.path or self.name

    @property
    def cuda(self) -> bool:
        return self.name.endswith((".cu", ".cuh"))


@dataclass(frozen=True)
class Request:
    """What load_inline or load was asked for."""

    name: str
    sources: tuple[Source, ...]
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    with_cuda: bool = True
    python_module: bool = True
    standalone: bool = False
    functions: tuple[str, ...] = ()

    @property
    def library(self) -> str:
        """File name of the result."""
        return re.sub(r"\W", "_", self.name) + ("" if self.standalone else ".so")


@dataclass(frozen=True)
class Compile:
    """One source to one object: the command without source and output."""

    source: Source
    output: str
    command: tuple[str, ...]
    nvcc: bool
    key: str


@dataclass(frozen=True)
class Recipe:
    """All commands of one request, with paths relative to the work folder."""

    request: Request
    compiles: tuple[Compile, ...]
    link: tuple[str, ...]
    key: str
    torch_root: str


def plan(request: Request, tools: Toolchain) -> Recipe:
    """Commands and key of a request; equal inputs give an equal key."""
    compiles = tuple(_compile(source, request, tools) for source in request.sources)
    link = _link(request, tools, [one.output for one in compiles])
    key = digest(json.dumps([[one.key for one in compiles], link, tools.fingerprint]))
    return Recipe(request, compiles, link, key, tools.torch.root)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def split_flags(flags: list[str] | tuple[str, ...] | str | None) -> tuple[str, ...]:
    """Flags as a shell would split them, since torch pastes them into a shell command."""
    words: list[str] = []
    for flag in [flags] if isinstance(flags, str) else flags or ():
        try:
            words += shlex.split(str(flag))
        except ValueError:
            words.append(str(flag).strip())
    return tuple(words)


def _compile(source: Source, request: Request, tools: Toolchain) -> Compile:
    nvcc = source.cuda and request.with_cuda
    command = _nvcc(request, tools) if nvcc else _host(request, tools)
    output = Path(source.name).stem + (".cuda.o" if nvcc else ".o")
    environment = [os.environ.get(name) for name in HIDDEN_INPUTS]
    inputs = [FORMAT, tools.fingerprint, command, source.argument, source.text, environment]
    return Compile(source, output, command, nvcc, digest(json.dumps(inputs)))


def _common(request: Request, tools: Toolchain) -> tuple[str, ...]:
    defines: tuple[str, ...] = ()
    if not request.standalone:
        defines = (f"-DTORCH_EXTENSION_NAME={request.name}", "-DTORCH_API_INCLUDE_EXTENSION_H")
    user = tuple(f"-I{os.path.abspath(folder)}" for folder in request.include_paths)
    system = tuple(word for folder in tools.includes for word in ("-isystem", folder))
    return (*defines, *user, *system)


def _host(request: Request, tools: Toolchain) -> tuple[str, ...]:
    standard = f"-std={tools.torch.standard}"
    common = _common(request, tools)
    return (*tools.host_command, *common, "-fPIC", standard, *request.cflags)


def _nvcc(request: Request, tools: Toolchain) -> tuple[str, ...]:
    user = request.cuda_cflags
    text = "\n".join(source.text for source in request.sources)
    gencode = toolchain_arch.flags(tools.arch, text, user)
    standard = () if any(f.startswith("-std=") for f in user) else (f"-std={tools.torch.standard}",)
    compiler = () if "NVCC_CCBIN" in os.environ else ("-ccbin", tools.host_command[-1])
    return (
        tools.nvcc,
        *compiler,
        *_common(request, tools),
        *NVCC_FLAGS,
        *gencode,
        "-Xcompiler",
        "-fPIC",
        *user,
        *standard,
    )


def _link(request: Request, tools: Toolchain, objects: list[str]) -> tuple[str, ...]:
    kind = () if request.standalone else ("-shared",)
    libraries = list(TORCH_LIBRARIES)
    if request.with_cuda:
        libraries += CUDA_LIBRARIES
    if not request.standalone:
        libraries.append("-ltorch_python")
    if request.with_cuda:
        libraries.append("-lcudart")
    folders = tools.library_dirs
    run_path = f"-Wl,-rpath,{os.path.join(tools.torch.root, 'lib')}"
    return (
        *tools.host_command,
        *objects,
        *kind,
        *(library(flag, folders) for flag in request.ldflags),
        *(f"-L{folder}" for folder in folders),
        *(library(flag, folders) for flag in libraries),
        *((run_path,) if request.standalone else ()),
        "-o",
        request.library,
    )


def library(flag: str, folders: tuple[str, ...]) -> str:
    """-lcudart as -l:libcudart.so.13 where pip's folders lack the plain link; else unchanged."""
    match = re.fullmatch(r"-l(\w+)", flag)
    if match is None:
        return flag
    name = f"lib{match[1]}"
    for folder in folders:
        if any(os.path.exists(os.path.join(folder, name + end)) for end in (".so", ".a")):
            return flag
    for folder in folders:
        versioned = sorted(path.name for path in Path(folder).glob(f"{name}.so.[0-9]*"))
        if versioned:
            return f"-l:{versioned[0]}"
    return flag
