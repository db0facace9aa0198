"""Read a solution file without running it: damage, missing parts and signatures, named by line."""

from __future__ import annotations

import ast
import re
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from harness.records import Failed, Outcome

SOLUTION_CLASS = "ModelNew"

# Characters that pasting puts in the place of ASCII ones; Python refuses each outside of strings.
LOOKALIKES = {
    "\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " ", "\u202f": " ",
    "\u2013": "-", "\u2014": "-", "\u2212": "-", "\u00d7": "*", "\u2026": "...", "\uff08": "(",
    "\uff09": ")", "\uff0c": ",",
}  # fmt: skip
INVISIBLE = {"\u200b", "\u200c", "\u200d", "\u2060", "\u00ad", "\ufeff"}
PROSE = re.compile(
    r"^(here('s| is)|sure|certainly|below is|the following|this (code|kernel))", re.I
)


@dataclass(frozen=True)
class Signature:
    """How many positional arguments a function takes, without self."""

    required: int
    most: int | None  # None: any number
    names: tuple[str, ...]
    line: int

    def accepts(self, other: Signature) -> bool:
        """True when some call that `other` allows is a call that this one allows."""
        fewest = max(self.required, other.required)
        most = min(_or_many(self.most), _or_many(other.most))
        return fewest <= most


@dataclass(frozen=True)
class Source:
    """One class of a file, as its syntax tree shows it."""

    path: str
    text: str
    init: Signature | None  # None: inherited
    forward: Signature | None
    warnings: tuple[str, ...]


def read(path: str | Path, class_name: str = SOLUTION_CLASS) -> Source:
    """Read a solution (or with class_name="Model" a reference); raise Failed(DOES_NOT_LOAD)."""
    path = Path(path)
    text = _text(path)
    tree = _tree(path, text)
    node = _class(path, tree, class_name)
    return Source(
        path=str(path),
        text=text,
        init=_signature(node, "__init__"),
        forward=_signature(node, "forward"),
        warnings=tuple(_warnings(path, tree)),
    )


def compare(solution: Source, reference: Source) -> None:
    """Raise Failed where ModelNew cannot be built or called the way Model is."""
    for method, given in (("__init__", "get_init_inputs"), ("forward", "get_inputs")):
        got = getattr(solution, "init" if method == "__init__" else method)
        want = getattr(reference, "init" if method == "__init__" else method)
        if want is None and method == "__init__":
            want = Signature(0, 0, (), 1)
        if got is None or want is None or got.accepts(want):
            continue
        raise _fail(
            f"{solution.path}:{got.line}: {SOLUTION_CLASS}.{method}({', '.join(got.names)}) takes "
            f"{_count(got)}, but Model.{method}({', '.join(want.names)}) takes {_count(want)} "
            f"({given} of {reference.path}); give it the same arguments"
        )


def _or_many(count: int | None) -> int:
    return sys.maxsize if count is None else count


def _count(signature: Signature) -> str:
    if signature.most is None:
        return f"at least {signature.required}"
    if signature.required == signature.most:
        return f"{signature.required}"
    return f"{signature.required} to {signature.most}"


def _fail(message: str) -> Failed:
    return Failed(Outcome.DOES_NOT_LOAD, "source", message)


def _text(path: Path) -> str:
    if path.is_dir():
        raise _fail(f"{path}: is a folder; give the path of a solution file")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _fail(f"{path}: cannot be read ({error.strerror}); give the path of a file") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _fail(
            f"{path}:{line}: byte {raw[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        ) from None
    if not text.strip():
        raise _fail(f"{path}: is empty; write a class {SOLUTION_CLASS}(nn.Module)")
    if text.strip() in ("None", "null", "nan"):
        raise _fail(f"{path}: holds the word {text.strip()!r} and no code; generate the file again")
    return text


def _tree(path: Path, text: str) -> ast.Module:
    try:
        return ast.parse(text, str(path))
    except (SyntaxError, ValueError) as error:
        raise _fail(_explain_syntax(path, text, error)) from None


def _explain_syntax(path: Path, text: str, error: SyntaxError | ValueError) -> str:
    lines = text.splitlines()
    fence = next((i for i, line in enumerate(lines, 1) if line.lstrip().startswith("```")), None)
    line = min(getattr(error, "lineno", None) or 1, max(len(lines), 1))
    if fence is not None and (fence <= line or _starts_with_prose(lines)):
        return (
            f"{path}:{fence}: line {fence} is Markdown ({lines[fence - 1].strip()}); keep only the "
            "code between the fences"
        )
    if _starts_with_prose(lines):
        return f"{path}:1: line 1 is prose ({lines[0][:40]!r}); keep only the code"
    odd = _odd_character(lines, line)
    if odd:
        return f"{path}:{odd}"
    reason = getattr(error, "msg", None) or str(error)
    column = getattr(error, "offset", None) or 1
    if "unterminated" in reason or "was never closed" in reason or "unexpected EOF" in reason:
        return (
            f"{path}:{line}:{column}: {reason}; the file ends at line {len(lines)}, so it may have "
            "been cut off"
        )
    if isinstance(error, IndentationError):
        return f"{path}:{line}:{column}: {reason}; the indentation was lost or mixes tabs"
    shown = lines[line - 1].strip() if lines else ""
    return f"{path}:{line}:{column}: not valid Python ({reason}): {shown[:60]}"


def _starts_with_prose(lines: list[str]) -> bool:
    return bool(lines) and bool(PROSE.match(lines[0].strip()))


def _odd_character(lines: list[str], near: int) -> str:
    """The first lookalike or invisible character on the line Python stumbled over, or before it."""
    order = [near, *range(1, near)]
    for number in order:
        for column, character in enumerate(lines[number - 1], 1):
            if character in INVISIBLE or character in LOOKALIKES:
                name = unicodedata.name(character, "unnamed character")
                remedy = LOOKALIKES.get(character)
                fix = f"write {remedy!r}" if remedy else "delete it"
                return f"{number}:{column}: {name} (U+{ord(character):04X}); {fix}"
    return ""


def _class(path: Path, tree: ast.Module, name: str) -> ast.ClassDef:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(found) > 1:
        lines = ", ".join(str(node.lineno) for node in found)
        raise _fail(f"{path}: {len(found)} classes {name} (lines {lines}); keep one")
    if found:
        return found[0]
    nested = next((node for node in classes if node.name == name), None)
    if nested is not None:  # e.g. inside `if` or `try`: Python decides which one exists
        return nested
    others = [node.name for node in classes]
    hint = f"; the file has {', '.join(others[:4])}" if others else ""
    raise _fail(f"{path}: no class {name}{hint}; name the class {name}")


def _signature(node: ast.ClassDef, method: str) -> Signature | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == method:
            names = [a.arg for a in (*item.args.posonlyargs, *item.args.args)][1:]
            return Signature(
                required=max(len(names) - len(item.args.defaults), 0),
                most=None if item.args.vararg else len(names),
                names=tuple(names) + (("*" + item.args.vararg.arg,) if item.args.vararg else ()),
                line=item.lineno,
            )
    return None


def _warnings(path: Path, tree: ast.Module):
    siblings = {p.stem for p in path.parent.glob("*.py")} - {path.stem}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            yield f"{path}:{node.lineno}: relative import; a submission must stand alone"
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            for name in names:
                if name and name.split(".")[0] in siblings:
                    yield (
                        f"{path}:{node.lineno}: imports {name} from beside it; "
                        "a submission must stand alone"
                    )
