"""Runs functions of CUDA solution files on the CPU, in a process of its own; prints JSON lines.

    python tests/simt/execute.py plain|checked FILE:FUNCTION[:JSON-ARGUMENTS] ...

`install()` changes torch for good, so tests start this file rather than import it. A line holds
where, seconds of the build and of the run, the fault or error, findings, and the result as numbers.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    mode, *wanted = sys.argv[1:]
    os.environ["STEELYARD_SIMT_MODE"] = mode
    sys.path.insert(0, str(ROOT))
    from harness import simt

    simt.install()
    modules: dict[str, tuple] = {}
    for item in wanted:
        path, function, *arguments = item.split(":", 2)
        if path not in modules:
            modules[path] = _load(Path(path))
        line = {"where": item, "mode": mode, "build_s": modules[path][1]}
        line |= modules[path][2] or _run(modules[path][0], function, arguments)
        print(json.dumps(line), flush=True)


def _load(path: Path) -> tuple:
    """The module, the seconds its build took, and an error line or None."""
    start = time.perf_counter()
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    error = None
    try:
        spec.loader.exec_module(module)
    except Exception as caught:
        error = {"build_error": f"{type(caught).__name__}: {caught}"}
    return module, time.perf_counter() - start, error


def _run(module, function: str, arguments: list[str]) -> dict:
    from harness import simt
    from harness.simt import checked

    simt.findings()
    line: dict = {}
    value = None
    start = time.perf_counter()
    try:
        value = getattr(module, function)(*(json.loads(arguments[0]) if arguments else ()))
    except simt.Fault as fault:
        line["fault"] = {k: getattr(fault, k) for k in ("kind", "message", "line")}
        line["fault"] |= {"block": str(fault.block), "thread": str(fault.thread)}
    except RuntimeError as error:
        line["error"] = str(error)
    line["run_s"] = time.perf_counter() - start
    findings = simt.findings()
    if os.environ["STEELYARD_SIMT_MODE"] == "checked":
        findings += checked.unwritten_outputs(value)
    line["findings"] = [dataclasses.asdict(finding) for finding in findings]
    return line | {"value": _numbers(value)}


def _numbers(value):
    import torch

    if isinstance(value, torch.Tensor):
        return value.double().tolist()
    if isinstance(value, list | tuple):
        return [_numbers(item) for item in value]
    return value


if __name__ == "__main__":
    main()
