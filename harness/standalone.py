"""Whether a file can be imported alone: exits, prints, test blocks, imports of what is beside it.

What certainly stops the import is a failure before any build; what may not is a note.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EXITS = {"exit", "quit", "sys.exit", "os._exit", "os.abort"}
GUARDS = (ast.Try, ast.If, ast.FunctionDef, ast.AsyncFunctionDef, ast.While, ast.For)


@dataclass(frozen=True)
class Finding:
    """One sentence with its place; `fatal` when importing the file must stop there."""

    message: str
    fatal: bool = False


def findings(path: Path, tree: ast.Module, provided: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Everything of a file that matters when it is imported alone.

    provided: names of modules that the problem puts beside a solution.
    """
    for node, certain in _statements(tree.body, True):
        place = f"{path}:{node.lineno}:{node.col_offset + 1}"
        if _is_main_block(node):
            yield Finding(f"{place}: an `if __name__` block; it is not run here")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(path, place, node, certain, provided)
        elif (name := _exits(node)) and certain:
            yield Finding(
                f"{place}: {name} at the top level ends the process while the file is imported; "
                "delete it, or put it below `if __name__ == '__main__':`",
                True,
            )
        elif _called(node) in ("print", "pprint", "input") and certain:
            yield Finding(f"{place}: {_called(node)}() at the top level runs on import; delete it")


def _statements(body: list[ast.stmt], certain: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement, and whether importing the file certainly reaches it."""
    for node in body:
        yield node, certain
        if _is_main_block(node):
            continue
        inside = certain and not isinstance(node, GUARDS)
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, field, []), inside)
        for handler in getattr(node, "handlers", []):
            yield from _statements(handler.body, False)


def _is_main_block(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.Compare)):
        return False
    sides = (node.test.left, *node.test.comparators)
    return any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)


def _exits(node: ast.stmt) -> str:
    if isinstance(node, ast.Raise) and node.exc is not None:
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return "raise SystemExit" if ast.unparse(kind) == "SystemExit" else ""
    name = _called(node)
    return f"{name}()" if name in EXITS else ""


def _called(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func)
    return ""


def _imports(
    path: Path,
    place: str,
    node: ast.Import | ast.ImportFrom,
    certain: bool,
    provided: tuple[str, ...],
) -> Iterator[Finding]:
    if isinstance(node, ast.ImportFrom) and node.level > 0:
        name = "." * node.level + (node.module or "")
        yield Finding(
            f"{place}: relative import from {name}; a submission must stand alone: paste in "
            "what it needs",
            certain,
        )
        return
    names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
    for name in dict.fromkeys((name or "").split(".")[0] for name in names):
        if name in provided or not _is_beside(path, name):
            continue
        if _is_installed(name):
            yield Finding(
                f"{place}: imports {name}; the installed module is meant, not {name} beside it"
            )
            continue
        yield Finding(
            f"{place}: imports {name} from beside it; a submission must stand alone: paste in "
            "what it needs",
            certain,
        )


def _is_beside(path: Path, name: str) -> bool:
    if not name or name == path.stem:
        return False
    return (path.parent / f"{name}.py").is_file() or (path.parent / name / "__init__.py").is_file()


def _is_installed(name: str) -> bool:
    """By Python or a package; what lies in this project's own folder is out of reach."""
    if name in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and "-packages" in (spec.origin or "")
