"""What is wrong or will be slow in a solution's kernels, by source line: `run_eval.py lint OP`.

Every order of blocks and threads (`ORDERS`) is a process of its own, as `install()` changes torch
and the runtime reads its order once. The numbers are those of the first order.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.records import Case, Failed, Outcome, Plan

from .outcomes import Finding

ORDERS = (0, 1, 2)  # 0 is the natural one; others permute blocks and the threads of a block
POOR = 1.5  # times the sectors or passes needed, from here on a line is marked
FEW_LANES = 16.0  # lanes per warp access, below which a line is marked
LITTLE = 4096  # bytes of a line in the blocks looked at, below which nothing is said about it
_SEED = 1234


@dataclass(frozen=True)
class LintLine:
    """One kind of access of one source line; see checked.LineTraffic for the counts' meaning."""

    kernel: str
    line: int
    text: str
    what: str
    bytes_per_lane: int
    lanes: float
    used: float  # sectors (global) or passes (shared) per warp access
    least: float
    share: float  # of the kernel's sectors or passes
    bytes: int  # of all lanes, in the blocks that were looked at

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is poor about it; empty for most lines and for what moves next to nothing."""
        if self.bytes < LITTLE:
            return ()
        shared = self.what.startswith("shared")
        found = []
        if self.used >= POOR * self.least:
            found.append("bank conflict" if shared else "uncoalesced")
        if self.lanes < FEW_LANES and self.share >= 0.05:
            found.append("few lanes")
        return tuple(found)

    def __str__(self) -> str:
        unit = "passes" if self.what.startswith("shared") else "sectors"
        remark = f"  <- {', '.join(self.remarks)}" if self.remarks else ""
        return (
            f"{self.line:5d}  {self.what:<13} {self.bytes_per_lane:2d} B x {self.lanes:4.1f} lanes "
            f"{self.used:6.1f} {unit} (least {self.least:.1f}){remark}  | {self.text}"
        )


@dataclass(frozen=True)
class KernelLint:
    """One kernel in one case. Bytes of global memory: asked for, and each byte once a launch."""

    kernel: str
    launches: int
    blocks: int
    threads: int
    bytes_read: int
    bytes_written: int
    distinct_bytes: int
    lines: tuple[LintLine, ...]

    def __str__(self) -> str:
        asked = self.bytes_read + self.bytes_written
        return (
            f"{self.kernel}: {self.launches} launch(es), {self.blocks} blocks of {self.threads}; "
            f"asks for {_size(asked)} of global memory, touches {_size(self.distinct_bytes)}"
        )


@dataclass(frozen=True)
class Lint:
    """The report on one solution and one case."""

    op: str
    case: str
    kernels: tuple[KernelLint, ...]
    findings: tuple[Finding, ...]
    least_bytes: int | None  # by the reference's work()
    orders: tuple[int, ...]

    @property
    def ok(self) -> bool:
        return not any(f.severity == "error" for f in self.findings)

    @property
    def touched_bytes(self) -> int:
        return sum(k.distinct_bytes for k in self.kernels)


def lint(plan: Plan, case: Case, orders: Sequence[int] = ORDERS) -> Lint:
    """Run the case once in every order; raises Failed where the solution cannot be executed."""
    runs = [_run(plan, case, order) for order in orders]
    found: dict[tuple, Finding] = {}
    for run in runs:
        for raw in run["findings"]:
            finding = Finding(**raw)
            found.setdefault((finding.kind, finding.line, finding.other_line), finding)
    text = Path(plan.solution).read_text().splitlines()
    return Lint(
        op=plan.op,
        case=case.label,
        kernels=tuple(_kernel(raw, text, plan.solution) for raw in runs[0]["kernels"]),
        findings=tuple(found.values()),
        least_bytes=runs[0]["least_bytes"],
        orders=tuple(orders),
    )


def lint_lines(plan: Plan) -> list[str]:
    """The reports on all cases of the plan, as lines to print."""
    lines: list[str] = []
    for case in plan.cases:
        lines += [*report_lines(lint(plan, case), plan.solution), ""]
    return lines[:-1]


def report_lines(report: Lint, solution: str) -> list[str]:
    """One report as lines to print."""
    lines = [f"{report.op}/{report.case}: {solution}"]
    if report.least_bytes:
        touched, least = report.touched_bytes, report.least_bytes
        lines.append(
            f"bytes: {_size(touched)} touched by the kernels, {_size(least)} needed by work(): "
            f"{touched / least:.2f} times"
        )
    for kernel in report.kernels:
        lines += ["", str(kernel), *map(str, kernel.lines)]
    severe = [f for f in report.findings if f.severity != "note"]
    orders = f"in {len(report.orders)} orders of blocks and threads"
    lines += ["", f"faults: {len(severe)} {orders}" if severe else f"no fault found {orders}"]
    return lines + [f"  {f.severity}: {f}" for f in report.findings]


def _kernel(raw: dict, text: list[str], solution: str) -> KernelLint:
    own = _of_solution(raw["lines"], solution)
    sums = {unit: sum(line[unit] for line in own) or 1 for unit in ("sectors", "passes")}
    return KernelLint(
        kernel=raw["kernel"],
        launches=raw["launches"],
        blocks=raw["blocks"],
        threads=raw["threads"],
        bytes_read=raw["bytes_read"],
        bytes_written=raw["bytes_written"],
        distinct_bytes=raw["distinct_bytes_read"] + raw["distinct_bytes_written"],
        lines=tuple(_line(line, text, sums) for line in own),
    )


_COUNTS = ("warp_accesses", "lanes", "bytes", "sectors", "least_sectors", "passes", "least_passes")


_TRANSLATED = re.compile(r"(main|unit_\d+)\.cpp$")


def _of_solution(lines: list[dict], solution: str) -> list[dict]:
    """The solution's own lines. Debug information may name the translated file instead, with
    the solution's line numbers; such twins are added up."""
    merged: dict[tuple, dict] = {}
    for line in lines:
        file = Path(line["file"])
        if not _TRANSLATED.match(file.name) and file.resolve() != Path(solution).resolve():
            continue
        key = (line["line"], line["what"], line["bytes_per_lane"])
        if key not in merged:
            merged[key] = dict(line)
            continue
        for name in _COUNTS:
            merged[key][name] += line[name]
    return [merged[key] for key in sorted(merged)]


