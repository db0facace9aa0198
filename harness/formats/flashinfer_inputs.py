"""Inputs and reference of a flashinfer-bench problem, for the judge only.

"random" is what flashinfer-bench draws: normal floats, integers of a fixed range. Every call draws
anew; scalars and safetensors are the same in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch

from harness.formats import flashinfer, flashinfer_files, sol_execbench
from harness.formats.cuda_on_cpu import on_this_machine
from harness.formats.flashinfer_call import Output, device_of, results
from harness.formats.flashinfer_definition import Tensor, size_of
from harness.formats.flashinfer_workload import Given, Workload
from harness.records import Case, Failed, Outcome

RANGES = {"int8": (-128, 128), "int16": (-1024, 1024), "int32": (-1024, 1024),
          "int64": (-1024, 1024), "bool": (0, 2)}  # fmt: skip
NARROW = ("float8_e4m3fn", "float8_e5m2")
NARROW_MOST = 2.0


def outputs_of(problem: flashinfer.Problem) -> tuple[Output, ...]:
    return tuple(Output(t.name, t.shape, t.dtype) for t in problem.definition.outputs)


def namespace(path: str | Path, execute: Callable[[str, str], object]) -> dict:
    """Model, get_inputs and so on, as of a reference file of ours.

    execute: runs a text under a name as a module. Raises Failed(REFERENCE_FAILED).
    """
    problem = flashinfer.read(path)
    definition = problem.definition
    module = execute(definition.reference, f"{definition.path}: reference")
    outputs = outputs_of(problem)

    class Model(torch.nn.Module):
        """run as a module without parameters; the sizes are for ModelNew, which may need them."""

        def __init__(self, sizes: dict[str, int]):
            super().__init__()

        def forward(self, *inputs):
            with on_this_machine():
                return results(module.run(*inputs), outputs, device_of(inputs))

    def get_inputs(uuid: str, **_) -> list:
        workload = problem.workload(uuid)
        if definition.custom_inputs:
            with on_this_machine():
                own = getattr(module, definition.custom_inputs)
                made = own({**workload.sizes, **_scalars(workload)}, torch.device("cpu"))
        else:
            made = {}
        return [_input(problem, workload, tensor, made) for tensor in definition.inputs]

    def get_init_inputs(uuid: str, **_) -> list:
        return [problem.workload(uuid).sizes]

    def accepts(case: Case, arguments: list, output) -> tuple[bool, str]:
        stated = problem.workload(case.sizes["uuid"]).tolerance or sol_execbench.Tolerance()
        with torch.no_grad():
            return _within(Model({})(*arguments), output, stated)

    stated = any(workload.tolerance for workload in problem.workloads)
    return {
        "problem": problem,
        "Model": Model,
        "get_inputs": get_inputs,
        "get_init_inputs": get_init_inputs,
        "accepts": accepts if stated else None,
        **({} if _all_random(problem) else {"FAMILIES": {}}),
    }


def _all_random(problem: flashinfer.Problem) -> bool:
    """Whether any value of a float is a valid input; where files give them, nobody knows."""
    given = [g for w in problem.workloads for g in w.inputs.values()]
    return not problem.sol and all(g.kind in ("random", "scalar") for g in given)


def _scalars(workload: Workload) -> dict:
    return {name: g.value for name, g in workload.inputs.items() if g.kind == "scalar"}


def _input(problem: flashinfer.Problem, workload: Workload, tensor: Tensor, made: dict):
    given = workload.inputs[tensor.name]
    if given.kind == "scalar":
        return given.value
    if given.kind == "custom":
        if tensor.name not in made:
            raise _fail(
                f"{problem.definition.path}: {problem.definition.custom_inputs} returns no "
                f"{tensor.name}; want a dict with every input"
            )
        return made[tensor.name]
    if tensor.shape is None:
        return _random((), tensor.dtype).item()
    shape = tuple(size_of(axis, workload.sizes) for axis in tensor.shape)
    if given.kind == "safetensors":
        return _loaded(problem, tensor, given, shape)
    if problem.sol and tensor.dtype.startswith(("float", "bfloat")) and tensor.dtype not in NARROW:
        for draw in sol_execbench.DRAWS:
            if draw.holds(tensor.name, shape):
                return _drawn(draw.how, shape).to(getattr(torch, tensor.dtype))
    return _random(shape, tensor.dtype)


def _random(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    kind = getattr(torch, dtype)
    if dtype in RANGES:
        return torch.randint(*RANGES[dtype], shape, dtype=torch.int64).to(kind)
    if dtype in NARROW:
        return torch.randn(shape).clamp_(-NARROW_MOST, NARROW_MOST).to(kind)
    return torch.randn(shape, dtype=kind)


def _drawn(how: str, shape: tuple[int, ...]) -> torch.Tensor:
    """float32 values of a kind that `sol_execbench.DRAWS` names."""
    made = {
        "ones": lambda: torch.ones(shape),
        "zeros": lambda: torch.zeros(shape),
        "causal": lambda: torch.full(shape, torch.finfo(torch.float16).min).triu(1),
        "zero or one": lambda: torch.randint(0, 2, shape).float(),
        "cosine": lambda: torch.randn(shape).clamp_(-math.pi, math.pi).cos(),
        "sine": lambda: torch.randn(shape).clamp_(-math.pi, math.pi).sin(),
        "positive": lambda: torch.randn(shape).abs() + 0.1,
        "falling sums": lambda: torch.empty(shape).uniform_(-0.1, 0).cumsum(-1),
        "uniform -5 to -1": lambda: torch.empty(shape).uniform_(-5, -1),
        "uniform -1 to -0.001": lambda: torch.empty(shape).uniform_(-1, -0.001),
        "uniform -5 to 0": lambda: torch.empty(shape).uniform_(-5, 0),
        "softmax": lambda: torch.randn(shape).softmax(-1),
        "by fan-in": lambda: torch.randn(shape) / math.sqrt(max(shape[-1], 1)),
    }
    return made[how]()


def _loaded(
    problem: flashinfer.Problem, tensor: Tensor, given: Given, shape: tuple[int, ...]
) -> torch.Tensor:
    """One tensor of a safetensors file, of exactly the declared shape and type."""
    place = flashinfer_files.blob_of(problem.root, given.path)
    where = f"{problem.files[-1]}: input {tensor.name}"
    if place is None:
        raise _fail(f"{where}: there is no {problem.root / given.path}; fetch the data set's blobs")
    found = _tensor_in(place, given.key, where)
    want, kind = list(shape), getattr(torch, tensor.dtype)
    if list(found.shape) != want or found.dtype != kind:
        got = f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}"
        raise _fail(f"{place}: {given.key} is {got}; want {tensor.dtype} {want} for {tensor.name}")
    return found


def _tensor_in(place: Path, key: str, where: str) -> torch.Tensor:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        sentence = f"{where}: reading {place.name} needs safetensors: pip install safetensors"
        raise Failed(Outcome.ENVIRONMENT, "load", sentence) from None
    try:
        with safe_open(str(place), "pt") as file:
            keys = list(file.keys())
            if key not in keys:
                held = ", ".join(keys[:4]) or "nothing"
                raise _fail(f"{place}: holds {held}; want {key} for {where}")
            return file.get_tensor(key)
    except (SafetensorError, OSError) as error:
        why = f"not a safetensors file ({error}); fetch it again, with git lfs pull in a checkout"
        raise _fail(f"{place}: {why}") from None


def _within(want, got, stated: sol_execbench.Tolerance) -> tuple[bool, str]:
    """SOL-ExecBench's rule: a share of elements within the tolerance, none beyond the cap."""
    pairs = zip(_all(want), _all(got), strict=True)
    for index, (wanted, found) in enumerate(pairs):
        if not wanted.numel():
            continue
        wanted, found = wanted.double(), found.double()
        error = torch.where(wanted == found, 0.0, (found - wanted).abs())
        error = torch.where(wanted.isnan() & found.isnan(), 0.0, error)
        good = error <= stated.max_atol + stated.max_rtol * wanted.abs()
        share = float(good.double().mean())
        if share < stated.required_matched_ratio:
            within = f"{stated.max_atol:g} + {stated.max_rtol:g} |want|"
            asked = f"want {stated.required_matched_ratio:.4%}"
            return False, f"out {index}: {share:.4%} of elements are within {within}, {asked}"
        if stated.max_error_cap is not None and float(error.max()) > stated.max_error_cap:
            return False, (
                f"out {index}: an error of {float(error.max()):.4g}, at most "
                f"{stated.max_error_cap:g} is allowed"
            )
    return True, ""


def _all(value) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _fail(message: str) -> Failed:
    return Failed(Outcome.REFERENCE_FAILED, "inputs", message)
