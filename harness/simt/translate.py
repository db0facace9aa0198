"""A solution's CUDA and C++ sources to one C++ translation unit for the host compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .bindings import module_code
from .handles import rewrite_handles
from .headers import includes, rewrite_includes
from .launches import rewrite_launch_calls, rewrite_launches
from .portability import rewrite_host
from .ptx import rewrite_ptx
from .shared_memory import rewrite_shared
from .tokens import join, tokenize
from .unsupported import refuse


@dataclass(frozen=True)
class Source:
    """One source text and where it was written: a file and the line of its first character."""

    text: str
    file: str
    line: int = 1


@dataclass(frozen=True)
class Unit:
    """A translation unit; `headers` are those that the sources include, in order."""

    code: str
    headers: tuple[str, ...]


def translate(source: Source) -> Unit:
    """Raises NeedsGPU or SyntaxError (with the line). Line numbers are kept."""
    tokens = rewrite_ptx(tokenize(source.text, source.line))
    headers = tuple(includes(tokens))
    tokens = rewrite_includes(tokens)
    refuse(tokens, source.file)
    tokens = rewrite_launch_calls(rewrite_shared(rewrite_host(tokens)))
    tokens = rewrite_launches(rewrite_handles(tokens))
    name = source.file.replace("\\", "/").replace('"', "")
    return Unit(f'#line {source.line} "{name}"\n{join(tokens)}\n', headers)


def unit(sources: Sequence[Source], functions: dict[str, str] | None, prelude: str) -> Unit:
    """All sources in one unit: `prelude` first, then the sources, then the Python module."""
    parts = [translate(source) for source in sources if source.text.strip()]
    code = [prelude, *(part.code for part in parts)]
    if functions:
        code.append(module_code(functions))
    headers = tuple(header for part in parts for header in part.headers)
    return Unit("\n".join(code), headers)
