"""The machine code of a built solution: instructions, registers and memory accesses by width."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import build, toolchain_tools
from harness.build_resources import demangle, short
from harness.records import Build, Failed, Failure, KernelResources, Outcome

LIMIT_S = 120.0
FUNCTION = re.compile(r"^\s*Function : (?P<name>\S+)")
ARCH = re.compile(r"^\s*code for (?P<arch>sm_\w+)")
CODE = re.compile(r"^\s*/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<text>.*?)\s*;\s*/\*")
OPCODE = re.compile(r"^(?:@!?U?P[T\d]\s+)?(?P<opcode>[A-Z][A-Z0-9_.]*)")
SPACES = {
    **{"LDG": "global load", "STG": "global store", "LD": "generic load", "ST": "generic store"},
    **{"LDS": "shared load", "STS": "shared store", "LDL": "local load", "STL": "local store"},
    **{"LDGSTS": "global to shared copy", "LDSM": "matrix load", "STSM": "matrix store"},
    **{"UBLKCP": "bulk copy", "UTMALDG": "tensor copy in", "UTMASTG": "tensor copy out"},
    **{"ATOMG": "global atomic", "ATOM": "generic atomic", "RED": "global reduction"},
    **{"REDG": "global reduction", "ATOMS": "shared atomic", "LDC": "constant load"},
}
WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
NO_WIDTH = ("bulk copy", "tensor copy in", "tensor copy out", "matrix load", "matrix store")


@dataclass(frozen=True)
class Access:
    """How often a kernel's code has one kind of access; `bits` per thread, None where none."""

    kind: str
    bits: int | None
    count: int


@dataclass(frozen=True)
class Kernel:
    """One kernel's machine code; `resources` where the compiler's log has them."""

    name: str
    arch: str
    code: tuple[str, ...]
    resources: KernelResources | None = None

    @property
    def accesses(self) -> tuple[Access, ...]:
        """Widest first within each kind."""
        counts = Counter(filter(None, map(_access, self.code)))
        found = [Access(kind, bits, count) for (kind, bits), count in counts.items()]
        return tuple(sorted(found, key=lambda a: (a.kind, -(a.bits or 0))))


def kernels(solution: str, device: str) -> tuple[Kernel, ...]:
    """Build the solution (or find it built) and disassemble it. Raises Failed."""
    program = toolchain_tools.find("cuobjdump")
    found = build.build_all([solution], device, lambda event: None)[solution]
    if isinstance(found, Failure):
        raise Failed(found.outcome, found.stage, found.message, found.details, found.log)
    return parse(_dump(program, _library(found)), found.kernels)


def parse(text: str, resources: tuple[KernelResources, ...] = ()) -> tuple[Kernel, ...]:
    """Kernels of what `cuobjdump -sass` printed."""
    arch, bodies = "", []
    for line in text.splitlines():
        if match := ARCH.match(line):
            arch = match["arch"]
        elif match := FUNCTION.match(line):
            bodies.append((match["name"], arch, []))
        elif bodies and (match := CODE.match(line)):
            bodies[-1][2].append(f"{match['at']}  {match['text']}")
    names = [short(name) for name in demangle([name for name, _, _ in bodies])]
    known = {(k.kernel, k.arch.rstrip("af")): k for k in resources}
    return tuple(
        Kernel(name, arch, tuple(code), known.get((name, arch.rstrip("af"))))
        for name, (_, arch, code) in zip(names, bodies, strict=True)
    )


def digest(kernel: Kernel) -> Iterator[str]:
    """Lines a kernel author reads before the code."""
    used = kernel.resources
    size = f"{len(kernel.code)} instructions"
    if used is None:
        yield f"{kernel.name} ({kernel.arch}): {size}"
    else:
        spilled = used.spill_store_bytes + used.spill_load_bytes
        yield (
            f"{kernel.name} ({kernel.arch}): {used.registers} registers, {used.shared_bytes} B "
            f"shared, {spilled} B spilled, {size}"
        )
    for access in kernel.accesses:
        width = f"{access.bits:4}-bit" if access.bits else " " * 8
        yield f"  {access.count:5} x {width} {access.kind}"


def _access(line: str) -> tuple[str, int | None] | None:
    match = OPCODE.match(line.split("  ", 1)[1])
    base, *modifiers = match["opcode"].split(".") if match else ("",)
    kind = SPACES.get(base)
    if kind is None:
        return None
    if kind in NO_WIDTH:
        return kind, None
    return kind, next((WIDTHS[m] for m in modifiers if m in WIDTHS), 32)


def _library(built: Build) -> Path:
    libraries = sorted(Path(built.log).parent.glob("*.so")) if built.log else []
    if not libraries:
        raise Failed(
            Outcome.DOES_NOT_LOAD,
            "sass",
            f"{built.solution}: no load_inline was called while it was imported, so there is no "
            "machine code to show; call load_inline at the top of the file",
        )
    return libraries[0]


def _dump(program: str, library: Path) -> str:
    try:
        done = subprocess.run(
            [program, "-sass", str(library)], capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise _unreadable(library, f"not done within {LIMIT_S:.0f} s") from None
    if done.returncode or "Function :" not in done.stdout:
        raise _unreadable(library, (done.stderr.strip() or "no kernel in it").splitlines()[0])
    return done.stdout


def _unreadable(library: Path, why: str) -> Failed:
    return Failed(
        Outcome.ENVIRONMENT, "sass", f"cuobjdump gives no machine code of {library}: {why}"
    )
