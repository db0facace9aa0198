"""What can be repaired safely in a damaged solution file, in a copy, when asked to.

A repair is offered only where the result is valid Python that defines the solution's entry, and
only removes what Python itself refuses or ignores.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from harness import damage

MOST_CHARACTERS = 2000  # replaced one by one; a file with more is no pasted kernel


@dataclass(frozen=True)
class Repair:
    """The repaired text and one sentence for each step; no steps where nothing was damaged."""

    text: str
    steps: tuple[str, ...]

    def difference(self, path: Path) -> list[str]:
        """A unified diff from the file to the repaired text."""
        before = path.read_bytes().decode(_encoding(path.read_bytes()), "replace")
        lines = (before.splitlines(), self.text.splitlines())
        return list(difflib.unified_diff(*lines, str(path), f"{path} (repaired)", lineterm=""))


def repair(path: Path, entries: tuple[str, ...]) -> Repair | None:
    """The file made whole, or None where that cannot be done safely.

    entries: names of which the result must define one at its top level.
    """
    raw = path.read_bytes()
    try:
        text = raw.decode(_encoding(raw))
    except UnicodeDecodeError:
        return None
    text, steps = _marks(path, text, raw)
    for attempt in (_characters, _fenced, _prose):
        made = attempt(path, text, entries)
        if made is not None:
            return Repair(made.text, (*steps, *made.steps))
    return None


def _encoding(raw: bytes) -> str:
    return "utf-16" if raw.startswith(damage.UTF16) else "utf-8"


def _marks(path: Path, text: str, raw: bytes) -> tuple[str, tuple[str, ...]]:
    """Without byte order mark and carriage returns, both of which Python drops as well."""
    steps = []
    if _encoding(raw) == "utf-16":
        steps.append(f"{path}:1:1: UTF-16 to UTF-8")
    if text.startswith("\ufeff"):
        text = text[1:]
        steps.append(f"{path}:1:1: byte order mark removed")
    if "\r" in text:
        spot = damage.spot_of(text, text.index("\r"))
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        steps.append(f"{path}:{spot.line}:{spot.column}: CR LF to LF")
    return text, tuple(steps)


def _characters(path: Path, text: str, entries: tuple[str, ...]) -> Repair | None:
    """Lookalikes replaced, one by one and only where Python stumbles over them."""
    steps = []
    for _ in range(MOST_CHARACTERS):
        stumble = _stumble(text)
        if stumble is None:
            return Repair(text, tuple(steps)) if _defines(text, entries) else None
        lines = text.split("\n")
        spot = damage.odd_characters(lines, min(stumble, len(lines)))
        if spot is None:
            return None
        line = lines[spot.line - 1]
        character = line[spot.column - 1]
        new = damage.LOOKALIKES.get(character, "")
        lines[spot.line - 1] = line[: spot.column - 1] + new + line[spot.column :]
        steps.append(f"{path}:{spot.line}:{spot.column}: {damage.describe(character)}")
        text = "\n".join(lines)
    return None


def _stumble(text: str) -> int | None:
    """The line that Python refuses; None for valid Python."""
    try:
        ast.parse(text)
    except SyntaxError as error:
        return error.lineno or 1
    except (ValueError, RecursionError):
        return 1
    return None


def _fenced(path: Path, text: str, entries: tuple[str, ...]) -> Repair | None:
    """The one block between fences that is a solution."""
    lines = text.split("\n")
    fences = damage.fence_lines(lines)
    bounds = list(zip([0, *fences], [*fences, len(lines) + 1], strict=True))
    found = []
    for start, end in bounds if fences else []:
        made = _characters(path, "\n".join(lines[start : end - 1]).strip("\n") + "\n", entries)
        if made is not None:
            found.append((start, end, made))
    if len(found) != 1:
        return None
    start, end, made = found[0]
    step = f"{path}:{start + 1}:1: lines {start + 1} to {end - 1} kept, the Markdown around removed"
    moved = [step] if not made.steps else [step, f"and in it {len(made.steps)} characters replaced"]
    return Repair(made.text, tuple(moved))


def _prose(path: Path, text: str, entries: tuple[str, ...]) -> Repair | None:
    """Sentences before and after the code removed, where no fence divides them."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    start = first
    while start < len(lines) and (damage.is_prose(lines[start]) or not lines[start].strip()):
        start += 1
    end = len(lines)
    while end > start and (damage.is_prose(lines[end - 1]) or not lines[end - 1].strip()):
        end -= 1
    made = _characters(path, "\n".join(lines[start:end]) + "\n", entries)
    if made is None or (start == first and end == len(lines)):
        return None
    step = f"{path}:{start + 1}:1: lines {start + 1} to {end} kept, the prose around removed"
    return Repair(made.text, (step, *made.steps))


def _defines(text: str, entries: tuple[str, ...]) -> bool:
    tree = ast.parse(text)
    names = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return any(names.count(entry) == 1 for entry in entries)
