"""__shared__ declarations become references into the running block's shared memory."""

from __future__ import annotations

from . import tokens as tk
from .tokens import Token, after, before, closing, join, text_at

_ATTRIBUTES = ("__align__", "alignas", "__attribute__", "__builtin_align__")
_STORAGE = ("extern", "static", "__shared__")


def _statement_start(tokens: list[Token], i: int) -> int:
    """Index of the first token of the declaration that holds the __shared__ at i."""
    while True:
        j = before(tokens, i)
        if text_at(tokens, j) == ")":
            j = before(tokens, tk.opening(tokens, j))
            if text_at(tokens, j) not in _ATTRIBUTES:
                return i
        elif j < 0 or tokens[j].kind != "name" or tokens[j].text in ("else", "do"):
            return i
        if _in_directive(tokens, j) and any("\n" in t.text for t in tokens[j:i]):
            return i
        i = j


def _in_directive(tokens: list[Token], i: int) -> bool:
    """Whether the line of token i begins with #."""
    while i >= 0:
        if "\n" in tokens[i].text.replace("\\\n", ""):
            return False
        if tokens[i].text == "#":
            return True
        i -= 1
    return False


def _without_attributes(tokens: list[Token]) -> list[Token]:
    out, i = [], 0
    while i < len(tokens):
        if tokens[i].text in _ATTRIBUTES and text_at(tokens, after(tokens, i)) == "(":
            i = closing(tokens, after(tokens, i)) + 1
            continue
        out.append(tokens[i])
        i += 1
    return out


def _without_body(tokens: list[Token]) -> list[Token]:
    """`union { ... } name` without what stands in its braces."""
    open_ = next((i for i, t in enumerate(tokens) if t.text == "{"), None)
    return tokens if open_ is None else tokens[closing(tokens, open_) + 1 :]


def _statement_end(tokens: list[Token], i: int) -> int:
    """Index of the `;` that ends the declaration at i, past a body in braces."""
    while i < len(tokens) and tokens[i].text != ";":
        i = closing(tokens, i) + 1 if tokens[i].text == "{" else i + 1
    if i >= len(tokens):
        raise SyntaxError("a __shared__ declaration never ends")
    return i


def _declared_name(declarator: list[Token]) -> str:
    names = []
    for token in _without_body(_without_attributes(declarator)):
        if token.text in ("[", "="):
            break
        if token.kind == "name":
            names.append(token.text)
    if not names:
        raise SyntaxError(f"cannot read the shared declaration {join(declarator)!r}")
    return names[-1]


def _dynamic(declaration: list[Token], at_file_scope: bool) -> str:
    """extern __shared__ T name[]: a pointer to what the launch gave."""
    plain = [t for t in _without_attributes(declaration) if not t.blank]
    first = next(i for i, t in enumerate(plain) if t.text == "[")
    name, inner = plain[first - 1].text, join(plain[tk.closing(plain, first) + 1 :])
    type_ = " ".join(t.text for t in plain[: first - 1])
    if at_file_scope:
        return f"static ::simt::DynamicShared<{type_}> {name};"
    pointer = f"{type_}(*){inner}" if inner else f"{type_}*"
    return (
        f"[[maybe_unused]] auto* const {name} = "
        f"reinterpret_cast<{pointer}>(::simt::dynamic_storage());"
    )


def _static(declaration: list[Token], number: int, line: int) -> str:
    """__shared__ T a[N], b: members of a struct that lives in the block's arena."""
    text = " ".join(join(declaration).split())
    names = [_declared_name(d) for d in tk.split_commas(declaration)]
    struct, site = f"simt_shared_{number}", f"simt_site_{number}"
    uses = "".join(
        f" [[maybe_unused]] auto& {n} = ::simt::shared<{struct}>({site}).{n};" for n in names
    )
    return (
        f"struct {struct} {{ {text}; }}; static ::simt::SharedSite {site}"
        f'{{"{", ".join(names)}", __FILE__, {line}}};{uses}'
    )


class _Scope:
    """Whether a place lies inside a function: any open brace that opens no namespace."""

    def __init__(self):
        self.open = []

    def see(self, tokens: list[Token], i: int) -> None:
        if tokens[i].text == "{":
            j = before(tokens, i)
            while j >= 0 and (tokens[j].kind == "name" or tokens[j].text == "::"):
                if tokens[j].text == "namespace":
                    break
                j = before(tokens, j)
            is_c = tokens[j].kind == "string" and text_at(tokens, before(tokens, j)) == "extern"
            self.open.append("outer" if text_at(tokens, j) == "namespace" or is_c else "inner")
        elif tokens[i].text == "}" and self.open:
            self.open.pop()

    @property
    def at_file(self) -> bool:
        return "inner" not in self.open


def rewrite_shared(tokens: list[Token]) -> list[Token]:
    """Tokens without __shared__; the number of lines stays."""
    out: list[Token] = []
    scope, number, i = _Scope(), 0, 0
    while i < len(tokens):
        if tokens[i].text != "__shared__":
            scope.see(tokens, i)
            out.append(tokens[i])
            i += 1
            continue
        start = _statement_start(tokens, i)
        end = _statement_end(tokens, i)
        whole = tokens[start:end]
        words = [t.text for t in whole]
        declaration = [t for t in whole if t.text not in _STORAGE and t.kind != "comment"]
        if "extern" in words:
            at_file = scope.at_file and not _in_directive(tokens, i)
            text = _dynamic(declaration, at_file)
        else:
            number += 1
            text = _static(declaration, number, tokens[i].line)
        del out[len(out) - (i - start) :]
        out.append(Token("punct", text + "\n" * join(whole).count("\n"), tokens[i].line))
        i = end + 1
    return out
