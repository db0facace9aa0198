"""The few inline PTX forms that have a plain meaning: special registers, barriers, fences."""

from __future__ import annotations

import re

from . import tokens as tk
from .tokens import Token, after, closing, join

_REGISTERS = {
    "%laneid": "simt_lane",
    "%warpid": "simt_thread / 32",
    "%smid": "blockIdx.x % 132",
    "%nsmid": "132",
    "%lanemask_lt": "(1u << simt_lane) - 1",
    "%lanemask_le": "(2u << simt_lane) - 1",
    "%lanemask_eq": "1u << simt_lane",
    "%lanemask_ge": "~((1u << simt_lane) - 1)",
    "%lanemask_gt": "~((2u << simt_lane) - 1)",
    "%clock": "simt::ticks()",
    "%clock64": "simt::ticks()",
    "%globaltimer": "simt::ticks()",
    "%tid.x": "threadIdx.x",
    "%ctaid.x": "blockIdx.x",
}
_STATEMENTS = [
    (r"(?:membar|fence)\S*", "__threadfence()"),
    (r"prefetch\S* .*|discard\S* .*|griddepcontrol\S*|cp\.async\.(?:commit|wait)\S*.*", "(void)0"),
    (r"bar(?:rier)?\.sync(?:\.aligned)? 0", "__syncthreads()"),
    (r"(?:exit|trap)", "__trap()"),
    (r"", "(void)0"),
]
_MOVE = re.compile(r"mov\.[usb](?:32|64) %0, (%[\w.%]+)")
_OPERAND = re.compile(r'^\s*"=\w"\s*\((.*)\)\s*$', re.DOTALL)


def _meaning(arguments: list[Token]) -> str:
    """C++ for the statement, or an empty text."""
    text = "".join(t.text[1:-1] for t in arguments[: _colon(arguments)] if t.kind == "string")
    ptx = " ".join(text.replace("\\n", " ").replace("\\t", " ").replace("%%", "%").split())
    ptx = ptx.rstrip("; ")
    if move := _MOVE.fullmatch(ptx):
        outputs = arguments[_colon(arguments) + 1 :]
        target = _OPERAND.match(join(outputs[: _colon(outputs)]))
        if target and move[1] in _REGISTERS:
            return f"({target[1]}) = {_REGISTERS[move[1]]}"
    for pattern, meaning in _STATEMENTS:
        if re.fullmatch(pattern, ptx):
            return meaning
    return ""


def _colon(tokens: list[Token]) -> int:
    return next((i for i, t in enumerate(tokens) if t.text in (":", "::")), len(tokens))


def rewrite_ptx(tokens: list[Token]) -> list[Token]:
    """Known asm statements as C++; others stay, to be refused with their line."""
    out, i = [], 0
    while i < len(tokens):
        if tokens[i].text in ("asm", "__asm__") and tokens[i].kind == "name":
            j = after(tokens, i)
            while tk.text_at(tokens, j) in ("volatile", "__volatile__"):
                j = after(tokens, j)
            if tk.text_at(tokens, j) == "(":
                end = closing(tokens, j)
                if meaning := _meaning(tokens[j + 1 : end]):
                    lines = "\n" * join(tokens[i:end]).count("\n")
                    out.append(Token("punct", meaning + lines, tokens[i].line))
                    i = end + 1
                    continue
        out.append(tokens[i])
        i += 1
    return out
