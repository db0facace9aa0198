"""What pasting, saving and generating do to a file: each damage named by line and column."""

from __future__ import annotations

import ast
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from harness.records import Failed, Outcome

# Characters that pasting puts in the place of ASCII ones; Python refuses each outside of strings.
LOOKALIKES = {
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " ",
    "\u2007": " ", "\u2009": " ", "\u202f": " ", "\u3000": " ", "\u2013": "-", "\u2014": "-",
    "\u2212": "-", "\u00d7": "*", "\u2026": "...", "\uff08": "(", "\uff09": ")", "\uff0c": ",",
    "\uff1a": ":", "\uff1d": "=",
}  # fmt: skip
INVISIBLE = {"\u200b", "\u200c", "\u200d", "\u200e", "\u200f", "\u2060", "\u00ad", "\ufeff"}
EMPTY_WORDS = ("None", "null", "nan", "NaN", "undefined")
UTF16 = (b"\xff\xfe", b"\xfe\xff")
FENCE = re.compile(r"^\s*(```|~~~)")
PROSE = re.compile(
    r"^(here('s| is)|sure|certainly|below is|the following|this (code|kernel)"
    r"|[A-Z][\w',-]*( [\w'`\"(),/-]+){3,} ?[.:!]$)",
    re.I,
)
CUT_OFF = ("unterminated", "was never closed", "unexpected EOF")


@dataclass(frozen=True)
class Spot:
    """A place in a file, both counted from 1."""

    line: int
    column: int


def text_of(path: Path) -> str:
    """The file's text without a byte order mark. Raises Failed(DOES_NOT_LOAD)."""
    if path.is_dir():
        raise fail(f"{path}: is a folder; give the path of a solution file")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise fail(f"{path}: cannot be read ({error.strerror}); give the path of a file") from None
    if raw.startswith(UTF16):
        raise fail(f"{path}:1:1: is UTF-16, as some editors save it; save it as UTF-8")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise fail(_undecodable(path, raw, error)) from None
    if not text.strip():
        raise fail(f"{path}:1:1: is empty; write the solution into it")
    if text.strip() in EMPTY_WORDS:
        raise fail(
            f"{path}:1:1: holds the word {text.strip()!r} and no code, as where nothing was "
            "generated; generate the file again"
        )
    if "\0" in text:
        spot = spot_of(text, text.index("\0"))
        raise fail(f"{path}:{spot.line}:{spot.column}: a NUL character; the file is damaged")
    return text


