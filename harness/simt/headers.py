"""The headers a source includes: ours stand in for CUDA's, libraries that cannot run are left out.

A library's header alone means nothing: many sources include cublas_v2.h and never call it. What
they use of it is refused by name, in unsupported.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .tokens import Token, after, text_at

_OURS = [
    (r"cub/.*", "simt/cub.h"),
    (r"cuda/(?:std/)?atomic", "simt/cuda_atomic.h"),
    (r"cuda/std/(?!barrier|latch|semaphore).*", "simt/cuda_std.h"),
    (r"cuda/functional", "simt/cub.h"),
    (r"cooperative_groups/.*", "cooperative_groups.h"),
    (r"(?:ATen|c10)/(?:native/)?cuda/(?!impl).*", "simt/torch_cuda.h"),
]
_LEFT_OUT = re.compile(
    r"(?:cublas|cudnn|curand|cufft|cusparse|cusolver|nvrtc|nvml)\w*\.h(?:pp)?"
    r"|(?:thrust|cutlass|cute|cuda)/.*|mma\.h|cudaTypedefs\.h|nv/target"
    r"|cuda_fp[64]\.h|cuda_texture_types\.h|texture_\w+\.h|surface_\w+\.h|cuda_\w+_interop\.h"
)


def _named(tokens: list[Token], i: int) -> range:
    """Indices of the tokens that spell the header of the #include at i, brackets included."""
    j = after(tokens, i)
    if text_at(tokens, i) != "#" or text_at(tokens, j) != "include":
        return range(0)
    j = after(tokens, j)
    if j >= len(tokens) or tokens[j].kind == "string":
        return range(j, min(j + 1, len(tokens)))
    end = j
    while end < len(tokens) and tokens[end].text != ">" and "\n" not in tokens[end].text:
        end += 1
    return range(j, min(end + 1, len(tokens))) if tokens[j].text == "<" else range(0)


def _each(tokens: list[Token]) -> Iterator[tuple[int, range, str]]:
    """Every #include: its index, the tokens of its header, the header."""
    for i, token in enumerate(tokens):
        if token.text == "#" and (place := _named(tokens, i)):
            yield i, place, "".join(tokens[j].text for j in place).strip('<>"')


def includes(tokens: list[Token]) -> list[str]:
    """Headers in order."""
    return [header for _, _, header in _each(tokens)]


def _ours(header: str) -> str:
    """What to include in place of this header; an empty text for nothing."""
    for pattern, replacement in _OURS:
        if match := re.fullmatch(pattern, header):
            return match.expand(replacement)
    return "" if _LEFT_OUT.fullmatch(header) else header


def rewrite_includes(tokens: list[Token]) -> list[Token]:
    """The same tokens with headers replaced by ours, or their #include left out."""
    for i, place, header in _each(tokens):
        ours = _ours(header)
        if ours == header:
            continue
        first = i if not ours else place[0]
        for j in range(first, place[-1] + 1):
            tokens[j].text = "\n" * tokens[j].text.count("\n")
        if ours:
            tokens[place[0]].text = f"<{ours}>"
    return tokens
