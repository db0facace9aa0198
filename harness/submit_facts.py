"""What an exporter must know of a reference: names, shapes, types, weights, constructor arguments.

python -m harness.submit_facts REFERENCE prints one JSON object, as Facts. A process of its own,
because it runs the reference; the command line itself imports no torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.records import Failed, Outcome, from_dict, to_dict

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 300.0


@dataclass(frozen=True)
class Value:
    """A tensor (shape and dtype without "torch."), or a plain Python value (shape is None)."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    value: Any = None


@dataclass(frozen=True)
class CaseFacts:
    """One case; inputs and outputs are empty where it could not be described, `why` says so."""

    name: str
    sizes: dict[str, Any]
    arguments: tuple[Any, ...] = ()
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Facts:
    """One reference. `weights`: parameters and persistent buffers of Model, headline case."""

    op: str
    sized_init: bool  # get_init_inputs takes the sizes
    rtol: float
    atol: float
    scaled: bool  # atol is in units of the output's root mean square
    weights: tuple[Value, ...]
    cases: tuple[CaseFacts, ...]

    @property
    def described(self) -> tuple[CaseFacts, ...]:
        return tuple(case for case in self.cases if case.inputs)

    @property
    def bare(self) -> bool:
        """Neither weights nor constructor arguments: the inputs are all there is."""
        return not self.weights and not any(case.arguments for case in self.cases)


def gather(reference: str) -> Facts:
    """Describe a reference in a child process. Raises Failed with the child's own sentence."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "harness.submit_facts", reference],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
    except subprocess.TimeoutExpired:
        sentence = f"{reference}: its cases outside GPU_ONLY took over {LIMIT_S:.0f} s; shrink them"
        raise Failed(Outcome.REFERENCE_FAILED, "submit", sentence) from None
    if done.returncode == 0:
        return from_dict(Facts, json.loads(done.stdout.splitlines()[-1]))
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    raise Failed(Outcome.REFERENCE_FAILED, "submit", last)


def describe(path: str) -> Facts:
    """Run in the child: every case by example, those marked GPU only by shape alone."""
    import inspect

    from harness import problem

    reference = problem.load(path)
    takes = inspect.signature(reference.get_init_inputs).parameters.values()
    forward = [p for p in inspect.signature(reference.Model.forward).parameters if p != "self"]
    cases = tuple(_case(reference, case, forward) for case in reference.cases if not case.backward)
    return Facts(
        op=reference.op,
        sized_init=any(p.kind is p.VAR_KEYWORD for p in takes),
        rtol=reference.tolerance.rtol,
        atol=reference.tolerance.atol,
        scaled=_is_scaled(reference.tolerance),
        weights=_weights(reference),
        cases=cases,
    )


def _is_scaled(tolerance) -> bool:
    return tolerance.scaled or tolerance.source.startswith("default")


def _weights(reference) -> tuple[Value, ...]:
    model = reference.Model(*reference.init_inputs(reference.cases[0]))
    return tuple(_value(name, tensor) for name, tensor in model.state_dict().items())


def _case(reference, case, forward: list[str]) -> CaseFacts:
    import contextlib

    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    large = case.name in reference.gpu_only
    arguments = tuple(reference.init_inputs(case))
    try:
        with FakeTensorMode() if large else contextlib.nullcontext(), torch.no_grad():
            inputs = reference.inputs(case)
            outputs = reference.Model(*arguments)(*inputs)
    except Exception as error:
        text = f"{case.name}: {type(error).__name__}: {str(error).splitlines()[0][:80]}"
        return CaseFacts(case.name, case.sizes, arguments, why=text)
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    names = [*forward, *(f"input_{i}" for i in range(len(forward), len(inputs)))]
    return CaseFacts(
        case.name,
        case.sizes,
        arguments,
        tuple(_value(name, value) for name, value in zip(names, inputs, strict=False)),
        tuple(_value(f"out_{i}", value) for i, value in enumerate(outputs)),
    )


def _value(name: str, value: Any) -> Value:
    if hasattr(value, "dtype"):
        return Value(name, tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return Value(name, None, type(value).__name__, value)


def main() -> int:
    try:
        print(json.dumps(to_dict(describe(sys.argv[1]))))
    except Failed as failed:
        print(failed.failure.message, file=sys.stderr)
        return 2
    except TypeError as error:
        print(f"{sys.argv[1]}: constructor arguments must be plain data ({error})", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
