"""Runs a file that holds both Model and ModelNew, as KernelBench files do, and compares them.

Not a test: `execute.py` runs it where "cuda" means the CPU.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

TOLERANCE = 1e-3


def check(path: str) -> list[str]:
    """What is wrong with ModelNew's outputs for get_inputs(); empty when all is right."""
    spec = importlib.util.spec_from_file_location(f"published_{Path(path).stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    want = _outputs(module, "Model")
    torch.manual_seed(0)
    got = _outputs(module, "ModelNew")
    if len(got) != len(want):
        return [f"{len(got)} outputs, want {len(want)}"]
    wrong = []
    for g, w in zip(got, want, strict=True):
        try:
            torch.testing.assert_close(g, w, rtol=TOLERANCE, atol=TOLERANCE)
        except AssertionError as error:
            wrong.append(str(error))
    return wrong


def _outputs(module, name: str) -> list[torch.Tensor]:
    model = getattr(module, name)(*module.get_init_inputs())
    out = model(*module.get_inputs())
    return list(out) if isinstance(out, tuple | list) else [out]
