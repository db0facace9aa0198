"""A flashinfer-bench Workload: sizes of the axes and where each input comes from.

Facts from github.com/flashinfer-ai/flashinfer-bench at 40e6ca7 (flashinfer_bench/data/
workload.py), read on 2026-12-01; SOL-ExecBench's additions are in `sol_execbench`.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.formats import sol_execbench
from harness.formats.flashinfer_definition import Definition, Tensor
from harness.formats.flashinfer_files import Fields

KINDS = ("random", "scalar", "safetensors", "custom")


@dataclass(frozen=True)
class Given:
    """Where an input comes from; value: of a scalar; path and key: into a safetensors file."""

    kind: str
    value: int | float | bool | None = None
    path: str = ""
    key: str = ""


@dataclass(frozen=True)
class Workload:
    """sizes: of every axis. body: the object as it was read, for traces."""

    uuid: str
    sizes: dict[str, int]
    inputs: dict[str, Given]
    body: dict
    tolerance: sol_execbench.Tolerance | None = None


def workload(line: Fields, definition: Definition) -> Workload:
    fields = line
    if "workload" in line.body:
        if line.text("definition") != definition.name:
            line.refuse("definition", f"{definition.name!r}, the name in {definition.path}")
        if line.body.get("solution") is not None or line.body.get("evaluation") is not None:
            line.fail("is the trace of a solution; want workloads alone, with solution null")
        fields = line.child("workload")
    inputs = _all_given(fields, definition)
    return Workload(
        uuid=fields.text("uuid"),
        sizes=_sizes(fields.child("axes"), definition),
        inputs=inputs,
        body=fields.body,
        tolerance=_tolerance(fields),
    )


def _sizes(fields: Fields, definition: Definition) -> dict[str, int]:
    sizes = {axis.name: axis.value for axis in definition.axes if axis.value is not None}
    late = [axis for axis in definition.axes if axis.expression]
    for axis in definition.axes:
        if axis.value is None and not axis.expression:
            sizes[axis.name] = fields.whole(axis.name)
    for axis in late:
        try:
            sizes[axis.name] = sol_execbench.evaluate(axis.expression, sizes)
        except ValueError as error:
            place = f"{definition.path}: axes.{axis.name}.expression is {axis.expression!r}"
            fields.fail(f"{place}, and {error}; want a size for every workload")
    return sizes


def _all_given(fields: Fields, definition: Definition) -> dict[str, Given]:
    """An input that is not listed is random."""
    listed = dict(fields.children("inputs"))
    known = {tensor.name: tensor for tensor in definition.inputs}
    for name in listed:
        if name not in known:
            fields.refuse("inputs", f"only inputs of {definition.name}: {', '.join(known)}")
    found = {
        name: _given(listed[name], tensor) if name in listed else Given("random")
        for name, tensor in known.items()
    }
    custom = [name for name, given in found.items() if given.kind == "custom"]
    if custom and (len(custom) < len(found) or not definition.custom_inputs):
        fields.refuse("inputs", "all custom, with custom_inputs_entrypoint in the definition")
    return found


def _given(fields: Fields, tensor: Tensor) -> Given:
    kind = fields.one_of("type", KINDS)
    if kind == "scalar":
        value = fields.body.get("value")
        if not isinstance(value, bool | int | float):
            fields.refuse("value", "a number, true or false")
        if tensor.shape is not None:
            fields.refuse("type", f"random or safetensors, for {tensor.name} has a shape")
        return Given(kind, value=value)
    if kind == "safetensors":
        if tensor.shape is None:
            fields.refuse("type", f"scalar or random, for {tensor.name} is a number")
        return Given(kind, path=fields.text("path"), key=fields.text("tensor_key"))
    return Given(kind)


def _tolerance(fields: Fields) -> sol_execbench.Tolerance | None:
    if fields.body.get("tolerance") is None:
        return None
    stated, usual = fields.child("tolerance"), sol_execbench.Tolerance()
    cap = stated.body.get("max_error_cap")
    return sol_execbench.Tolerance(
        stated.number("max_atol", usual.max_atol),
        stated.number("max_rtol", usual.max_rtol),
        stated.number("required_matched_ratio", usual.required_matched_ratio),
        None if cap is None else stated.number("max_error_cap", 0.0),
    )
