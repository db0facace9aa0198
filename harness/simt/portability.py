"""Small rewrites of host code: the CUDA device of the source is the CPU here."""

from __future__ import annotations

import re

from . import tokens as tk
from .tokens import Token, after, closing, text_at

_WORDS = {
    "is_cuda": "is_cpu",
    "kCUDA": "kCPU",
    "__noinline__": "__attribute__((noinline))",
    "aoti_torch_get_current_cuda_stream": "simt_current_cuda_stream",
}
_LIBRARY_IMPL = ("TORCH_LIBRARY_IMPL", "STABLE_TORCH_LIBRARY_IMPL")
_OWNERS_OF_CUDA = ("DeviceType", "DispatchKey", "Backend")


def _significant(tokens: list[Token], i: int, n: int) -> list[int]:
    """Indices of n tokens from i on that are no blanks."""
    found = []
    while i < len(tokens) and len(found) < n:
        found.append(i)
        i = after(tokens, i)
    return found


def _blank(tokens: list[Token], indices) -> None:
    for i in indices:
        tokens[i].text = ""


def _rename(tokens: list[Token], i: int) -> None:
    token = tokens[i]
    if token.text in _WORDS:
        token.text = _WORDS[token.text]
    elif token.text == "assert" and text_at(tokens, after(tokens, i)) == "(":
        token.text = "SIMT_ASSERT"
    elif token.text == "CUDA":
        link = tk.before(tokens, i)
        owner = text_at(tokens, tk.before(tokens, link)) if link >= 0 else ""
        if text_at(tokens, link) == "::" and owner in _OWNERS_OF_CUDA:
            token.text = "CPU"


def _library_key(tokens: list[Token], i: int) -> None:
    """TORCH_LIBRARY_IMPL(ns, CUDA, m): the key that CPU tensors dispatch to."""
    open_ = after(tokens, i)
    if text_at(tokens, open_) != "(":
        return
    for token in tokens[open_ : closing(tokens, open_)]:
        if token.text in ("CUDA", "PrivateUse1"):
            token.text = "CPU"
        elif token.text == "AutogradCUDA":
            token.text = "AutogradCPU"


def _type_queries(tokens: list[Token], i: int) -> None:
    """x.type().is_cuda() and the old first argument x.type() of AT_DISPATCH macros."""
    run = _significant(tokens, i, 6)
    texts = [tokens[j].text for j in run]
    if texts[:4] == [".", "type", "(", ")"] and texts[4:] == [".", "is_cuda"]:
        _blank(tokens, run[:4])
    if re.match(r"AT_DISPATCH_\w+$", tokens[i].text) and texts[1:2] == ["("]:
        first = tk.split_commas(tokens[run[1] + 1 : closing(tokens, run[1])])
        for part in first:
            words = [t for t in part if not t.blank]
            if [t.text for t in words[-4:]] == [".", "type", "(", ")"]:
                words[-3].text = "scalar_type"


def rewrite_host(tokens: list[Token]) -> list[Token]:
    """The same tokens with CUDA's names of devices replaced by the CPU's."""
    for i, token in enumerate(tokens):
        if token.kind == "name" or token.text == ".":
            _type_queries(tokens, i)
        if token.kind != "name":
            continue
        if token.text in _LIBRARY_IMPL:
            _library_key(tokens, i)
        _rename(tokens, i)
    return tokens
