"""Write the tensors that flashinfer-bench workloads carry: python -m harness.submit_tensors.

Standard input: {"reference": path, "root": folder, "blobs": [{"path", "case", "names"}]}. A process
of its own, because it runs the reference. Seeds are fixed: the files are the same each time.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import torch

from harness import problem

SEED = 4242


def write(reference: problem.Reference, root: Path, blob: dict) -> None:
    """One safetensors file with the named inputs, parameters and buffers of a case."""
    from safetensors.torch import save_file

    case = next(c for c in reference.cases if c.name == blob["case"])
    torch.manual_seed(SEED)
    names = [p for p in inspect.signature(reference.Model.forward).parameters if p != "self"]
    values = dict(zip(names, reference.inputs(case), strict=False))
    values |= reference.Model(*reference.init_inputs(case)).state_dict()
    path = root / blob["path"]
    path.parent.mkdir(parents=True, exist_ok=True)
    chosen = {n.replace(".", "_"): values[n].clone().contiguous() for n in blob["names"]}
    save_file(chosen, str(path))


def main() -> int:
    try:
        import safetensors  # noqa: F401
    except ImportError:
        print("safetensors is not installed; pip install safetensors", file=sys.stderr)
        return 3
    asked = json.load(sys.stdin)
    reference = problem.load(asked["reference"])
    for blob in asked["blobs"]:
        write(reference, Path(asked["root"]), blob)
    return 0


if __name__ == "__main__":
    sys.exit(main())
