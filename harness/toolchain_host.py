"""Find the host C++ compiler (one that nvcc accepts), ninja and torch, without importing torch."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.records import Failed, Outcome

OLDEST_GCC = 9  # torch's MINIMUM_GCC_VERSION is 5; C++20 headers of torch need 9.3 and later


@dataclass(frozen=True)
class Host:
    """The C++ compiler: its command and version."""

    command: tuple[str, ...]
    version: str
    clang: bool
    note: str = ""

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def label(self) -> str:
        return f"{'clang' if self.clang else 'g++'} {self.version} ({shlex.join(self.command)})"


@dataclass(frozen=True)
class Torch:
    """The installed torch as far as a build depends on it."""

    root: str
    version: str
    cuda: tuple[int, int] | None
    standard: str  # c++17 | c++20


def find_torch() -> Torch:
    """Raises Failed(ENVIRONMENT) where torch is not installed or has no CUDA build."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        raise Failed(
            Outcome.ENVIRONMENT,
            "toolchain",
            f"torch is not installed for {sys.executable}; pip install -r requirements.txt",
        )
    root = Path(spec.origin).parent
    text = (root / "version.py").read_text(encoding="utf-8")
    version = re.search(r"__version__\s*=\s*['\"]([^'\"]+)", text)
    cuda = re.search(r"^cuda\b.*=\s*['\"](\d+)\.(\d+)", text, re.M)
    build = (root / "utils" / "cpp_extension.py").read_text(encoding="utf-8")
    standards = re.findall(r"\['-std=(c\+\+\d\d)'|'-fPIC', '-std=(c\+\+\d\d)'", build)
    newest = max((a or b for a, b in standards), default="c++17")
    return Torch(
        root=str(root),
        version=version.group(1) if version else "unknown",
        cuda=(int(cuda.group(1)), int(cuda.group(2))) if cuda else None,
        standard=newest,
    )


def find_host(newest_gcc: int | None) -> Host:
    """The C++ compiler: $CXX, else c++ or g++, else a g++-N that nvcc accepts.

    newest_gcc: the last gcc release that nvcc takes, None for no limit. Raises
    Failed(ENVIRONMENT) with the remedy.
    """
    chosen = os.environ.get("CXX")
    if chosen:
        return _explicit(shlex.split(chosen), newest_gcc)
    too_new: Host | None = None
    for name in ("c++", "g++", *_numbered(newest_gcc)):
        host = ask_host((name,))
        if host is None:
            continue
        if fits(host, newest_gcc):
            note = f"uses {host.label}: {_too_new(too_new, newest_gcc)}" if too_new else ""
            return Host(host.command, host.version, host.clang, note)
        too_new = too_new or host
    if too_new is not None:
        raise _refuse(f"{_too_new(too_new, newest_gcc)}; {_remedy(newest_gcc)}")
    raise _refuse("no C++ compiler (c++, g++) on PATH; install g++ or set CXX to one")


def fits(host: Host, newest_gcc: int | None) -> bool:
    return host.clang or newest_gcc is None or host.major <= newest_gcc


def gcc_limit(cuda_include: str) -> int | None:
    """The newest gcc that this nvcc accepts, as its crt/host_config.h says."""
    path = Path(cuda_include) / "crt" / "host_config.h"
    try:
        match = re.search(r"^#if __GNUC__ > (\d+)", path.read_text(errors="replace"), re.M)
    except OSError:
        return None
    return int(match.group(1)) if match else None


def ask_host(command: tuple[str, ...]) -> Host | None:
    """The compiler behind a command, or None where it does not run."""
    if shutil.which(command[0]) is None:
        return None
    text = _ask([*command, "--version"])
    version = _ask([*command, "-dumpfullversion", "-dumpversion"]).strip().splitlines()
    if not version or not re.fullmatch(r"\d+(\.\d+)*", version[0]):
        return None
    return Host(command, version[0], "clang" in text.lower())


def find_ninja() -> str | None:
    """ninja on PATH, beside the interpreter, or inside the ninja package."""
    found = shutil.which("ninja")
    if found:
        return found
    beside = os.path.join(os.path.dirname(sys.executable), "ninja")
    if os.access(beside, os.X_OK):
        return beside
    spec = importlib.util.find_spec("ninja")
    inside = os.path.join(os.path.dirname(spec.origin), "data", "bin", "ninja") if spec else ""
    return inside if inside and os.access(inside, os.X_OK) else None


def _explicit(command: list[str], newest_gcc: int | None) -> Host:
    host = ask_host(tuple(command)) if command else None
    if host is None:
        raise _refuse(f"CXX={shlex.join(command)} is no working C++ compiler; unset it")
    if not fits(host, newest_gcc):
        raise _refuse(f"{_too_new(host, newest_gcc)}; {_remedy(newest_gcc)}")
    return host


def _too_new(host: Host, newest_gcc: int | None) -> str:
    return f"{host.label} is newer than nvcc accepts (gcc {newest_gcc} at most)"


def _remedy(newest_gcc: int | None) -> str:
    return f"install g++-{newest_gcc} and set CXX=g++-{newest_gcc}"


def _numbered(newest_gcc: int | None) -> list[str]:
    newest = newest_gcc or 15
    return [f"g++-{number}" for number in range(newest, OLDEST_GCC - 1, -1)]


def _refuse(message: str) -> Failed:
    return Failed(Outcome.ENVIRONMENT, "toolchain", message)


def _ask(command: list[str]) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")
