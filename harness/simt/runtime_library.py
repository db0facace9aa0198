"""The runtime's side of the conversation: launches, the last fault, findings."""

from __future__ import annotations

import ctypes
import functools
import json
import subprocess

from . import compiler
from .outcomes import Fault, Finding


@functools.cache
def library() -> ctypes.CDLL:
    """Loads it once for the process, before any extension that is linked to it."""
    loaded = ctypes.CDLL(str(compiler.runtime_library()))
    for name in ("simt_take_findings", "simt_take_fault"):
        getattr(loaded, name).restype = ctypes.c_char_p
    loaded.simt_take_launches.restype = ctypes.c_ulonglong
    return loaded


def kernels_run() -> int:
    """Launches since the last call."""
    return int(library().simt_take_launches())


def take_fault() -> Fault | None:
    raw = json.loads(library().simt_take_fault())
    if raw is None:
        return None
    located = _locate([raw])[0]
    if raw["kind"] == "needs a GPU":
        return None
    return Fault(
        raw["kind"],
        raw["message"],
        file=located["file"],
        line=located["line"],
        kernel=raw["kernel"],
        block=raw["block"],
        thread=raw["thread"],
    )


def findings() -> list[Finding]:
    """What the kernels of this process did wrong or slowly since the last call."""
    merged: dict[tuple, Finding] = {}
    for item in _locate(json.loads(library().simt_take_findings())):
        fields = {k: item[k] for k in ("kind", "severity", "message", "kernel", "file", "line")}
        fields |= {k: item[k] for k in ("other_file", "other_line", "count")}
        key = (item["kind"], item["kernel"], item["file"], item["line"], item["other_line"])
        if key in merged:
            fields["count"] += merged[key].count
        merged[key] = Finding(**fields)
    return list(merged.values())


def _locate(items: list[dict]) -> list[dict]:
    """Fills file and line of those that know only a program counter."""
    wanted: dict[str, set[int]] = {}
    for item in items:
        for prefix in ("", "other_"):
            if f"{prefix}module" in item:
                wanted.setdefault(item[f"{prefix}module"], set()).add(item[f"{prefix}offset"])
    places = {module: _lines_of(module, sorted(offsets)) for module, offsets in wanted.items()}
    for item in items:
        for prefix in ("", "other_"):
            if f"{prefix}module" in item:
                place = places[item[f"{prefix}module"]].get(item[f"{prefix}offset"], ("", 0))
                item[f"{prefix}file"], item[f"{prefix}line"] = place
    return items


def _lines_of(module: str, offsets: list[int]) -> dict[int, tuple[str, int]]:
    """The innermost place in the user's source for each offset, by addr2line."""
    command = ["addr2line", "-a", "-i", "-e", module, *(hex(max(o - 1, 0)) for o in offsets)]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    frames: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("0x"):
            frames.append([])
        elif frames:
            frames[-1].append(line)
    return {o: _first_user_frame(f) for o, f in zip(offsets, frames, strict=False)}


def _first_user_frame(frames: list[str]) -> tuple[str, int]:
    for frame in frames:
        file, _, line = frame.split(" (")[0].rpartition(":")
        if line.isdigit() and not _is_system(file):
            return file, int(line)
    return "", 0


def _is_system(file: str) -> bool:
    roots = ("/usr/", str(compiler.INCLUDE), str(compiler.RUNTIME))
    return file == "??" or file.startswith(roots) or "/torch/include/" in file
