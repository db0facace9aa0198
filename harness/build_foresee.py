"""Read from a solution's text what its load_inline calls will ask for, without running it.

Only so that compiling starts while torch is still being imported: the calls themselves decide what
is built, and a guess that does not come true is an object in the cache that nobody asks for.
"""

from __future__ import annotations

import ast
import collections
from pathlib import Path
from typing import Any


class Unknown(Exception):
    """An expression that cannot be told without running the file."""


def calls(path: str) -> tuple[tuple[list, dict[str, Any]], ...]:
    """Positional and keyword arguments of each load_inline call at the top level of the file."""
    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, SyntaxError, ValueError):
        return ()
    once = _assigned_once(tree)
    values: dict[str, Any] = {}
    found = []
    for statement in tree.body:
        call = getattr(statement, "value", None)
        if isinstance(call, ast.Call) and _named(call.func) == "load_inline":
            arguments = _arguments(call, values)
            if arguments is not None:
                found.append(arguments)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            _remember(statement, once, values)
    return tuple(found)


def _remember(
    statement: ast.Assign | ast.AnnAssign, once: set[str], values: dict[str, Any]
) -> None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id in once:
        try:
            values[targets[0].id] = _value(statement.value, values)
        except Unknown:
            return


def _arguments(call: ast.Call, values: dict[str, Any]) -> tuple[list, dict[str, Any]] | None:
    try:
        named = {keyword.arg: _value(keyword.value, values) for keyword in call.keywords}
        return [_value(argument, values) for argument in call.args], named
    except Unknown:
        return None


def _value(node: ast.expr | None, values: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(element, values) for element in node.elts]
    if isinstance(node, ast.Dict) and all(node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {_value(key, values): _value(value, values) for key, value in pairs}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _value(node.left, values), _value(node.right, values)
        if type(left) is type(right) and isinstance(left, str | list):
            return left + right
    if isinstance(node, ast.JoinedStr):
        return "".join(_piece(part, values) for part in node.values)
    raise Unknown


def _piece(node: ast.expr, values: dict[str, Any]) -> str:
    if isinstance(node, ast.FormattedValue):
        plain = node.conversion == -1 and node.format_spec is None
        value = _value(node.value, values)
        if plain and isinstance(value, str | int):
            return str(value)
        raise Unknown
    return str(_value(node, values))


def _named(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _assigned_once(tree: ast.Module) -> set[str]:
    stores = collections.Counter(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)
    )
    return {name for name, count in stores.items() if count == 1}
