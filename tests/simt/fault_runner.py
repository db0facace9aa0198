"""Runs broken kernels and their honest twins in the checked mode; prints one JSON line for each.

python fault_runner.py NAME...
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
os.environ["STEELYARD_SIMT_MODE"] = "checked"
os.environ["STEELYARD_SIMT_SPIN_S"] = "0.3"
sys.path.insert(0, str(HERE.parents[1]))

from harness import simt  # noqa: E402


def observe(module, which: str) -> list[dict]:
    """Everything that was said about one call."""
    seen = []
    try:
        module.run(which)
    except simt.Fault as fault:
        place = dict(line=fault.line, block=fault.block, thread=fault.thread)
        seen.append(dict(kind=fault.kind, severity="error", message=str(fault), **place))
    for f in simt.findings():
        place = dict(line=f.line, other_line=f.other_line)
        seen.append(dict(kind=f.kind, severity=f.severity, message=str(f), **place))
    return seen


def main(names: list[str]) -> None:
    simt.install()
    for name in names:
        spec = importlib.util.spec_from_file_location(name, HERE / "faults" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        simt.findings()
        result = {which: observe(module, which) for which in ("broken", "honest")}
        print(json.dumps(dict(name=name, kind=module.KIND, **result)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
