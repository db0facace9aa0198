"""From a line of the generated .cu or .cpp back to the line of the Python file it came from."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

NEAR = 12  # lines of context that decide between equal lines, and bridge unequal ones


@dataclass(frozen=True)
class Literal:
    """A string literal of the Python file: its lines (first and last included) and its kind."""

    first: int
    last: int
    raw: bool


@dataclass(frozen=True)
class UserFile:
    """A Python file with the literals that can hold sources."""

    path: str
    lines: tuple[str, ...]
    literals: tuple[Literal, ...]

    def find(self, generated: list[str], line: int) -> int | None:
        """The line of this file where line `line` (from 1) of the generated text was written."""
        exact = self._match(generated, line)
        if exact is not None:
            return exact
        for distance in range(1, NEAR):
            for step in (-distance, distance):
                near = self._match(generated, line + step)
                if near is not None and self._inside(near - step):
                    return near - step
        return None

    def literal_at(self, line: int) -> Literal | None:
        return next((one for one in self.literals if one.first <= line <= one.last), None)

    def _match(self, generated: list[str], line: int) -> int | None:
        wanted = _normal(_at(generated, line))
        if len(wanted) < 2 and wanted not in "{}":
            return None
        candidates = [n for n in self._candidates(wanted) if self._inside(n)]
        scores = {n: self._agreement(generated, line, n) for n in candidates}
        best = max(scores.values(), default=0)
        top = [n for n, score in scores.items() if score == best]
        return top[0] if top and (len(top) == 1 or len(wanted) > 1) else None

    def _candidates(self, wanted: str) -> list[int]:
        equal = [n for n, text in enumerate(self.lines, 1) if _normal(text) == wanted]
        if equal or len(wanted) < 4:
            return equal
        return [n for n, text in enumerate(self.lines, 1) if wanted in _normal(text)]

    def _agreement(self, generated: list[str], line: int, here: int) -> int:
        return sum(
            _normal(_at(generated, line + k)) == _normal(_at(self.lines, here + k))
            for k in range(-NEAR, NEAR + 1)
        )

    def _inside(self, line: int) -> bool:
        return self.literal_at(line) is not None


def read(path: str | None) -> UserFile | None:
    """The file's lines and literals; None where it is not readable Python."""
    if path is None:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return None
    lines = tuple(text.splitlines())
    literals = [
        Literal(node.lineno, node.end_lineno, _is_raw(lines, node))
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    ]
    return UserFile(path, lines, tuple(literals))


def _is_raw(lines: tuple[str, ...], node: ast.expr) -> bool:
    # ast columns count bytes; the prefix before a literal is what matters here
    start = lines[node.lineno - 1].encode()[node.col_offset :].decode("utf-8", "replace")
    prefix = re.match(r"[A-Za-z]*", start).group()
    return "r" in prefix.lower()


def _at(lines: list[str] | tuple[str, ...], number: int) -> str:
    return lines[number - 1] if 1 <= number <= len(lines) else ""


def _normal(text: str) -> str:
    """Equal for a source line and the Python line that holds it, but for quotes around."""
    text = text.replace("{{", "{").replace("}}", "}").replace('\\"', '"').replace("\\\\", "\\")
    return " ".join(text.split())
