"""Read a file about to be sent with its receiver's eyes, without running it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from harness.receivers import Ban, Finding, Level, Receiver

MANY = 3  # lines named for one rule


def scan(name: str, text: str, receiver: Receiver) -> tuple[Finding, ...]:
    """Findings on size, encoding, imports and the receiver's word lists. `name`: shown as file."""
    return (
        *_size(name, text, receiver),
        *_encoding(name, text, receiver),
        *_imports(name, text),
        *_words(name, text, receiver),
        *_future(name, text, receiver),
    )


def shared_names(name: str, text: str, problem: str, receiver: Receiver) -> tuple[Finding, ...]:
    """Names that the solution would overwrite in the problem it is judged against."""
    if not receiver.shares_names:
        return ()
    theirs = {entry for entry, _ in top_level(problem)}
    return tuple(
        Finding(
            Level.REFUSED,
            f"{name}:{line}: {entry} is also a name of the problem, and {receiver.title} runs both "
            "in one namespace, so the problem would change; rename it",
        )
        for entry, line in top_level(text)
        if entry in theirs
    )


def _size(name: str, text: str, receiver: Receiver) -> Iterator[Finding]:
    size = len(text.encode())
    if receiver.most_bytes is not None and size > receiver.most_bytes:
        yield Finding(
            Level.REFUSED,
            f"{name}: {size} bytes, and {receiver.title} takes {receiver.most_bytes}; shorten it",
        )


def _encoding(name: str, text: str, receiver: Receiver) -> Iterator[Finding]:
    odd = [(number, line) for number, line in enumerate(text.splitlines(), 1) if not line.isascii()]
    if odd and receiver.locale_encoding:
        number, line = odd[0]
        column = next(i for i, c in enumerate(line, 1) if not c.isascii())
        yield Finding(
            Level.WARNING,
            f"{name}:{number}:{column}: {line[column - 1]!r} is not ASCII ({len(odd)} lines), and "
            f"{receiver.title} uses its machine's own encoding; ASCII is safe",
        )


def _imports(name: str, text: str) -> Iterator[Finding]:
    allowed = {*sys.stdlib_module_names, "torch", "numpy", "task"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield Finding(
                Level.REFUSED,
                f"{name}:{node.lineno}: relative import; one file is sent, put the code into it",
            )
            continue
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module]
        for module in modules:
            if module.split(".")[0] not in allowed:
                yield Finding(
                    Level.WARNING,
                    f"{name}:{node.lineno}: imports {module}, which the receiver may not have",
                )


def _words(name: str, text: str, receiver: Receiver) -> Iterator[Finding]:
    bare = _without_comments(text)
    for ban in receiver.bans:
        yield from _banned(name, bare if ban.after_comments else text, ban, receiver)
    for wanted in receiver.required:
        if not re.search(wanted.pattern, bare):
            yield Finding(Level.REFUSED, f"{name}: {receiver.title} wants {wanted.means}")


def _banned(name: str, text: str, ban: Ban, receiver: Receiver) -> Iterator[Finding]:
    hits = list(ban.regex.finditer(text))
    if not hits:
        return
    lines = list(dict.fromkeys(text.count("\n", 0, hit.start()) + 1 for hit in hits))
    also = ", ".join(str(line) for line in lines[1:MANY])
    more = f" (also {also}{', ...' if len(lines) > MANY else ''})" if also else ""
    yield Finding(
        Level.REFUSED if ban.refuses else Level.WARNING,
        f"{name}:{lines[0]}: {hits[0].group().strip()!r}{more}: {ban.means} at {receiver.title} "
        f"(rules of {receiver.read_on})",
    )


def _without_comments(text: str) -> str:
    """Lines cut at # or //, which is how KernelBench strips comments, CUDA's #include too."""
    return "\n".join(line.split("#")[0].split("//")[0] for line in text.split("\n"))


def _future(name: str, text: str, receiver: Receiver) -> Iterator[Finding]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__" and receiver.prefixed:
            yield Finding(
                Level.REFUSED,
                f"{name}:{node.lineno}: {receiver.title} puts statements before the file, and "
                "from __future__ must come first; leave it out",
            )


def top_level(text: str) -> Iterator[tuple[str, int]]:
    """Names that a module defines, imports left out: two imports of one thing do no harm."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        targets = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
            targets = [node.target]
        for target in targets:
            for leaf in ast.walk(target):
                if isinstance(leaf, ast.Name):
                    yield leaf.id, leaf.lineno
