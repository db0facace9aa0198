"""The runtime's side of the conversation: launches, the last fault, findings."""

from __future__ import annotations

import ctypes
import functools
import json
import subprocess

from . import compiler
from .outcomes import Fault, Finding
from .traffic import Traffic


@functools.cache
def library() -> ctypes.CDLL:
    """Loads it once for the process, before any extension that is linked to it."""
    loaded = ctypes.CDLL(str(compiler.runtime_library()))
    for name in ("simt_take_findings", "simt_take_fault", "simt_take_traffic"):
        getattr(loaded, name).restype = ctypes.c_char_p
    loaded.simt_add_allocation.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    loaded.simt_take_launches.restype = ctypes.c_ulonglong
    return loaded


def kernels_run() -> int:
    """Launches since the last call."""
    return int(library().simt_take_launches())


def track_torch() -> None:
    """From now on torch's CPU tensors have known bounds and known unwritten contents."""
    library()
    ctypes.CDLL(str(compiler.torch_allocator())).simt_track_torch()


def know(tensor) -> None:
    """Tells the runtime where a tensor's memory lies that torch did not allocate itself."""
    storage = tensor.untyped_storage()
    if storage.nbytes():
        library().simt_add_allocation(storage.data_ptr(), storage.nbytes(), 0)


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
    places = traffic()
    return [*merged.values(), *(f for place in places for f in place.findings())]


def traffic() -> list[Traffic]:
    """Loads and stores of checked kernels since the last call, by line and kernel."""
    raw = _locate(json.loads(library().simt_take_traffic()))
    merged: dict[tuple, Traffic] = {}
    for item in raw:
        numbers = {name: item[name] for name in Traffic.COUNTS}
        key = (item["kernel"], item["file"], item["line"], item["write"], item["shared"])
        if not item["line"]:
            continue
        here = Traffic(
            item["kernel"],
            item["file"],
            item["line"],
            bool(item["write"]),
            bool(item["shared"]),
            **numbers,
        )
        merged[key] = merged[key] + here if key in merged else here
    return sorted(merged.values(), key=lambda t: (t.file, t.line))


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
