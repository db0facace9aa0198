"""What the memory accesses of a solution's kernels look like, by source line, without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator

from harness.records import Case, Failed, Outcome, Plan, to_dict

from .outcomes import Finding
from .traffic import Traffic

_SMALL = "small"  # the case to run where a reference has one: the checked mode is slow


def lint_lines(plan: Plan) -> Iterable[str]:
    """Runs one case in the checked mode, in a process of its own; one text per thing to say."""
    command = [sys.executable, "-m", "harness.simt.lint"]
    done = subprocess.run(
        command,
        input=json.dumps(to_dict(plan)),
        capture_output=True,
        text=True,
        env=os.environ | {"STEELYARD_SIMT_MODE": "checked"},
        timeout=plan.time_limit_s,
        check=False,
    )
    if done.returncode:
        raise Failed(Outcome.CRASHED, "lint", f"{plan.op}: {_last_line(done.stderr)}")
    return done.stdout.splitlines()


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "the process said nothing"


def _chosen(cases: list[Case]) -> Case:
    return next((c for c in cases if c.name == _SMALL), cases[0])


def _solution_class(path: str):
    spec = importlib.util.spec_from_file_location("steelyard_solution", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew


def _run_case(plan: dict) -> tuple[str, dict | None]:
    """Runs the solution once -> name of the case, and the least work that the reference states."""
    import torch

    from harness import problem

    reference = problem.load(plan["reference"])
    case = _chosen([Case(c["name"], c["sizes"], c["backward"]) for c in plan["cases"]])
    torch.manual_seed(plan["seed"] or 0)
    model = _solution_class(plan["solution"])(*reference.get_init_inputs())
    inputs = reference.get_inputs(**case.sizes)
    model(*inputs)
    work = None
    if reference.work is not None:
        work = reference.work(reference.Model(*reference.get_init_inputs()), *inputs)
    return case.name, work


def describe(traffic: list[Traffic], found: list[Finding], work: dict | None) -> Iterator[str]:
    """One text per line of source that touches memory, then what is wrong, then bytes in all."""
    poor = {(f.file, f.line, f.message) for f in found}
    for t in traffic:
        mark = "  <-- look here" if (t.file, t.line, t.summary) in poor else ""
        yield f"line {t.line}: {t.kernel}: {t.summary}{mark}"
    for f in found:
        if f.kind not in ("uncoalesced access", "bank conflict"):
            yield f"{f.severity}: {f}"
    moved = sum(t.bytes for t in traffic if not t.shared)
    if work and work.get("bytes"):
        ratio = moved / work["bytes"]
        yield f"global bytes asked for: {moved}, {ratio:.2f} times the least ({work['bytes']})"
    else:
        yield f"global bytes asked for: {moved}"


def main() -> None:
    from harness import simt

    from . import runtime_library

    simt.install()
    case, work = _run_case(json.load(sys.stdin))
    traffic = runtime_library.traffic()
    found = [*simt.findings(), *(f for t in traffic for f in t.findings())]
    print(f"case {case}, one call, {simt.kernels_run()} kernel launches")
    for line in describe(traffic, found, work):
        print(line)


if __name__ == "__main__":
    main()
