"""Compares our findings with compute-sanitizer's on a real GPU: one row for each broken kernel.

    python3 tests/simt/sanitizer_agreement.py [--jobs 4] [--only NAME ...] [--out TABLE.md]

Needs a CUDA device, nvcc and compute-sanitizer; torch from any Python. Our finding is what the
file's docstring names (test_faults.py proves that the CPU execution gives it). The honest twin
runs under the same tools. Prints a Markdown table: kind | tool | sanitizer says | marked line |
twin.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "faults"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
LIMIT_S = 120
# What each tool prints of an error, and of an error's place.
ERROR = re.compile(
    r"========= (?:(?:Error|Warning): )?("
    r"Invalid __\w+__ \w+ of size \d+.*|"
    r"Invalid __\w+__ atomic.*|"
    r"(?:Race reported|Potential \w+ hazard).*|"
    r"Uninitialized __\w+__ memory read.*|"
    r"Barrier error detected.*|"
    r"Program hit .*)"
)
PLACE = re.compile(r"cuda\.cu:(\d+)")
RUN = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("fault", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if len(sys.argv) > 2:
    getattr(module, sys.argv[2])()
    torch.cuda.synchronize()
"""


@dataclass(frozen=True)
class Said:
    """What one tool said of one function."""

    tool: str
    error: str  # the first, or "" for none, or "hangs"
    lines: tuple[int, ...]  # of the CUDA source
    exit_status: int


@dataclass(frozen=True)
class Fault:
    """One file of faults/."""

    path: Path
    finding: str
    tool: str
    marked: frozenset[int]  # lines of its CUDA source with FAULT or OTHER


def main() -> int:
    options = _options()
    faults = [_read(p) for p in sorted(FOLDER.glob("*.py"))]
    faults = [f for f in faults if not options.only or f.path.stem in options.only]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(_build, faults))
        rows = list(pool.map(_row, faults))
    table = "\n".join(
        [
            "| broken kernel | our finding | tool | compute-sanitizer says | line | honest twin |",
            "|---|---|---|---|---|---|",
            *rows,
        ]
    )
    print(table)
    if options.out:
        options.out.write_text(table + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def _read(path: Path) -> Fault:
    tree = ast.parse(path.read_text())
    fields = dict(re.findall(r"^(\w+): (.+)$", ast.get_docstring(tree), re.M))
    (cuda,) = (
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "CUDA"
    )
    lines = enumerate(cuda.splitlines(), 1)
    marked = frozenset(n for n, line in lines if re.search(r"// (FAULT|OTHER)", line))
    return Fault(path, fields["finding"], fields["sanitizer"], marked)


def _environment() -> dict[str, str]:
    wanted = {
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",  # else all tensors are one allocation to the tool
        "TORCH_CUDA_ARCH_LIST": os.environ.get("TORCH_CUDA_ARCH_LIST", "9.0"),
        "NVCC_APPEND_FLAGS": "-lineinfo",
    }
    return os.environ | wanted


def _run(command: list[str]) -> tuple[str, int]:
    """Output and exit status; -1 where it had to be killed."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(),
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=LIMIT_S)
        return out, process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0], -1


def _build(fault: Fault) -> None:
    out, status = _run([sys.executable, "-c", RUN, str(fault.path)])
    if status:
        print(f"{fault.path.stem} does not build:\n{out[-1500:]}", file=sys.stderr)


def _ask(fault: Fault, function: str, tool: str) -> Said:
    command = ["compute-sanitizer", "--tool", tool]
    if tool == "racecheck":
        command += ["--racecheck-report", "all"]
    out, status = _run([*command, sys.executable, "-c", RUN, str(fault.path), function])
    errors = ERROR.findall(out)
    error = errors[0].strip() if errors else "hangs" if status < 0 else ""
    lines = tuple(sorted({int(n) for n in PLACE.findall(out)}))
    return Said(tool, error, lines, status)


def _row(fault: Fault) -> str:
    tools = TOOLS if fault.tool == "none" else (fault.tool,)
    broken = [_ask(fault, "broken", tool) for tool in tools]
    said = next((s for s in broken if s.error), broken[0])
    twin = _ask(fault, "honest", said.tool)
    line = ""
    if said.error and said.lines and fault.marked:
        line = "the marked one" if set(said.lines) & fault.marked else f"{said.lines}"
    asked = said.tool if said.error or len(tools) == 1 else "all four"
    cells = (fault.path.stem, fault.finding, asked, said.error or "nothing", line)
    return f"| {' | '.join(cells)} | {twin.error or 'clean'} |"


if __name__ == "__main__":
    raise SystemExit(main())
