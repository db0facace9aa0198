"""A flashinfer-bench data set of one problem: Definition, Solution, workloads and their tensors.

run(*inputs, *weights) returns the outputs; weights are inputs named after Model's parameters, and
constructor arguments are those of the headline case. Floating inputs are drawn at random by the
receiver; integers and truth values have a meaning and travel as safetensors, written by
`harness.submit_tensors`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from harness.formats import flashinfer_files
from harness.receivers import FLASHINFER_DTYPES, FLASHINFER_FLOATS
from harness.records import Failed, Outcome
from harness.submit_facts import CaseFacts, Facts, Value

AUTHOR = "steelyard"
OP_TYPE = "steelyard"

RUN = """

_model = None
_WEIGHTS = {weights!r}


@torch.no_grad()
def run({parameters}):
    global _model
    if _model is None:
        _model = {model}(*{arguments!r}).to("cuda")
    state = dict(_model.named_parameters())
    state.update(_model.named_buffers())
    for name, value in zip(_WEIGHTS, [{weight_names}]):
        state[name].data = value
    return _model({inputs})
"""


@dataclass(frozen=True)
class Blob:
    """A file of tensors that one workload needs: the case, and which of its values."""

    path: str
    case: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class DataSet:
    """Texts by path below the data set's root, the blobs to be written, and cases left out."""

    texts: dict[str, str]
    blobs: tuple[Blob, ...]
    left_out: tuple[str, ...]


def data_set(solution: str, reference: str, facts: Facts) -> DataSet:
    """All files of the data set. Raises Failed where the format cannot express the problem."""
    cases, left_out = _cases(facts)
    head = cases[0]
    values = (*head.inputs, *facts.weights)
    for value in (*values, *head.outputs):
        if value.shape is not None and value.dtype not in FLASHINFER_DTYPES:
            raise _fail(f"{value.name} is {value.dtype}, which flashinfer-bench has no name for")
    axes = _Axes(cases, facts.weights)
    definition = {
        "name": facts.op,
        "op_type": OP_TYPE,
        "description": f"{facts.op}, exported by Steelyard",
        "axes": axes.declared,
        "inputs": {plain(v.name): _tensor(v, axes) for v in values},
        "outputs": {v.name: _tensor(v, axes) for v in head.outputs},
        "reference": _with_run(reference, "Model", head, facts),
    }
    text = _with_run(solution, "ModelNew", head, facts)
    texts = {
        flashinfer_files.definition_path(OP_TYPE, facts.op): _json(definition),
        solution_path(facts.op): _json(_solution(facts.op, text)),
    }
    lines, blobs = [], []
    for case in cases:
        workload, blob = _workload(case, values, axes, facts.op)
        trace = {"definition": facts.op, "workload": workload}
        lines.append(json.dumps({**trace, "solution": None, "evaluation": None}))
        blobs += [blob] if blob else []
    texts[flashinfer_files.workloads_path(OP_TYPE, facts.op)] = "\n".join(lines) + "\n"
    return DataSet(texts, tuple(blobs), left_out)


def solution_path(op: str) -> str:
    """Where the Solution lies: the file to send where the receiver has the Definition."""
    return flashinfer_files.solution_path(AUTHOR, OP_TYPE, op, f"{AUTHOR}_{op}")


def plain(name: str) -> str:
    """A parameter's dotted name as an identifier."""
    return name.replace(".", "_")


def main_text(solution_json: str) -> str:
    """The Python source inside a Solution."""
    return json.loads(solution_json)["sources"][0]["content"]


