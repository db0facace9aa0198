"""Read a solution file without running it: damage, missing parts and signatures, named by line."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import damage, standalone
from harness.damage import fail

SOLUTION_CLASS = "ModelNew"


@dataclass(frozen=True)
class Signature:
    """How many positional arguments a function takes, without self."""

    required: int
    most: int | None  # None: any number
    names: tuple[str, ...]
    line: int
    column: int = 1

    def accepts(self, other: Signature) -> bool:
        """True when some call that `other` allows is a call that this one allows."""
        fewest = max(self.required, other.required)
        most = min(_or_many(self.most), _or_many(other.most))
        return fewest <= most


@dataclass(frozen=True)
class Source:
    """One class of a file, as its syntax tree shows it."""

    path: str
    text: str
    init: Signature | None  # None: inherited
    forward: Signature | None
    warnings: tuple[str, ...]


def read(
    path: str | Path, class_name: str = SOLUTION_CLASS, provided: tuple[str, ...] = ()
) -> Source:
    """Read a solution (or with class_name="Model" a reference); raise Failed(DOES_NOT_LOAD).

    provided: names of modules that the problem puts beside a solution.
    """
    path, text, tree, warnings = _opened(Path(path), provided)
    node = _class(path, tree, class_name)
    return Source(
        path=str(path),
        text=text,
        init=_method(node, "__init__"),
        forward=_method(node, "forward"),
        warnings=warnings,
    )


def read_function(path: str | Path, name: str, provided: tuple[str, ...] = ()) -> Source:
    """The same for a solution that is a function, whose arguments are those of `forward`."""
    path, text, tree, warnings = _opened(Path(path), provided)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    found = [n for n in functions if n in tree.body and n.name == name]
    if len(found) > 1:
        raise fail(_twice(path, "def", found))
    if not found and not _is_assigned(tree, name):
        others = [f"{n.name}()" for n in functions if n in tree.body]
        hint = f"; the file has {', '.join(others[:4])}" if others else ""
        raise fail(f"{path}:1:1: no function {name}{hint}; name the function {name}")
    forward = _signature(found[0], 0) if found else None
    return Source(str(path), text, None, forward, warnings)


def signature_of(tree: ast.Module, name: str) -> Signature | None:
    """The arguments of a function at the top level; None where there is none of that name."""
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    return _signature(found[-1], 0) if found else None


def _opened(path: Path, provided: tuple[str, ...]) -> tuple[Path, str, ast.Module, tuple[str, ...]]:
    """Text, syntax tree and warnings of a file that can be imported alone."""
    text = damage.text_of(path)
    tree = damage.tree_of(path, text)
    found = tuple(standalone.findings(path, tree, provided))
    fatal = next((finding for finding in found if finding.fatal), None)
    if fatal is not None:
        raise fail(fatal.message)
    warnings = (*damage.notes(path, text), *damage.odd_in_cuda(path, text, tree))
    return path, text, tree, (*warnings, *(finding.message for finding in found))


def expect_arguments(solution: Source, name: str, wanted: tuple[str, ...]) -> None:
    """Raise Failed where a solution that is a function cannot be called with `wanted`."""
    got = solution.forward
    if got is None or got.accepts(Signature(len(wanted), len(wanted), wanted, 1)):
        return
    raise fail(
        f"{solution.path}:{got.line}:1: {name}({', '.join(got.names)}) takes {_count(got)}, but is "
        f"called with {len(wanted)}: {name}({', '.join(wanted)}); give it these arguments"
    )


def compare(solution: Source, reference: Source) -> None:
    """Raise Failed where ModelNew cannot be built or called the way Model is."""
    for method, given in (("__init__", "get_init_inputs"), ("forward", "get_inputs")):
        got = getattr(solution, "init" if method == "__init__" else method)
        want = getattr(reference, "init" if method == "__init__" else method)
        if want is None and method == "__init__":
            want = Signature(0, 0, (), 1)
        if got is None or want is None or got.accepts(want):
            continue
        have = f"{SOLUTION_CLASS}.{method}({', '.join(got.names)}) takes {_count(got)}"
        need = f"Model.{method}({', '.join(want.names)}) takes {_count(want)}"
        raise fail(
            f"{solution.path}:{got.line}:{got.column}: {have}, but {need} "
            f"({given} of {reference.path}); give it the same arguments"
        )


def _or_many(count: int | None) -> int:
    return sys.maxsize if count is None else count


def _count(signature: Signature) -> str:
    if signature.most is None:
        return f"at least {signature.required}"
    if signature.required == signature.most:
        return f"{signature.required}"
    return f"{signature.required} to {signature.most}"


def _class(path: Path, tree: ast.Module, name: str) -> ast.ClassDef:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(found) > 1:
        raise fail(_twice(path, "class", found))
    if found:
        return found[0]
    alias = _is_assigned(tree, name)
    wanted = (name, alias.value.id if alias and isinstance(alias.value, ast.Name) else name)
    nested = next((node for node in classes if node.name in wanted), None)
    if nested is not None:  # inside `if` or `try`, or given the name afterwards
        return nested
    others = [node.name for node in classes]
    hint = f"; the file has {', '.join(others[:4])}" if others else ""
    raise fail(f"{path}:1:1: no class {name}{hint}; name the class {name}")


def _twice(path: Path, kind: str, found: list) -> str:
    second = found[1]
    lines = ", ".join(str(node.lineno) for node in found)
    return (
        f"{path}:{second.lineno}:{second.col_offset + 1}: {kind} {second.name} again (lines "
        f"{lines}); keep one"
    )


def _is_assigned(tree: ast.Module, name: str) -> ast.Assign | None:
    """The statement `name = ...` at the top level, if there is one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in node.targets
        ):
            return node
    return None


def _method(node: ast.ClassDef, name: str) -> Signature | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == name:
            return _signature(item, 1)
    return None


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, leave_out: int) -> Signature:
    """The positional arguments after the first `leave_out` (self)."""
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)][leave_out:]
    return Signature(
        required=max(len(names) - len(node.args.defaults), 0),
        most=None if node.args.vararg else len(names),
        names=tuple(names) + (("*" + node.args.vararg.arg,) if node.args.vararg else ()),
        line=node.lineno,
        column=node.col_offset + 1,
    )
