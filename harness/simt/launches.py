"""k<<<grid, block, bytes, stream>>>(args) and its spellings as functions become simt::launch."""

from __future__ import annotations

from . import tokens as tk
from .tokens import Token, after, before, closing, join, text_at

# Function: what takes its place, which argument is the kernel, and for a launch whether it is
# a cooperative one.
_CALLS = {
    "cudaLaunchKernel": ("simt_launch_kernel", 0, "false"),
    "cudaLaunchCooperativeKernel": ("simt_launch_kernel", 0, "true"),
    "cudaLaunchKernelEx": ("simt_launch_kernel_ex", 1, "false"),
    "cudaLaunchKernelExC": ("simt_launch_kernel_exc", 1, "false"),
    "cudaFuncSetAttribute": ("simt_set_attribute", 0, ""),
}


def callee_start(tokens: list[Token], end: int) -> int:
    """Index where the expression that names the kernel begins; it ends before index `end`."""
    i = before(tokens, end)
    while i >= 0:
        if tokens[i].text == ">":
            i = before(tokens, tk.opening_angle(tokens, i))
            continue
        if tokens[i].text in (")", "]"):
            start = tk.opening(tokens, i)
            if tokens[i].text == ")":
                return start
            i = before(tokens, start)
            continue
        link = before(tokens, i)
        if text_at(tokens, link) == "template":
            i, link = link, before(tokens, link)
        if text_at(tokens, link) not in ("::", ".", "->"):
            return i
        owner = before(tokens, link)
        if owner < 0 or not (tokens[owner].kind == "name" or tokens[owner].text in (">", "]", ")")):
            return link
        if tokens[owner].text in ("return", "else", "do"):
            return link
        i = owner
    raise SyntaxError(f"line {tokens[end].line}: a launch without a kernel")


def _configuration_end(tokens: list[Token], i: int) -> int:
    """Index of the first of the three `>` that end the configuration opened before i."""
    while i < len(tokens):
        text = tokens[i].text
        if text in ("(", "[", "{"):
            i = closing(tokens, i)
        elif [text_at(tokens, i + k) for k in range(3)] == [">"] * 3 and (
            text_at(tokens, after(tokens, i + 2)) == "("
        ):
            return i
        i += 1
    raise SyntaxError("a launch configuration is never closed")


def plain_name(callee: str) -> str:
    """The kernel's name without template arguments, casts and addresses."""
    name = callee.split("<")[0].strip().lstrip("&*(").strip()
    return "".join(name.split()).rstrip(")")


def _kernel(name: str, line: int, cooperative: str = "false") -> str:
    return f'::simt::Kernel{{"{name}", __FILE__, {line}, SIMT_CHECKED, {cooperative}}}'


def _new_lines(tokens: list[Token]) -> str:
    return "\n" * join(tokens).count("\n")


def rewrite_launches(tokens: list[Token]) -> list[Token]:
    """Tokens in which every <<<...>>> is a call; the number of lines stays."""
    tokens = list(tokens)
    i = 0
    while i < len(tokens):
        if tokens[i].text != "<<<":
            i += 1
            continue
        start = callee_start(tokens, i)
        end = _configuration_end(tokens, i + 1)
        open_ = after(tokens, end + 2)
        close = closing(tokens, open_)
        callee = join([t for t in tokens[start:i] if not t.blank or t.kind == "space"]).strip()
        line = tokens[start].line
        arguments = tokens[open_ + 1 : close]
        if _any_braced(arguments):  # their type is known from the kernel's parameters alone
            function, call = "launch_typed", callee
        else:
            function, call = "launch", f"[&](auto&&... simt_a) {{ {callee}(simt_a...); }}"
        kernel = _kernel(plain_name(callee), line)
        before_config, after_config = f"::simt::{function}(::simt::Config(", f"), {kernel}, "
        new = [Token("punct", before_config, line), *tokens[i + 1 : end]]
        new.append(Token("punct", after_config + call, line))
        if any(not t.blank for t in arguments):
            new.append(Token("punct", ", ", line))
        new += [*_without_null(arguments), Token("punct", ")", tokens[close].line)]
        lost = _new_lines(tokens[end:open_])
        new.append(Token("space", lost, line))
        tokens[start : close + 1] = new
        i = start + 1
    return tokens


def _any_braced(arguments: list[Token]) -> bool:
    return any(part.strip().startswith("{") for part in map(join, tk.split_commas(arguments)))


def _without_null(arguments: list[Token]) -> list[Token]:
    return [Token(t.kind, "nullptr", t.line) if t.text == "NULL" else t for t in arguments]


def rewrite_launch_calls(tokens: list[Token]) -> list[Token]:
    """Launches and attributes set by a function call get the kernel's name as first argument."""
    out, i = [], 0
    while i < len(tokens):
        open_ = after(tokens, i)
        known = tokens[i].kind == "name" and text_at(tokens, open_) == "("
        if not known or tokens[i].text not in _CALLS:
            out.append(tokens[i])
            i += 1
            continue
        end = closing(tokens, open_)
        out.append(Token("punct", _call(tokens[i], tokens[open_ + 1 : end]), tokens[i].line))
        i = end + 1
    return out


def _call(name: Token, arguments: list[Token]) -> str:
    """The call with its kernel, of which casts to void* go away."""
    replacement, place, cooperative = _CALLS[name.text]
    parts = [join(rewrite_launch_calls(part)) for part in tk.split_commas(arguments)]
    if place >= len(parts):
        return f"{name.text}({', '.join(parts)})"
    lines = "\n" * parts[place].count("\n")
    kernel = _without_cast(parts[place])
    parts[place] = kernel + lines
    first = f'"{plain_name(kernel)}"'
    if cooperative:
        first = _kernel(plain_name(kernel), name.line, cooperative)
    return f"{replacement}({first}, {','.join(parts)})"


def _without_cast(text: str) -> str:
    text = " ".join(text.split())
    for cast in ("(void*)", "(void *)", "(const void*)", "(const void *)"):
        if text.startswith(cast):
            return text[len(cast) :].strip()
    for cast in ("reinterpret_cast<void*>(", "reinterpret_cast<const void*>("):
        if text.startswith(cast):
            return text[len(cast) : -1].strip()
    return text
