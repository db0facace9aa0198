"""Registers, shared memory and spills per kernel, from what `ptxas -v` printed."""

from __future__ import annotations

import re
import shutil
import subprocess

from harness.records import KernelResources

ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
STACK = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
OWNER = re.compile(r"Function properties for (?P<name>\S+)")
USED = re.compile(r"Used (?P<registers>\d+) registers")
SHARED = re.compile(r"(?P<bytes>\d+)(?:\+\d+)? bytes smem")


def parse(log: str) -> tuple[KernelResources, ...]:
    """One record per __global__ function and architecture, in the order of the log."""
    kernels: list[dict] = []
    current: dict | None = None
    own = False
    for line in log.splitlines():
        if entry := ENTRY.search(line):
            current = {"name": entry["name"], "arch": entry["arch"], "stack": (0, 0, 0)}
            kernels.append(current)
        elif current is None:
            continue
        elif owner := OWNER.search(line):
            own = owner["name"] == current["name"]
        elif own and (stack := STACK.search(line)):
            current["stack"] = tuple(int(stack[k]) for k in ("stack", "stores", "loads"))
        elif used := USED.search(line):
            shared = SHARED.search(line)
            current["registers"] = int(used["registers"])
            current["shared"] = int(shared["bytes"]) if shared else 0
    names = demangle([kernel["name"] for kernel in kernels])
    return tuple(
        KernelResources(
            kernel=short(name),
            arch=kernel["arch"],
            registers=kernel.get("registers", 0),
            shared_bytes=kernel.get("shared", 0),
            local_bytes=kernel["stack"][0],
            spill_store_bytes=kernel["stack"][1],
            spill_load_bytes=kernel["stack"][2],
        )
        for name, kernel in zip(names, kernels, strict=True)
    )


def demangle(names: list[str]) -> list[str]:
    """C++ names as written in the source; unchanged where c++filt is missing."""
    program = shutil.which("c++filt")
    if not names or program is None:
        return names
    try:
        done = subprocess.run(
            [program], input="\n".join(names), capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return names
    shown = done.stdout.splitlines()
    return shown if len(shown) == len(names) else names


def short(name: str) -> str:
    """A demangled signature without return type, parameters and anonymous namespaces."""
    name = name.replace("(anonymous namespace)::", "")
    depth = 0
    for position, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            name = name[:position]
            break
    depth = 0
    for position in range(len(name) - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(name[position], 0)
        if name[position] == " " and depth == 0:
            return name[position + 1 :]
    return name
