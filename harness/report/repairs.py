"""What the repair command prints and writes. The damaged file itself is never touched."""

from __future__ import annotations

from pathlib import Path

from harness import repair, source
from harness.damage import fail
from harness.records import Failed

ENTRIES = ("ModelNew", "custom_kernel", "run")
LONGEST = 60  # lines of a difference that are shown


def show(files: list[Path], into: Path | None) -> int:
    """Print each file's damage and repair, write copies into a folder; returns how many stay bad.

    Raises Failed(DOES_NOT_LOAD) where a file cannot be read or a copy would replace a file.
    """
    if into is not None:
        _refuse_to_replace(files, into)
    bad = 0
    for path in files:
        if not path.is_file():
            raise fail(f"{path}: no such file; give the path of a solution file")
        made = repair.repair(path, ENTRIES)
        if made is None:
            bad += 1
            print(f"{_complaint(path)}. It cannot be repaired safely.")
        elif not made.steps:
            print(f"{path}: nothing to repair")
        else:
            _report(path, made, into)
    return bad


def _report(path: Path, made: repair.Repair, into: Path | None) -> None:
    for step in made.steps:
        print(step)
    if into is None:
        difference = made.difference(path)
        print("\n".join(difference[:LONGEST]))
        if len(difference) > LONGEST:
            print(f"... and {len(difference) - LONGEST} more lines")
        print(f"Write the repaired copy: python run_eval.py repair {str(path)!r} --into FOLDER")
        return
    into.mkdir(parents=True, exist_ok=True)
    (into / path.name).write_text(made.text, encoding="utf-8")
    print(f"written: {into / path.name}")


def _refuse_to_replace(files: list[Path], into: Path) -> None:
    names = [path.name for path in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise fail(f"{twice}: two files of this name cannot go into one folder; repair them apart")
    there = next((name for name in names if (into / name).exists()), None)
    if there is not None:
        raise fail(f"{into / there}: is there already; give an empty folder with --into")


def _complaint(path: Path) -> str:
    for read in (source.read, lambda p: source.read_function(p, "custom_kernel")):
        try:
            read(path)
        except Failed as failed:
            return failed.failure.message
    return f"{path}: defines none of {', '.join(ENTRIES)}"
