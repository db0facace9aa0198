"""Which solutions are built already, so that an unchanged one costs no process at all."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path

from harness import build_cache, build_recipe
from harness.build_cache import content
from harness.records import Build, from_dict, to_dict
from harness.toolchain import Toolchain


def recall(solution: str, device: str, tools: Toolchain) -> Build | None:
    """The Build of this file if it, what it imports, and all its libraries are as they were."""
    data = build_cache.read_json(_address(solution, device, tools))
    if data is None:
        return None
    if any(content(path) != known for path, known in data["files"].items()):
        return None
    if any(build_cache.lookup(key) is None for key in data["keys"]):
        return None
    return dataclasses.replace(from_dict(Build, data["build"]), cached=True, seconds=0.0)


def remember(build: Build, device: str, tools: Toolchain, keys: list[str], files: list[str]):
    """Keep a success for recall."""
    data = {
        "build": to_dict(build),
        "keys": keys,
        "files": {path: content(path) for path in {build.solution, *files}},
    }
    build_cache.write_json(_address(build.solution, device, tools), data)


def _address(solution: str, device: str, tools: Toolchain) -> Path:
    kind = "cuda" if device.startswith("cuda") else f"cpu {_simt_stamp()}"
    hidden = [os.environ.get(name, "") for name in build_recipe.HIDDEN_INPUTS]
    parts = [solution, content(solution), kind, tools.fingerprint, tools.arch, *hidden]
    parts.append(str(build_recipe.FORMAT))
    folder = build_cache.folder() / "solutions"
    folder.mkdir(exist_ok=True)
    return folder / f"{build_recipe.digest('|'.join(parts))}.json"


def _simt_stamp() -> str:
    files = sorted((Path(__file__).parent / "simt").rglob("*"))
    parts = [f"{f}{f.stat().st_mtime_ns}" for f in files if f.suffix in (".py", ".h", ".cuh")]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:12]