class _Axes:
    """Dimensions that are equal in every case share an axis; those that never change are const."""

    def __init__(self, cases: tuple[CaseFacts, ...], weights: tuple[Value, ...]):
        self.declared: dict[str, dict] = {}
        self._values: dict[tuple[int, ...], str] = {}
        names = [v.name for v in (*cases[0].inputs, *weights, *cases[0].outputs)]
        rows = [[v.shape or () for v in (*c.inputs, *weights, *c.outputs)] for c in cases]
        self._of: dict[tuple[str, int], str] = {}
        for position, name in enumerate(names):
            for dimension in range(len(rows[0][position])):
                sizes = tuple(row[position][dimension] for row in rows)
                self._of[name, dimension] = self._axis(f"{plain(name)}_{dimension}", sizes)

    def _axis(self, name: str, sizes: tuple[int, ...]) -> str:
        if sizes not in self._values:
            self._values[sizes] = name
            fixed = len(set(sizes)) == 1
            self.declared[name] = {"type": "const", "value": sizes[0]} if fixed else {"type": "var"}
        return self._values[sizes]

    def shape(self, value: Value) -> list[str] | None:
        if value.shape is None:
            return None
        return [self._of[value.name, dimension] for dimension in range(len(value.shape))]

    def values(self, case: CaseFacts) -> dict[str, int]:
        found = {}
        for value in (*case.inputs, *case.outputs):
            for dimension, size in enumerate(value.shape or ()):
                axis = self._of[value.name, dimension]
                if self.declared[axis]["type"] == "var":
                    found[axis] = size
        return found


def _cases(facts: Facts) -> tuple[tuple[CaseFacts, ...], tuple[str, ...]]:
    """Cases that one Definition covers: types, arguments and ranks as the first, nothing empty."""
    described = facts.described
    if not described:
        raise _fail(f"no case could be described ({facts.cases[0].why})")
    head, kept, left_out = described[0], [], []
    for case in facts.cases:
        same = case in described and _kind(case) == _kind(head)
        empty = any(0 in (v.shape or ()) for v in (*case.inputs, *case.outputs))
        (kept if same and not empty else left_out).append(case)
    return tuple(kept), tuple(case.name for case in left_out)


def _kind(case: CaseFacts) -> tuple:
    values = (*case.inputs, *case.outputs)
    return tuple((v.dtype, None if v.shape is None else len(v.shape)) for v in values), (
        case.arguments
    )


def _tensor(value: Value, axes: _Axes) -> dict:
    dtypes = {"float": "float32", "int": "int64", "bool": "bool"}
    return {
        "shape": axes.shape(value),
        "dtype": value.dtype if value.shape is not None else dtypes[value.dtype],
    }


def _with_run(text: str, model: str, head: CaseFacts, facts: Facts) -> str:
    inputs = [v.name for v in head.inputs]
    weights = [plain(v.name) for v in facts.weights]
    return (
        text.rstrip()
        + "\n"
        + RUN.format(
            weights=[v.name for v in facts.weights],
            parameters=", ".join([*inputs, *weights]),
            model=model,
            arguments=tuple(head.arguments),
            weight_names=", ".join(weights),
            inputs=", ".join(inputs),
        )
    )


def _solution(op: str, text: str) -> dict:
    return {
        "name": f"{AUTHOR}_{op}",
        "definition": op,
        "author": AUTHOR,
        "spec": {
            "language": "python",
            "target_hardware": ["cuda"],
            "entry_point": "main.py::run",
            "dependencies": [],
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": text}],
    }


def _workload(case: CaseFacts, values, axes: _Axes, op: str) -> tuple[dict, Blob | None]:
    own = {v.name: v for v in case.inputs}
    fixed = [v.name for v in values if v.shape is not None and v.dtype not in FLASHINFER_FLOATS]
    path = flashinfer_files.blob_path(OP_TYPE, op, plain(case.name).replace(" ", "_"))
    inputs = {}
    for value in values:
        if value.shape is None:
            inputs[plain(value.name)] = {"type": "scalar", "value": own[value.name].value}
        elif value.name in fixed:
            inputs[plain(value.name)] = {
                "type": "safetensors",
                "path": path,
                "tensor_key": plain(value.name),
            }
        else:
            inputs[plain(value.name)] = {"type": "random"}
    uuid = hashlib.sha256(f"{op}/{case.name}".encode()).hexdigest()[:32]
    workload = {"uuid": uuid, "axes": axes.values(case), "inputs": inputs}
    return workload, Blob(path, case.name, tuple(fixed)) if fixed else None


def _json(value) -> str:
    return json.dumps(value, indent=2) + "\n"


def _fail(message: str) -> Failed:
    return Failed(Outcome.DOES_NOT_LOAD, "submit", message)
