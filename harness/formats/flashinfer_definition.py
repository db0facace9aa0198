"""A flashinfer-bench Definition: axes, inputs, outputs and the reference's text; no data.

Facts from github.com/flashinfer-ai/flashinfer-bench at 40e6ca7 (flashinfer_bench/data/
definition.py), read on 2026-12-01; SOL-ExecBench's additions are in `sol_execbench`.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from pathlib import Path

from harness import source
from harness.formats import sol_execbench
from harness.formats.flashinfer_files import Fields
from harness.receivers import FLASHINFER_DTYPES

DTYPES = FLASHINFER_DTYPES | sol_execbench.DTYPES


@dataclass(frozen=True)
class Axis:
    """A dimension's name and its size, or the expression for it; neither: the workload says."""

    name: str
    value: int | None = None
    expression: str = ""


@dataclass(frozen=True)
class Tensor:
    """An input or output; shape: names of axes, or None for a Python number."""

    name: str
    shape: tuple[str, ...] | None
    dtype: str

    def nbytes(self, sizes: dict[str, int]) -> int:
        width = int((re.search(r"\d+", self.dtype) or ["8"])[0]) // 8
        return width * math.prod(size_of(axis, sizes) for axis in self.shape or ())


@dataclass(frozen=True)
class Definition:
    """custom_inputs: the function of `reference` that makes all inputs; "" for none."""

    path: Path
    name: str
    op_type: str
    axes: tuple[Axis, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    reference: str
    custom_inputs: str


def size_of(axis: str, sizes: dict[str, int]) -> int:
    """Of a shape's entry: an axis, or (SOL-ExecBench) digits."""
    return sizes[axis] if axis in sizes else int(axis)


def definition(path: Path, fields: Fields) -> Definition:
    axes = tuple(_axis(name, one) for name, one in fields.children("axes"))
    names = {axis.name for axis in axes}
    inputs = tuple(_tensor(name, one, names) for name, one in fields.children("inputs"))
    outputs = tuple(_tensor(name, one, names) for name, one in fields.children("outputs"))
    if not outputs:
        fields.refuse("outputs", "at least one output")
    both = {tensor.name for tensor in inputs} & {tensor.name for tensor in outputs}
    if both:
        fields.fail(f"{min(both)} is both in inputs and in outputs; rename one")
    found = Definition(
        path,
        fields.text("name"),
        fields.text("op_type", ""),
        axes,
        inputs,
        outputs,
        fields.text("reference"),
        fields.text("custom_inputs_entrypoint", ""),
    )
    if found.op_type == "sampling":
        fields.refuse("op_type", "another: drawn samples are not compared as distributions here")
    _check_reference(found, fields)
    return found


def _axis(name: str, fields: Fields) -> Axis:
    kind = fields.one_of("type", ("const", "var", "expr"))
    if kind == "const":
        return Axis(name, fields.whole("value"))
    return Axis(name, expression=fields.text("expression") if kind == "expr" else "")


def _tensor(name: str, fields: Fields, axes: set[str]) -> Tensor:
    wanted = "a list of the names of axes, or null for a number"
    if "shape" not in fields.body:
        fields.refuse("shape", wanted)
    shape = None if fields.body["shape"] is None else fields.texts("shape")
    for axis in shape or ():
        if axis not in axes and not axis.isdecimal():
            fields.refuse("shape", f"names of axes, and {axis} is none of {sorted(axes)}")
    return Tensor(name, shape, fields.one_of("dtype", tuple(sorted(DTYPES))))


def _check_reference(definition: Definition, fields: Fields) -> None:
    try:
        tree = ast.parse(definition.reference)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        fields.fail(f"reference, line {line}: not valid Python ({error}); mend it there")
    run = source.signature_of(tree, "run")
    if run is None:
        fields.refuse("reference", "Python with a function run at the top level")
    count = len(definition.inputs)
    if not run.accepts(source.Signature(count, count, (), 1)):
        given = ", ".join(tensor.name for tensor in definition.inputs)
        fields.fail(
            f"reference, line {run.line}: run({', '.join(run.names)}) cannot take the {count} "
            f"inputs ({given}); give it these arguments"
        )
    if definition.custom_inputs and source.signature_of(tree, definition.custom_inputs) is None:
        fields.refuse("custom_inputs_entrypoint", "a function at the top level of reference")
