"""A flashinfer-bench Definition and its Workloads as one problem; SOL-ExecBench's likewise.

Every workload is one case, named by the first characters of its uuid as their tools show it.
Nothing here imports torch: what the judge draws is in `flashinfer_inputs`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from harness.formats import (
    flashinfer_definition,
    flashinfer_files,
    flashinfer_workload,
    sol_execbench,
)
from harness.formats.flashinfer_definition import Definition
from harness.formats.flashinfer_workload import Workload
from harness.records import Case, Failed, Outcome

LARGE = 1 << 26  # bytes of inputs and outputs from which on a case is left to a GPU
SHORT = 8  # characters of a uuid that mostly tell workloads apart


@dataclass(frozen=True)
class Problem:
    """sol: it has what only SOL-ExecBench has. files: definition and workloads, as paths."""

    definition: Definition
    workloads: tuple[Workload, ...]
    root: Path
    sol: bool
    files: tuple[Path, ...]

    @property
    def op(self) -> str:
        return re.sub(r"[^\w.-]", "_", self.definition.name)

    @property
    def cases(self) -> tuple[Case, ...]:
        """One per workload. `uuid` tells get_inputs which; the axes are there to be read."""
        short = self._length()
        axes = [axis.name for axis in self.definition.axes if axis.value is None]
        return tuple(
            Case(one.uuid[:short], {**{a: one.sizes[a] for a in axes}, "uuid": one.uuid})
            for one in self.workloads
        )

    @property
    def large(self) -> frozenset[str]:
        """Names of cases with too much data for the CPU execution; the smallest is never one."""
        tensors = (*self.definition.inputs, *self.definition.outputs)
        sizes = {
            case.name: sum(tensor.nbytes(one.sizes) for tensor in tensors)
            for case, one in zip(self.cases, self.workloads, strict=True)
        }
        least = min(sizes.values())
        return frozenset(name for name, size in sizes.items() if size > max(LARGE, least))

    @property
    def blobs(self) -> tuple[Path, ...]:
        """The safetensors files that are there."""
        wanted = (given.path for one in self.workloads for given in one.inputs.values())
        found = (flashinfer_files.blob_of(self.root, path) for path in wanted if path)
        return tuple(dict.fromkeys(path for path in found if path is not None))

    def workload(self, uuid: str) -> Workload:
        return next(one for one in self.workloads if one.uuid == uuid)

    def _length(self) -> int:
        longest = max(len(one.uuid) for one in self.workloads)
        for length in range(SHORT, longest):
            if len({one.uuid[:length] for one in self.workloads}) == len(self.workloads):
                return length
        return longest


def is_problem(path: str | Path) -> bool:
    """A reference in JSON can only be a Definition."""
    return Path(path).suffix == ".json"


def read(path: str | Path) -> Problem:
    """The problem of a Definition's file. Raises Failed(REFERENCE_FAILED) with one sentence."""
    path = Path(path)
    fields = flashinfer_files.load(path, Outcome.REFERENCE_FAILED)
    definition = flashinfer_definition.definition(path, fields)
    listed = flashinfer_files.workloads_of(path)
    lines = flashinfer_files.load_lines(listed, Outcome.REFERENCE_FAILED)
    if not lines:
        fields.fail(f"its workloads {listed} are empty; want one JSON object a line")
    workloads = tuple(flashinfer_workload.workload(line, definition) for line in lines)
    twice = [uuid for uuid, count in Counter(w.uuid for w in workloads).items() if count > 1]
    if twice:
        fields.fail(f"two workloads of {listed} have the uuid {twice[0]}; give each its own")
    own = any(name in fields.body for name in sol_execbench.OWN_FIELDS)
    bare = any("workload" not in line.body for line in lines)
    expressions = any(axis.expression for axis in definition.axes)
    return Problem(
        definition,
        workloads,
        flashinfer_files.root_of(path),
        own or bare or expressions,
        (path, listed),
    )


def definition_name(path: Path) -> str:
    """The `name` in a file that may be a Definition; "" where it is not."""
    try:
        body = flashinfer_files.load(path, Outcome.REFERENCE_FAILED).body
    except Failed:
        return ""
    name = body.get("name")
    return name if "reference" in body and isinstance(name, str) else ""