def _line(raw: dict, text: list[str], sums: dict[str, int]) -> LintLine:
    unit = "passes" if raw["what"].startswith("shared") else "sectors"
    times = max(raw["warp_accesses"], 1)
    return LintLine(
        kernel=raw["kernel"],
        line=raw["line"],
        text=text[raw["line"] - 1].strip()[:70] if raw["line"] <= len(text) else "",
        what=raw["what"],
        bytes_per_lane=raw["bytes_per_lane"],
        lanes=raw["lanes"] / times,
        used=raw[unit] / times,
        least=raw[f"least_{unit}"] / times,
        share=raw[unit] / sums[unit],
        bytes=raw["bytes"],
    )


def _size(bytes_: float) -> str:
    for unit in ("B", "KB", "MB"):
        if bytes_ < 1000:
            return f"{bytes_:.3g} {unit}"
        bytes_ /= 1000
    return f"{bytes_:.3g} GB"


def _run(plan: Plan, case: Case, order: int) -> dict:
    """One order in a process of its own; what `main` below prints."""
    words = [plan.reference, plan.solution, json.dumps(dataclasses.asdict(case))]
    environment = os.environ | {
        "STEELYARD_SIMT_MODE": "checked",
        "STEELYARD_SIMT_SEED": str(order),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    command = [sys.executable, "-m", "harness.simt.lint", *map(str, words)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=plan.time_limit_s, env=environment
        )
    except subprocess.TimeoutExpired:
        raise Failed(
            Outcome.TIMED_OUT,
            "lint",
            f"{plan.op}/{case.label} took more than {plan.time_limit_s:.0f} s on the CPU; "
            "choose a smaller case",
        ) from None
    last = done.stdout.rpartition("LINT ")[2]
    if done.returncode or not last:
        tail = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise Failed(Outcome.CRASHED, "lint", f"{plan.op}: {tail[0]}", log=done.stderr)
    result = json.loads(last)
    if "outcome" in result:
        raise Failed(Outcome(result["outcome"]), "lint", f"{plan.op}: {result['message']}")
    return result


def main(reference: str, solution: str, case: str) -> None:
    """The child: prints "LINT " and one JSON object."""
    from harness import problem, simt

    simt.install()
    try:
        result = _execute(problem.load(reference), solution, Case(**json.loads(case)))
    except simt.NeedsGPU as error:
        result = {"outcome": Outcome.NEEDS_GPU.value, "message": str(error)}
    except simt.BuildFailed as error:
        result = {"outcome": Outcome.DOES_NOT_BUILD.value, "message": str(error)}
    print("LINT " + json.dumps(result))


def _execute(reference, solution: str, case: Case) -> dict:
    import torch

    from harness import simt
    from harness.simt import checked

    torch.manual_seed(_SEED)
    model = _load(solution).ModelNew(*reference.init_inputs(case))
    torch.manual_seed(_SEED)
    inputs = [_leaf(value, case.backward) for value in reference.inputs(case)]
    found = []
    try:
        output = model(*inputs)
        if case.backward:
            _backward(output)
        found = checked.unwritten_outputs(output)
    except simt.Fault as fault:
        message = f"{fault.message}, block {fault.block}, thread {fault.thread}"
        found = [Finding(fault.kind, "error", message, fault.line, 0, fault.kernel, fault.file)]
    kernels = [dataclasses.asdict(kernel) for kernel in checked.traffic()]
    found += simt.findings()
    return {
        "kernels": kernels,
        "findings": [dataclasses.asdict(finding) for finding in found],
        "least_bytes": _least_bytes(reference, case),
    }


def _load(solution: str):
    import importlib.util

    spec = importlib.util.spec_from_file_location(f"lint_{Path(solution).stem}", solution)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _leaf(value, differentiable: bool):
    import torch

    if differentiable and isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.requires_grad_()
    return value


def _backward(output) -> None:
    """Gradients of the sum of all outputs that have any."""
    import torch

    tensors = [output] if isinstance(output, torch.Tensor) else list(output)
    wanted = [t for t in tensors if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.autograd.backward(wanted, [torch.ones_like(t) for t in wanted])


def _least_bytes(reference, case: Case) -> int | None:
    work = reference.work_backward if case.backward else reference.work
    if work is None:
        return None
    model = reference.Model(*reference.init_inputs(case))
    return int(work(model, *reference.inputs(case))["bytes"])


if __name__ == "__main__":
    main(*sys.argv[1:])
