"""Errors out of what g++, nvcc, ptxas and the linker print, each once, in order of importance."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from harness.build_resources import demangle

GCC = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<col>\d+):)? (?:fatal )?error: (?P<text>.*)$"
)
NVCC = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): "
    r"(?:catastrophic )?error(?: #\d+(?:-D)?)?: (?P<text>.*)$"
)
END = re.compile(r"^At end of source: error(?: #\d+(?:-D)?)?: (?P<text>.*)$")
EXPANDED = re.compile(r"__attribute__\(\((global|device|host|shared|constant|managed)\)\)")
PTXAS = re.compile(r"^ptxas(?: \S+, line \d+;)?\s*(?:fatal\s*|error\s*): (?P<text>.*)$")
LINK = re.compile(r"(?:multiple definition of|undefined reference to|cannot find -l).*$")
TOOL = re.compile(
    r"^(?:nvcc|cc1plus|c\+\+|g\+\+\S*|gcc\S*|cicc|cudafe\+\+|\S*/ld|collect2|nvlink|sh|/bin/sh)(?=[\s:])"
    r".*?\b(?:fatal|error|Killed|not found)\b.*$"
)
SYSTEM = ("collect2: error: ld returned", "compilation terminated")


@dataclass(frozen=True)
class Message:
    """One error. `file` and `line` are the compiler's own; None where it gives none."""

    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    token: str = ""  # what stands at the column


def parse(output: str, own_files: tuple[str, ...]) -> tuple[Message, ...]:
    """Errors of a build log; those in `own_files` (names as given to the compiler) come first."""
    lines = output.splitlines()
    found: list[Message] = []
    for number, line in enumerate(lines):
        message = _message(line)
        if message is not None:
            if message.column is None:
                column, token = _caret(lines, number)
                message = dataclasses.replace(message, column=column, token=token)
            found.append(message)
    unique: dict[tuple, Message] = {}
    for message in found:
        unique.setdefault((message.text, message.file, message.line), message)
    own = [m for m in unique.values() if m.file in own_files]
    return (*own, *(m for m in unique.values() if m.file not in own_files))


def _message(line: str) -> Message | None:
    for pattern in (GCC, NVCC):
        if match := pattern.match(line):
            column = match.groupdict().get("col")
            where = match["file"], int(match["line"]), int(column) if column else None
            return Message(match["text"].strip(), *where)
    if line.startswith("$ ") or any(line.startswith(text) for text in SYSTEM):
        return None
    if match := END.match(line):
        return Message(f"{match['text']} (at the end of the source: a bracket is not closed)")
    if match := PTXAS.match(line):
        return Message(_plain(match["text"]))
    if match := LINK.search(line):
        return Message(_plain(match.group()))
    if TOOL.match(line):
        return Message(line.strip())
    return None


def _caret(lines: list[str], number: int) -> tuple[int | None, str]:
    """Column and word that nvcc's caret points at, below the source line indented by two.

    The column is near only: nvcc shows __global__ and other macros expanded.
    """
    for shown, below in zip(lines[number + 1 :], lines[number + 2 : number + 5], strict=False):
        if re.fullmatch(r"\s*\^\s*", below):
            at = below.index("^")
            before = EXPANDED.sub(r"__\1__", shown[2:at])
            return len(before) + 1, re.match(r"\w*", shown[at:]).group()
    return None, ""


def _plain(text: str) -> str:
    """Linker and ptxas name symbols as the machine does."""
    symbols = list(dict.fromkeys(re.findall(r"\b_Z\w+", text)))
    for symbol, name in zip(symbols, demangle(symbols), strict=True):
        text = text.replace(symbol, name)
    return text.strip().rstrip(";")
