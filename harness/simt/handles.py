"""A kernel cast to void* stays launchable: the cast enters it in a table by its address."""

from __future__ import annotations

from . import tokens as tk
from .tokens import Token, after, before, closing, text_at

_ATTRIBUTES = ("__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__attribute__", "alignas")
_CASTS = ("reinterpret_cast", "static_cast")


def kernel_names(tokens: list[Token]) -> set[str]:
    """Names of the functions declared __global__."""
    found = set()
    for i, token in enumerate(tokens):
        if token.text == "__global__":
            found.add(_declared(tokens, i))
    return found - {""}


def rewrite_handles(tokens: list[Token]) -> list[Token]:
    """`(void*)kernel` becomes `(void*)::simt::handle("kernel", kernel)`; lines stay."""
    names = kernel_names(tokens)
    out = list(tokens)
    for i in range(len(tokens) - 1, -1, -1):
        if tokens[i].text not in names:
            continue
        begin, end = _operand(tokens, i)
        if _is_cast(tokens, begin):
            out[end] = Token(tokens[end].kind, tokens[end].text + ")", tokens[end].line)
            handle = f'::simt::handle("{tokens[i].text}", '
            out[begin] = Token("name", handle + out[begin].text, tokens[begin].line)
    return out


def _declared(tokens: list[Token], i: int) -> str:
    """The name before the parameters of the function that is declared from index i on."""
    while i < len(tokens) and tokens[i].text not in (";", "{"):
        follows = after(tokens, i)
        if text_at(tokens, follows) != "(":
            i = follows
        elif tokens[i].text in _ATTRIBUTES:
            i = after(tokens, closing(tokens, follows))
        else:
            return tokens[i].text if tokens[i].kind == "name" else ""
    return ""


def _operand(tokens: list[Token], i: int) -> tuple[int, int]:
    """First and last index of the name at i with its `&` and template arguments."""
    address = before(tokens, i)
    begin = address if text_at(tokens, address) == "&" else i
    return begin, _name_end(tokens, i)


def _name_end(tokens: list[Token], i: int) -> int:
    follows = after(tokens, i)
    if text_at(tokens, follows) != "<":
        return i
    depth = 0
    for j in range(follows, len(tokens)):
        depth += {"<": 1, ">": -1}.get(tokens[j].text, 0)
        if depth == 0:
            return j
        if tokens[j].text in (";", "{"):
            break
    return i


def _is_cast(tokens: list[Token], i: int) -> bool:
    """Is what stands before index i a cast to a pointer to void?"""
    i = before(tokens, i)
    if text_at(tokens, i) == ")":
        return _to_void(tokens[tk.opening(tokens, i) + 1 : i])
    previous = before(tokens, i)
    if text_at(tokens, i) != "(" or text_at(tokens, previous) != ">":
        return False
    start = tk.opening_angle(tokens, previous)
    named = text_at(tokens, before(tokens, start)) in _CASTS
    return named and _to_void(tokens[start + 1 : previous])


def _to_void(type_: list[Token]) -> bool:
    return sorted(t.text for t in type_ if not t.blank and t.text != "const") == ["*", "void"]
