"""From compiler output to a few lines: where in the user's file, what, and the likely cause."""

from __future__ import annotations

import os
import re

from harness import diagnose_causes as causes
from harness import diagnose_lines, toolchain_arch
from harness.build_cache import Entry
from harness.build_recipe import Request, Source
from harness.build_resources import demangle
from harness.build_steps import Done
from harness.diagnose_lines import UserFile
from harness.diagnose_parse import Message, parse
from harness.records import Failed, Outcome

SHOWN = 3  # errors after the first
WIDTH = 110  # columns of a quoted line


def refuse_early(
    request: Request, user_file: str | None, gpu: tuple[int, int] | None = None
) -> None:
    """Raise Failed for what no compiler needs to be asked about."""
    wrong_target = toolchain_arch.mismatch(request.cuda_cflags, gpu)
    if wrong_target:
        raise _failed(f"{_shown(user_file) if user_file else request.name}: {wrong_target}")
    if request.python_module and not re.fullmatch(r"[A-Za-z_]\w*", request.name):
        where = _shown(user_file) if user_file else "load_inline"
        raise _failed(
            f"{where}: name={request.name!r} cannot name a module; use letters, digits and _"
        )


def failure(request: Request, results: tuple[Done, ...], user_file: str | None, log: str) -> Failed:
    """The Failed of a build whose commands failed: at most 12 lines with the first errors."""
    output = "\n".join(done.output for done in results if done.code)
    user = diagnose_lines.read(user_file)
    messages = parse(output, tuple(source.argument for source in request.sources))
    cause = _likely(request, messages, output, user)
    if not messages:
        tail = [line for line in output.splitlines() if line.strip() and line[0] != "$"][-3:]
        first = _shown(user_file) if user_file else request.name
        return _failed(f"{first}: the compiler failed without an error message", tail, log)
    first, *rest = messages
    details = _quoted(request, first)
    for message in rest[:SHOWN]:
        details.append(f"{_where(request, message, user)}: {_clip(message.text)}")
    if len(rest) > SHOWN:
        details.append(f"and {len(rest) - SHOWN} more errors")
    if cause:
        details.append(f"likely cause: {cause}")
    return _failed(f"{_where(request, first, user)}: {_clip(first.text, 300)}", details, log)


def load_failure(request: Request, entry: Entry, error: Exception, user_file: str | None) -> Failed:
    """The Failed of a library that was built and cannot be loaded."""
    where = _shown(user_file) if user_file else request.name
    text = f"{error} {error.__cause__ or ''}".replace(entry.library, request.library).strip()
    if match := re.search(r"undefined symbol: (\S+)", text):
        (name,) = demangle([match[1].rstrip(",")])
        cause = causes.undefined_symbol(request, name)
        return _failed(f"{where}: undefined symbol {name}", [f"likely cause: {cause}"], entry.log)
    if "PyInit_" in text:
        cause = (
            "likely cause: the sources have no PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) and "
            "functions= was not given"
        )
        return _failed(f"{where}: the library is no Python module", [cause], entry.log)
    return _failed(f"{where}: cannot be loaded: {_clip(text, 300)}", [], entry.log)


def _likely(
    request: Request, messages: tuple[Message, ...], output: str, user: UserFile | None
) -> str | None:
    odd = causes.odd_character(request)
    if odd is not None:
        place = _where(request, Message("", odd.source, odd.line), user)
        return f"{place}, {odd}"
    return causes.likely(causes.Evidence(request, messages, output))


def _where(request: Request, message: Message, user: UserFile | None) -> str:
    """solutions/x.py:47 where the line is known there; else the line of the sources argument."""
    source = _source(request, message)
    if source is None:
        base = _shown(user.path) if user else request.name
        if message.file is None or message.line is None:
            return base
        return f"{base} (in {os.path.basename(message.file)}:{message.line})"
    if source.path is not None:
        return f"{_shown(source.path)}:{message.line}"
    if source.bound is not None and message.line > source.bound:
        return _functions_line(user) if user else f"{request.name} (functions=)"
    lines = source.text.splitlines()
    found = user.find(lines, message.line) if user else None
    if found is not None:
        return f"{_shown(user.path)}:{found}"
    kind = "cuda_sources" if source.cuda else "cpp_sources"
    own = message.line - source.skip
    base = _shown(user.path) if user else request.name
    if own < 1:
        return f"{base} (headers put before {kind})"
    return f"{base} (line {own} of {kind})"


def _functions_line(user: UserFile) -> str:
    numbered = enumerate(user.lines, 1)
    found = next((n for n, line in numbered if re.search(r"\bfunctions\s*=", line)), None)
    return f"{_shown(user.path)}:{found}" if found else f"{_shown(user.path)} (functions=)"


def _source(request: Request, message: Message) -> Source | None:
    return next((s for s in request.sources if s.argument == message.file), None)


def _quoted(request: Request, message: Message) -> list[str]:
    """The offending line and a caret under it."""
    source = _source(request, message)
    if source is None or message.line is None:
        return []
    lines = source.text.splitlines()
    if not 1 <= message.line <= len(lines):
        return []
    line = lines[message.line - 1].replace("\t", " ")
    indent = len(line) - len(line.lstrip())
    quoted = [f"    {line.strip()[:WIDTH]}"]
    column = _column(line, message) - 1 - indent
    if 0 <= column < WIDTH:
        quoted.append(f"    {' ' * column}^")
    return quoted


def _column(line: str, message: Message) -> int:
    """Where the message's word stands on the line, from 1; 0 for unknown."""
    column = message.column or 0
    if not message.token:
        return column
    starts = [m.start() + 1 for m in re.finditer(rf"\b{message.token}\b", line)]
    return min(starts, key=lambda start: abs(start - column), default=column)


def _shown(path: str) -> str:
    """Relative where that is shorter: what a person would type."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else path


def _clip(text: str, width: int = 160) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _failed(message: str, details: list[str] | tuple[str, ...] = (), log: str | None = None):
    return Failed(Outcome.DOES_NOT_BUILD, "build", message, tuple(details), log)
