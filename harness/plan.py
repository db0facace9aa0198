"""Words of the command line to plans: which solution against which reference, which cases."""

from __future__ import annotations

import difflib
import shlex
from dataclasses import dataclass
from pathlib import Path

from harness import problem
from harness.formats import flashinfer, flashinfer_solution, gpumode
from harness.records import Failed, Outcome, Plan

ROOT = Path(__file__).resolve().parent.parent
HOME = {"reference": "reference", "solution": "solutions", "peer": "peers"}


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    ops: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    reference: str | None = None
    solution: str | None = None
    device: str = "cpu"
    seed: int | None = None
    timing: bool = True
    root: Path = ROOT


def ops(root: Path = ROOT) -> tuple[str, ...]:
    """Every op: a file in reference/ is enough to be one."""
    return tuple(sorted(p.stem for p in (root / HOME["reference"]).glob("[!_]*.py")))


def plans(request: Request) -> tuple[Plan, ...]:
    """One plan per solution. Raises Failed with a sentence for what does not exist."""
    chosen = tuple(_plan(request, op, *files) for op, files in _pairs(request).items())
    if request.cases and not any(plan.cases for plan in chosen):
        names = dict.fromkeys(
            case.name for plan in chosen for case in problem.declared(plan.reference).cases
        )
        raise _fail(f"no case {', '.join(request.cases)}; there are {', '.join(names)}")
    return tuple(plan for plan in chosen if plan.cases) if request.cases else chosen


def words(op: str, reference: str, solution: str) -> str:
    """What follows `run_eval.py` to judge this pair of files again."""
    if ROOT / reference != ROOT / HOME["reference"] / f"{op}.py":
        return shlex.join(["--reference", reference, "--solution", solution])
    if ROOT / solution != ROOT / HOME["solution"] / f"{op}.py":
        return shlex.join([op, "--solution", solution])
    return op


def _fail(message: str) -> Failed:
    return Failed(Outcome.DOES_NOT_LOAD, "plan", message)


def _pairs(request: Request) -> dict[str, tuple[Path, Path]]:
    if request.reference or request.solution:
        return _named_files(request)
    known = ops(request.root)
    if not known:
        raise _fail(f"{request.root / HOME['reference']}: no reference files; add <op>.py there")
    pairs = {}
    for op in request.ops or known:
        if op not in known:
            near = difflib.get_close_matches(op, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise _fail(f"no op {op!r}; {hint}")
        pairs[op] = (request.root / HOME["reference"] / f"{op}.py", _solution(request, op))
    return pairs


def _solution(request: Request, op: str) -> Path:
    path = request.root / HOME["solution"] / f"{op}.py"
    if not path.is_file():
        raise _fail(f"op {op} has no {HOME['solution']}/{op}.py; write one with a class ModelNew")
    return path


def _named_files(request: Request) -> dict[str, tuple[Path, Path]]:
    if len(request.ops) > 1:
        raise _fail("--reference and --solution go with at most one op; name one")
    reference, solution = request.reference, request.solution
    if reference is None:
        if not request.ops:
            raise _fail("--solution FILE needs an op or --reference FILE to be judged against")
        reference = request.root / HOME["reference"] / f"{request.ops[0]}.py"
        if not reference.is_file():
            return _pairs(Request(ops=request.ops, root=request.root))  # names what there is
    if solution is None:
        if not request.ops:
            raise _fail("--reference FILE needs --solution FILE to be judged against it")
        solution = _solution(request, request.ops[0])
    for path in (Path(reference), Path(solution)):
        if not path.is_file() and not (path == Path(reference) and gpumode.is_problem(path)):
            raise _fail(f"{path}: no such file; give the path of a Python file")
    _fit(Path(reference), Path(solution))
    op = request.ops[0] if request.ops else problem.op_name(Path(reference).resolve())
    return {op: (Path(reference).absolute(), Path(solution).absolute())}


def _fit(reference: Path, solution: Path) -> None:
    """A Definition goes with a Solution, and with nothing else."""
    if flashinfer.is_problem(reference) and not flashinfer_solution.is_solution(solution):
        raise _fail(f"{reference} is solved by a Solution in JSON, not by {solution}; give one")
    if flashinfer_solution.is_solution(solution) and not flashinfer.is_problem(reference):
        raise _fail(
            f"{solution} is a Solution in JSON, and {reference} no Definition in JSON; give the "
            "Definition as --reference"
        )


def _plan(request: Request, op: str, reference: Path, solution: Path) -> Plan:
    """Cases that want a GPU's memory and speed run without one only when they are asked for."""
    declared = problem.declared(reference)
    on_gpu = request.device != "cpu"
    left_out = () if on_gpu or request.cases else declared.gpu_only
    foreign = gpumode.is_problem(reference)
    cases = tuple(
        case
        for case in declared.cases
        if (not request.cases or case.name in request.cases or case.label in request.cases)
        and case.name not in left_out
    )
    return Plan(
        op=op,
        reference=str(reference),
        solution=str(solution),
        cases=cases,
        left_out=tuple(dict.fromkeys(c.name for c in declared.cases if c.name in left_out)),
        device=request.device,
        seed=request.seed,
        timing=request.timing and on_gpu,
        entry=gpumode.ENTRY if foreign else "ModelNew",
        beside=gpumode.beside(reference) if foreign else "",
        peers=_peers(request.root, op) if request.timing and on_gpu else (),
    )


def _peers(root: Path, op: str) -> tuple[str, ...]:
    return tuple(str(path) for path in sorted((root / HOME["peer"]).glob(f"{op}__*.py")))