def tree_of(path: Path, text: str) -> ast.Module:
    """The syntax tree. Raises Failed(DOES_NOT_LOAD) with the likely cause."""
    try:
        return ast.parse(text, str(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise fail(_explain(path, text, error)) from None


def notes(path: Path, text: str) -> tuple[str, ...]:
    """Damage that Python does not mind and others may."""
    found = []
    raw = path.read_bytes()
    if raw.startswith(b"\xef\xbb\xbf"):
        found.append(f"{path}:1:1: starts with a byte order mark (U+FEFF); other readers refuse it")
    if b"\r\n" in raw:
        line = raw.split(b"\r\n", 1)[0]
        row, column = line.count(b"\n") + 1, len(line.rsplit(b"\n", 1)[-1].decode("utf-8-sig")) + 1
        found.append(f"{path}:{row}:{column}: lines end in CR LF; other readers may mind")
    return tuple(found)


def odd_in_cuda(path: Path, text: str, tree: ast.Module) -> tuple[str, ...]:
    """Lookalikes in the code (not the comments) of strings that hold CUDA or C++."""
    lines = lines_of(text)
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if "__global__" not in node.value and "#include" not in node.value:
            continue
        code = _without_c_comments("\n".join(lines[node.lineno - 1 : node.end_lineno]))
        for number, line in enumerate(code.split("\n"), node.lineno):
            spot = next((i for i, c in enumerate(line, 1) if _odd(c)), None)
            if spot:
                found.append(f"{path}:{number}:{spot}: {describe(line[spot - 1])} in CUDA code")
                break
    return tuple(found)


def odd_characters(lines: list[str], near: int) -> Spot | None:
    """The first lookalike or invisible character on the line Python stumbled over, or before it."""
    for number in (near, *range(1, near)):
        for column, character in enumerate(lines[number - 1], 1):
            if _odd(character):
                return Spot(number, column)
    return None


def describe(character: str) -> str:
    """Such as NO-BREAK SPACE (U+00A0); write ' '."""
    name = unicodedata.name(character, "unnamed character")
    remedy = LOOKALIKES.get(character)
    return f"{name} (U+{ord(character):04X}); " + (f"write {remedy!r}" if remedy else "delete it")


def fence_lines(lines: list[str]) -> list[int]:
    """Numbers of the lines that open or close a Markdown code block."""
    return [number for number, line in enumerate(lines, 1) if FENCE.match(line)]


def is_prose(line: str) -> bool:
    return bool(PROSE.match(line.strip()))


def lines_of(text: str) -> list[str]:
    """Lines as Python counts them: str.splitlines also divides at form feeds and others."""
    return text.replace("\r\n", "\n").rstrip("\n").split("\n")


def spot_of(text: str, index: int) -> Spot:
    start = text.rfind("\n", 0, index) + 1
    return Spot(text.count("\n", 0, index) + 1, index - start + 1)


def fail(message: str) -> Failed:
    return Failed(Outcome.DOES_NOT_LOAD, "source", message)


def _odd(character: str) -> bool:
    return character in INVISIBLE or character in LOOKALIKES


def _undecodable(path: Path, raw: bytes, error: UnicodeDecodeError) -> str:
    line = raw.count(b"\n", 0, error.start) + 1
    before = raw[raw.rfind(b"\n", 0, error.start) + 1 : error.start]
    column = len(before.decode("utf-8", "replace")) + 1
    return (
        f"{path}:{line}:{column}: byte {raw[error.start]:#04x} is not UTF-8; save the file as UTF-8"
    )


def _explain(path: Path, text: str, error: Exception) -> str:
    lines = lines_of(text)
    line = min(getattr(error, "lineno", None) or 1, max(len(lines), 1))
    column = max(getattr(error, "offset", None) or 1, 1)
    reason = getattr(error, "msg", None) or str(error) or type(error).__name__
    pasted = _markdown_or_prose(path, lines, line)
    if pasted:
        return pasted
    odd = odd_characters(lines, line)
    if odd:
        return f"{path}:{odd.line}:{odd.column}: {describe(lines[odd.line - 1][odd.column - 1])}"
    if any(words in reason for words in CUT_OFF):
        return (
            f"{path}:{line}:{column}: {reason}; the file ends at line {len(lines)}, so it may have "
            "been cut off"
        )
    if isinstance(error, IndentationError):
        return f"{path}:{line}:{column}: {reason}; the indentation was lost or mixes tabs"
    shown = lines[line - 1].strip() if lines else ""
    return f"{path}:{line}:{column}: not valid Python ({reason}): {shown[:60]}"


def _markdown_or_prose(path: Path, lines: list[str], line: int) -> str:
    """The sentence for a file that is an answer in a chat rather than code; "" for others."""
    fences = fence_lines(lines)
    first = next((n for n, text in enumerate(lines, 1) if text.strip()), 1)
    if fences and (fences[0] <= line or is_prose(lines[first - 1])):
        number = fences[0]
        column = len(lines[number - 1]) - len(lines[number - 1].lstrip()) + 1
        mark = lines[number - 1].strip()[:20]
        return (
            f"{path}:{number}:{column}: line {number} is Markdown ({mark}); keep only the code "
            "between the fences"
        )
    for number in (line, first):
        if is_prose(lines[number - 1]):
            shown = lines[number - 1].strip()[:40]
            return f"{path}:{number}:1: line {number} is prose ({shown!r}); keep only the code"
    return ""


def _without_c_comments(code: str) -> str:
    """The same with the characters of comments as blanks, so that columns stay."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())  # noqa: E731
    return re.sub(r"/\*.*?\*/|//[^\n]*", blank, code, flags=re.S)
