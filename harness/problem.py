"""Load and validate a reference file: one of ours or a bare KernelBench problem."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import io
import linecache
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.formats import flashinfer, gpumode
from harness.records import Case, Failed, Outcome, Tolerance

# Half of each type's digits, as KernelBench-like problems state none: fp32 1e-4, fp16 and bf16 1e-2
# (the figures of KernelBench's own get_tolerance_for_precision).
DEFAULT_TOLERANCE = Tolerance(1e-4, 1e-4, "default for fp32")


@dataclass(frozen=True)
class Reference:
    """A validated problem. Callables come from a module namespace of its own."""

    op: str
    path: str
    Model: type
    get_inputs: Callable[..., list]
    get_init_inputs: Callable[[], list]
    cases: tuple[Case, ...]
    tolerance: Tolerance
    work: Callable[..., dict] | None
    work_backward: Callable[..., dict] | None
    gradients: bool
    gpu_only: frozenset[str]
    timed: frozenset[str]
    module: types.ModuleType
    notes: tuple[str, ...] = ()
    accepts: Callable[[Case, list, Any], tuple[bool, str]] | None = None  # the problem's own

    def inputs(self, case: Case) -> list:
        """Fresh inputs of a case, drawn with torch's global generator."""
        return list(self.get_inputs(**case.sizes))

    def init_inputs(self, case: Case) -> list:
        """Arguments of Model() for a case; sizes are passed on where get_init_inputs takes them."""
        takes = inspect.signature(self.get_init_inputs).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in takes):
            return list(self.get_init_inputs(**case.sizes))
        return list(self.get_init_inputs())


@dataclass(frozen=True)
class Declared:
    """What a reference file says of itself without being run."""

    cases: tuple[Case, ...]
    gpu_only: frozenset[str]


def op_name(path: str | Path) -> str:
    return flashinfer.read(path).op if flashinfer.is_problem(path) else Path(path).stem


def declared(path: str | Path) -> Declared:
    """CASES, GRADIENTS and GPU_ONLY read from the syntax tree; torch is not imported."""
    if gpumode.is_problem(path):
        problem = gpumode.read(path)
        tests = len(problem.cases) > len(problem.benchmarks)
        return Declared(problem.cases, problem.benchmarks if tests else frozenset())
    if flashinfer.is_problem(path):
        problem = flashinfer.read(path)
        return Declared(problem.cases, problem.large)
    tree = _parse(Path(path))
    values = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("CASES", "GRADIENTS", "GPU_ONLY"):
                values[name] = _literal(node.value, f"{path}:{node.lineno}: {name}")
    gpu_only = frozenset(values.get("GPU_ONLY", ()))
    cases = _cases(values.get("CASES", {"headline": {}}), bool(values.get("GRADIENTS")), path)
    return Declared(cases, gpu_only)


def load(path: str | Path) -> Reference:
    """Run a reference file in a namespace of its own and validate it.

    Raises Failed(DOES_NOT_LOAD) with one sentence: file, what is missing, what to write.
    """
    path = Path(path)
    if gpumode.is_problem(path):
        return _gpumode(path)
    if flashinfer.is_problem(path):
        return _flashinfer(path)
    module = _execute(path)
    model = _member(module, path, "Model", "class Model(nn.Module) with a forward")
    get_inputs = _member(module, path, "get_inputs", "def get_inputs(): return [tensors]")
    get_init = getattr(module, "get_init_inputs", None)
    notes = []
    if get_init is None:
        get_init = _no_init_inputs
        notes.append("no get_init_inputs: Model() is built without arguments")
    gradients = bool(getattr(module, "GRADIENTS", False))
    raw_cases = getattr(module, "CASES", None)
    if raw_cases is None:
        notes.append("no CASES: one case, get_inputs() as it is")
        raw_cases = {"headline": {}}
    work = getattr(module, "work", None)
    if work is None:
        notes.append("no work(): the floor counts each input and output once")
    cases = _cases(raw_cases, gradients, path)
    _check_sizes(cases, get_inputs, path)
    return Reference(
        op=op_name(path),
        path=str(path),
        Model=model,
        get_inputs=get_inputs,
        get_init_inputs=get_init,
        cases=cases,
        tolerance=_tolerance(getattr(module, "TOLERANCE", None), path, notes),
        work=work,
        work_backward=getattr(module, "work_backward", None),
        gradients=gradients,
        gpu_only=frozenset(getattr(module, "GPU_ONLY", ())),
        timed=frozenset(getattr(module, "TIMED", raw_cases)),
        module=module,
        notes=tuple(notes),
    )


def _gpumode(path: Path) -> Reference:
    """A folder of GPU MODE: its tests are checked, its benchmarks timed as well."""
    module = types.ModuleType("steelyard_gpumode")
    module.__dict__.update(gpumode.namespace(path, _execute))
    own = "check_implementation decides; new seeds are drawn in place of those in task.yml"
    notes = [own if module.accepts else "no check_implementation"]
    return _foreign(path, module, gpumode.read(path).benchmarks, notes)


def _flashinfer(path: Path) -> Reference:
    """A Definition of flashinfer-bench or SOL-ExecBench with its workloads."""
    from harness.formats import flashinfer_inputs

    module = types.ModuleType("steelyard_flashinfer")
    module.__dict__.update(flashinfer_inputs.namespace(path, _run_text))
    note = "the workload's tolerance decides"
    if module.accepts is None:
        theirs = "SOL-ExecBench: 1e-2, 99 %" if module.problem.sol else "flashinfer-bench: 1e-2"
        note = f"no tolerance stated: 1e-4 for fp32, 1e-2 for fp16 and bf16, scaled ({theirs})"
    timed = frozenset(case.name for case in declared(path).cases)
    return _foreign(path, module, timed, [note])


