"""CUDA C++ source as tokens whose texts, joined, give the source back."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERN = re.compile(
    r"""
    (?P<space>(?:\s|\\\n)+)
  | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
  | (?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s"]{0,16})\(.*?\)(?P=tag)")
  | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9a-zA-Z]|[0-9a-zA-Z_.])*)
  | (?P<punct><<<|::|->\*?|\+\+|--|&&|\|\||[<>=!+\-*/%&|^]=|<<|\.\.\.|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ERROR_LINE = re.compile(r"^[ \t]*#[ \t]*(?:error|warning)\b[^\n]*", re.MULTILINE)
_CLOSER = {"(": ")", "[": "]", "{": "}"}
_OPENER = {closer: opener for opener, closer in _CLOSER.items()}


@dataclass
class Token:
    """`kind`: space, comment, string, char, name, number or punct; `line` counts from 1."""

    kind: str
    text: str
    line: int

    @property
    def blank(self) -> bool:
        return self.kind in ("space", "comment")


def tokenize(source: str, line: int = 1) -> list[Token]:
    """Never fails: what is no token becomes single characters. `line` is the first token's."""
    source = _ERROR_LINE.sub(lambda m: m.group().replace("'", " ").replace('"', " "), source)
    tokens = []
    for match in _PATTERN.finditer(source):
        kind = "string" if match.lastgroup in ("raw", "tag") else match.lastgroup
        if match.group("raw") is not None:
            kind = "string"
        tokens.append(Token(kind, match.group(), line))
        line += match.group().count("\n")
    return tokens


def join(tokens: list[Token]) -> str:
    return "".join(token.text for token in tokens)


def after(tokens: list[Token], i: int) -> int:
    """Index of the next token that is no space or comment; len(tokens) at the end."""
    i += 1
    while i < len(tokens) and tokens[i].blank:
        i += 1
    return i


def before(tokens: list[Token], i: int) -> int:
    """Index of the token before i that is no space or comment; -1 at the beginning."""
    i -= 1
    while i >= 0 and tokens[i].blank:
        i -= 1
    return i


def text_at(tokens: list[Token], i: int) -> str:
    return tokens[i].text if 0 <= i < len(tokens) else ""


def closing(tokens: list[Token], i: int) -> int:
    """Index of the bracket that closes the one at i; SyntaxError where there is none."""
    stack = []
    for j in range(i, len(tokens)):
        text = tokens[j].text
        if text in _CLOSER:
            stack.append(_CLOSER[text])
        elif text in _OPENER:
            if stack and stack[-1] == text:
                stack.pop()
            if not stack:
                return j
    raise SyntaxError(f"line {tokens[i].line}: {tokens[i].text!r} is never closed")


def opening(tokens: list[Token], i: int) -> int:
    """Index of the bracket that the one at i closes."""
    stack = []
    for j in range(i, -1, -1):
        text = tokens[j].text
        if text in _OPENER:
            stack.append(_OPENER[text])
        elif text in _CLOSER:
            if stack and stack[-1] == text:
                stack.pop()
            if not stack:
                return j
    raise SyntaxError(f"line {tokens[i].line}: {tokens[i].text!r} is never opened")


def opening_angle(tokens: list[Token], i: int) -> int:
    """Index of the `<` that the `>` at i closes, in template arguments."""
    depth, j = 0, i
    while j >= 0:
        text = tokens[j].text
        if text in _OPENER:
            j = opening(tokens, j)
        elif text == ">":
            depth += 1
        elif text == "<<":
            depth -= 2
        elif text == "<":
            depth -= 1
        if depth <= 0 and text in ("<", "<<"):
            return j
        j -= 1
    raise SyntaxError(f"line {tokens[i].line}: template arguments without a beginning")


def split_commas(tokens: list[Token]) -> list[list[Token]]:
    """Split at commas outside brackets and template arguments (as far as angles balance)."""
    parts, depth, angle, start = [], 0, 0, 0
    for i, token in enumerate(tokens):
        if token.text in _CLOSER:
            depth += 1
        elif token.text in _OPENER:
            depth -= 1
        elif depth == 0 and token.text == "<":
            angle += 1
        elif depth == 0 and token.text == ">":
            angle -= 1
        elif token.text == "," and depth == 0 and angle <= 0:
            parts.append(tokens[start:i])
            start = i + 1
    parts.append(tokens[start:])
    return parts
