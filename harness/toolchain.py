"""What a build needs, found once: nvcc, headers, libraries, host compiler, torch, architecture.

Nothing here imports torch. Trouble with the machine is one Failed(ENVIRONMENT) with its remedy,
raised before any solution is looked at.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness import toolchain_arch as arch
from harness import toolchain_cuda as cuda
from harness import toolchain_host as host
from harness.records import Failed, Outcome

VARIABLES = ("CUDA_HOME", "CUDA_PATH", "PATH", "CXX", "TORCH_CUDA_ARCH_LIST")


@dataclass(frozen=True)
class Toolchain:
    """A set of tools that fit one another. `arch` is "9.0"; paths are absolute."""

    cuda: cuda.Cuda
    host: host.Host
    torch: host.Torch
    arch: str
    ninja: str | None
    python_include: str
    gpu: tuple[int, int] | None = None  # compute capability of the device, None without one
    notes: tuple[str, ...] = ()

    @property
    def nvcc(self) -> str:
        return self.cuda.nvcc

    @property
    def host_command(self) -> tuple[str, ...]:
        return self.host.command

    @property
    def includes(self) -> tuple[str, ...]:
        """System include folders in torch's order, then pip's CUDA headers for what is missing."""
        torch_include = os.path.join(self.torch.root, "include")
        folders = [
            torch_include,
            os.path.join(torch_include, "torch", "csrc", "api", "include"),
            cuda.include_dir(self.cuda.root),
            self.python_include,
        ]
        for nvidia in cuda.site_folders():
            folders += sorted(str(folder) for folder in Path(nvidia).glob("c*/include"))
        return tuple(dict.fromkeys(folders))

    @property
    def library_dirs(self) -> tuple[str, ...]:
        folders = [os.path.join(self.torch.root, "lib"), *cuda.library_dirs(self.cuda.root)]
        for nvidia in cuda.site_folders():
            folders += sorted(str(folder) for folder in Path(nvidia).glob("*/lib"))
        return tuple(dict.fromkeys(folders))

    @property
    def fingerprint(self) -> str:
        """Changes when a tool is replaced: its builds are not taken for its successor's."""
        tools = (self.cuda.nvcc, self.host_command[0], os.path.join(self.torch.root, "version.py"))
        parts = [self.cuda.build, self.host.version, self.torch.version, self.python_include]
        parts += [_stamp(tool) for tool in tools]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def find(device: str = "cpu") -> Toolchain:
    """The toolchain for "cpu" or "cuda:N". Raises Failed(ENVIRONMENT) with the remedy."""
    return _find(device, tuple(os.environ.get(name) for name in VARIABLES))


@lru_cache(maxsize=8)
def _find(device: str, _environment: tuple[str | None, ...]) -> Toolchain:
    torch = host.find_torch()
    if torch.cuda is None:
        raise Failed(
            Outcome.ENVIRONMENT,
            "toolchain",
            f"torch {torch.version} is a CPU-only build; install a CUDA build of torch "
            "(pip install -r requirements.txt)",
        )
    found, rejected = cuda.search(torch.cuda)
    if found is None:
        raise _no_cuda(torch, rejected)
    compiler = host.find_host(host.gcc_limit(cuda.include_dir(found.root)))
    number, arch_note = arch.choose(device)
    return Toolchain(
        cuda=found,
        host=compiler,
        torch=torch,
        arch=number,
        ninja=host.find_ninja(),
        python_include=sysconfig.get_path("include"),
        gpu=arch.capability(device),
        notes=tuple(filter(None, (*_passed_over(found, rejected), compiler.note, arch_note))),
    )


def _no_cuda(torch: host.Torch, rejected: tuple[cuda.Rejected, ...]) -> Failed:
    wanted = f"{torch.cuda[0]}.{torch.cuda[1]}"
    looked = tuple(f"{one.place}: {one.reason}" for one in rejected)
    why = f" ({looked[0]})" if looked else " (looked at CUDA_HOME, PATH, /usr/local/cuda*, pip)"
    return Failed(
        Outcome.ENVIRONMENT,
        "toolchain",
        f"no nvcc that fits torch {torch.version}, built with CUDA {wanted}{why}; "
        f"pip install 'cuda-toolkit[nvcc,cccl]=={wanted}.*' or set CUDA_HOME to a CUDA {wanted}",
        looked,
    )


def _passed_over(found: cuda.Cuda, rejected: tuple[cuda.Rejected, ...]) -> list[str]:
    """Only what the user named, or what is first on PATH, deserves a word."""
    named = [one for one in rejected if not one.place.endswith(("(folder)", "(pip)"))]
    return [f"{one.place}: {one.reason}; uses {found.root}" for one in named]


def _stamp(path: str) -> str:
    real = os.path.realpath(shutil.which(path) or path)
    try:
        status = os.stat(real)
    except OSError:
        return real
    return f"{real} {status.st_size} {status.st_mtime_ns}"
