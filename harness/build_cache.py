"""Built libraries, kept under the hash of all that went into them.

A library is built in a folder of its own and renamed into place whole, so a killed build leaves
nothing that a later one could mistake for a result, nobody waits for a lock, and two builds of
the same thing at once end with one of the two equal results. Only successes are kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import cache
from harness.records import KernelResources, from_dict, to_dict

ABANDONED_S = 6 * 3600  # a scratch folder this old belongs to no running build


@dataclass(frozen=True)
class Entry:
    """One built library. `folder` holds it beside its sources and the compiler's log."""

    key: str
    library: str  # absolute path
    seconds: float
    kernels: tuple[KernelResources, ...] = ()
    cached: bool = False

    @property
    def folder(self) -> str:
        return os.path.dirname(self.library)

    @property
    def log(self) -> str:
        return os.path.join(self.folder, "log.txt")


def folder() -> Path:
    path = cache.root() / "build"
    with contextlib.suppress(PermissionError):  # a confined process reads what is there
        path.mkdir(parents=True, exist_ok=True)
    return path


def wanted() -> Path:
    """Where the cache belongs; cache.root() is elsewhere when this cannot be written."""
    chosen = os.environ.get("STEELYARD_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "steelyard"


def notice() -> str | None:
    """One sentence where builds do not go to the folder they belong in."""
    if cache.root() == wanted():
        return None
    return (
        f"{wanted()} cannot be written: builds go to {cache.root()} "
        "(set STEELYARD_CACHE to a folder that can)"
    )


def lookup(key: str) -> Entry | None:
    """The entry of a key, if it is there and every header it read still has the same content."""
    for place in dict.fromkeys((folder(), wanted() / "build")):
        manifest = read_json(place / f"{key}.json")
        if manifest is None:
            continue
        headers = manifest.get("headers", [])
        data = read_json(place / _address(key, headers) / "entry.json")
        if data is None:
            continue
        entry = from_dict(Entry, data)
        if os.path.exists(entry.library):
            return dataclasses.replace(entry, cached=True)
    return None


@contextlib.contextmanager
def workspace(key: str) -> Iterator[Path]:
    """A private folder on the cache's file system; gone afterwards, whatever happens."""
    try:
        (folder() / "tmp").mkdir(exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=f"{key[:12]}-", dir=folder() / "tmp"))
    except OSError:  # confined to a scratch folder: build there, for this process only
        path = Path(tempfile.mkdtemp(prefix="steelyard-build-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def publish(work: Path, entry: Entry, headers: list[str]) -> Entry:
    """Move a finished work folder into place; `entry.library` is a file name inside it.

    Where the cache cannot be written, into a folder that lasts as long as the temporary ones.
    """
    target = folder() / _address(entry.key, headers)
    shared = os.access(folder(), os.W_OK) and work.parent == folder() / "tmp"
    if not shared:
        target = Path(tempfile.mkdtemp(prefix="steelyard-built-")) / target.name
    entry = dataclasses.replace(entry, library=str(target / entry.library))
    (work / "entry.json").write_text(json.dumps(to_dict(entry)), encoding="utf-8")
    for _ in range(3):
        try:
            os.rename(work, target)
            break
        except OSError:  # another build of the same thing was first
            if (target / "entry.json").exists() and os.path.exists(entry.library):
                break
            shutil.rmtree(target, ignore_errors=True)
    if shared:
        write_json(folder() / f"{entry.key}.json", {"headers": headers})
    return entry


def sweep() -> None:
    """Remove the scratch folders of builds that were killed long ago."""
    for path in (folder() / "tmp").glob("*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)


def write_json(path: Path, data) -> None:
    """Write whole or not at all."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(data, file)
    os.replace(scratch, path)


def content(path: str) -> str:
    """Hash of a file's bytes; of nothing where it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return "absent"


def _address(key: str, headers: list[str]) -> str:
    parts = [key, *(f"{path}={content(path)}" for path in headers)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def read_json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