def _foreign(path: Path, module: types.ModuleType, timed: frozenset, notes: list[str]) -> Reference:
    """A problem of another format: no gradients and no work(); its module has our names."""
    stated = declared(path)
    return Reference(
        op=op_name(path.resolve()),
        path=str(path),
        Model=module.Model,
        get_inputs=module.get_inputs,
        get_init_inputs=module.get_init_inputs,
        cases=stated.cases,
        tolerance=DEFAULT_TOLERANCE,
        work=None,
        work_backward=None,
        gradients=False,
        gpu_only=stated.gpu_only,
        timed=timed,
        module=module,
        notes=tuple(notes),
        accepts=module.accepts,
    )


def _no_init_inputs() -> list:
    return []


def _fail(message: str) -> Failed:
    return Failed(Outcome.REFERENCE_FAILED, "load", message)


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8-sig"), str(path))
    except OSError as error:
        raise _fail(f"{path}: cannot be read ({error.strerror}); give the path of a file") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else f"{path}"
        reason = getattr(error, "msg", None) or str(error)
        raise _fail(f"{where}: not valid Python ({reason})") from None


def _literal(node: ast.expr, where: str) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        pass
    if isinstance(node, ast.Dict) and all(_is_dict_call(v) for v in node.values):
        return {
            ast.literal_eval(k): _call_to_dict(v, where)
            for k, v in zip(node.keys, node.values, strict=True)
        }
    if _is_dict_call(node):
        return _call_to_dict(node, where)
    raise _fail(f"{where} must be plain data (names, numbers, strings, dict(...)) and is not")


def _is_dict_call(node: ast.expr) -> bool:
    if isinstance(node, ast.Dict):
        return True
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"


def _call_to_dict(node: ast.expr, where: str) -> dict:
    try:
        if isinstance(node, ast.Dict):
            return ast.literal_eval(node)
        return {k.arg: ast.literal_eval(k.value) for k in node.keywords}
    except ValueError:
        raise _fail(f"{where} must be plain data and is not (line {node.lineno})") from None


def _execute(path: Path) -> types.ModuleType:
    return _run(_parse(path), str(path), str(path.resolve()))


def _run_text(text: str, name: str) -> types.ModuleType:
    """A text that is no file: tracebacks and inspect.getsource find it under `name`."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return _run(ast.parse(text, name), name, name)


def _run(tree: ast.Module, path: str, unique: str) -> types.ModuleType:
    """The module of a syntax tree. Raises Failed with the line where it stops."""
    digest = hashlib.sha256(unique.encode()).hexdigest()[:12]
    module = types.ModuleType(f"steelyard_reference_{digest}")
    module.__file__ = path
    sys.modules[module.__name__] = module
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(tree, path, "exec"), module.__dict__)
    except BaseException as error:
        sys.modules.pop(module.__name__, None)
        if isinstance(error, KeyboardInterrupt):
            raise
        line = _line_in(error, path)
        raise _fail(
            f"{path}{line}: stops on import with {type(error).__name__}: {error}"
        ) from error
    return module


def _line_in(error: BaseException, path: str) -> str:
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _member(module: types.ModuleType, path: Path, name: str, wanted: str) -> Any:
    value = getattr(module, name, None)
    if value is None:
        near = [n for n in vars(module) if n.lower().replace("_", "") == name.lower()]
        hint = f" (there is {near[0]})" if near else ""
        raise _fail(f"{path}: no {name}{hint}; write {wanted}")
    return value


def _cases(raw: Any, gradients: bool, path: str | Path) -> tuple[Case, ...]:
    if not isinstance(raw, dict) or not raw:
        raise _fail(f'{path}: CASES must be a dict such as {{"headline": {{}}}}, got {raw!r}')
    cases = []
    for name, sizes in raw.items():
        if not isinstance(name, str) or not isinstance(sizes, dict):
            raise _fail(f"{path}: CASES[{name!r}] must be a dict of get_inputs arguments")
        cases.append(Case(name, dict(sizes)))
        if gradients:
            cases.append(Case(name, dict(sizes), backward=True))
    return tuple(cases)


def _check_sizes(cases: tuple[Case, ...], get_inputs: Callable, path: Path) -> None:
    signature = inspect.signature(get_inputs)
    for case in cases:
        try:
            signature.bind(**case.sizes)
        except TypeError as error:
            raise _fail(f"{path}: get_inputs does not take case {case.name!r}: {error}") from None


def _tolerance(raw: Any, path: Path, notes: list[str]) -> Tolerance:
    if raw is None:
        notes.append("no TOLERANCE: 1e-4 for fp32, 1e-2 for fp16 and bf16, scaled to the output")
        return DEFAULT_TOLERANCE
    if isinstance(raw, dict) and {"rtol", "atol"} <= raw.keys():
        source, scaled = str(raw.get("source", "")), bool(raw.get("scaled", False))
        return Tolerance(float(raw["rtol"]), float(raw["atol"]), source, scaled)
    raise _fail(f"{path}: TOLERANCE must be dict(rtol=, atol=), got {raw!r}")
