"""One plan's cases called without a judge, for a profiler or sanitizer to look at from outside.

python -m harness.bare_call PLAN.json   Each case: warm-up calls, then one call between
cudaProfilerStart and cudaProfilerStop. The solution is not confined here, as it is under a judge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import plan
from harness.records import Failed, Outcome, Plan, from_dict, to_dict

WARM_UPS = 3
SEED = 1
LIMIT_S = 900.0
BUILT = "built.json"  # beside the plan: folders of what the call was built from


def prepare(one: Plan, folder: Path) -> list[str]:
    """The command that calls the plan's cases; run once here, so that all is built and works.

    Raises Failed with the solution's own last words when the call fails by itself.
    """
    path = folder / "plan.json"
    path.write_text(json.dumps(to_dict(one)), encoding="utf-8")
    command = [sys.executable, "-m", "harness.bare_call", str(path)]
    code, output = run(command)
    if code:
        last = tuple(output.strip().splitlines()[-5:])
        raise Failed(
            Outcome.CRASHED, "call", f"{one.op}: the call fails by itself (exit {code})", last
        )
    return command


def run(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and all output of a command; kernels are built with their line numbers."""
    flags = f"{os.environ.get('NVCC_APPEND_FLAGS', '')} -lineinfo".strip()
    environment = {**os.environ, "PYTHONPATH": str(plan.ROOT), "NVCC_APPEND_FLAGS": flags}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        text = f"{Path(command[0]).name}: not done within {LIMIT_S:.0f} s; ended"
        raise Failed(Outcome.TIMED_OUT, "call", text) from None
    return done.returncode, done.stdout.decode("utf-8", "replace")


def generated(folder: Path) -> list[str]:
    """Lines of the .cu that the call in this folder was built from; none where it has none."""
    try:
        built = json.loads((folder / BUILT).read_text(encoding="utf-8"))
        return (Path(built[0]) / "cuda.cu").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError, IndexError):
        return []


def main(arguments: list[str]) -> int:
    one = from_dict(Plan, json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    import torch

    from harness import candidate_model, inline, problem

    torch.cuda.set_device(one.device)
    reference = problem.load(one.reference)
    candidate_model.prepare("solution", one.device)
    model = candidate_model.load(one.solution, "solution")
    folders = [entry.folder for entry in inline.session().entries]
    Path(arguments[0]).with_name(BUILT).write_text(json.dumps(folders), encoding="utf-8")
    for case in one.cases:
        torch.manual_seed(SEED)
        made = candidate_model.build(model, reference.init_inputs(case), SEED, one.device)
        inputs = [
            value.to(one.device) if isinstance(value, torch.Tensor) else value
            for value in reference.inputs(case)
        ]
        for _ in range(WARM_UPS):
            _call(made, inputs, case.backward)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        _call(made, inputs, case.backward)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
    return 0


def _call(model, inputs: list, backward: bool) -> None:
    import torch

    if not backward:
        with torch.no_grad():
            model(*inputs)
        return
    floats = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    given = [
        value.detach().requires_grad_()
        if isinstance(value, torch.Tensor) and value.dtype in floats
        else value
        for value in inputs
    ]
    found = model(*given)
    outputs = found if isinstance(found, tuple | list) else (found,)
    wanted = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, [torch.ones_like(o) for o in wanted])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
