"""Inputs and oracles of the exercise programs; `check(name)` runs one and compares.

Not a test: `execute.py` runs it where "cuda" means the CPU.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import torch

FOLDER = Path(__file__).parent / "programs"


@functools.cache
def program(name: str):
    """The program's module; its build happens here."""
    spec = importlib.util.spec_from_file_location(f"program_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _integers(*shape: int, low: int = -9, high: int = 9, dtype=torch.int32) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


def _tile_sums(x: torch.Tensor, threads: int) -> list[torch.Tensor]:
    count = (x > 0).sum().int().reshape(1)
    return [x.reshape(-1, 8).sum(1), x.reshape(-1, threads).sum(1), count]


# name: ([arguments of run(), ...], oracle(*arguments), rtol, atol)
CASES = {
    "tiled_matmul": (
        [(torch.randn(70, 50), torch.randn(50, 90)), (torch.randn(1, 16), torch.randn(16, 1))],
        lambda a, b: a @ b,
        *(1e-4, 1e-4),
    ),
    "block_reduction": (
        [(torch.randn(30_000),), (torch.randn(5),), (torch.randn(0),)],
        lambda x: x.double().sum().float().reshape(1),
        *(1e-4, 1e-2),
    ),
    "warp_softmax": (
        [(torch.randn(37, 100),), (torch.randn(4, 33).half(),), (torch.randn(5, 3).bfloat16(),)],
        lambda x: x.float().softmax(1).to(x.dtype),
        *(1e-2, 1e-3),
    ),
    "scan": (
        [(_integers(9, 300),), (_integers(1, 1),), (_integers(0, 4),)],
        lambda x: x.cumsum(1).int(),
        *(0, 0),
    ),
    "histogram": (
        [(_integers(20_000, low=0, high=256, dtype=torch.uint8),)],
        lambda x: torch.bincount(x.int(), minlength=256).int(),
        *(0, 0),
    ),
    "transpose": (
        [(torch.randn(100, 70),), (torch.randn(40, 33).double().t(),)],
        lambda x: x.t().contiguous(),
        *(0, 0),
    ),
    "bf16_copy": (
        [(torch.randn(10_003).bfloat16(), 0.5), (torch.randn(7).bfloat16(), -3.0)],
        lambda x, scale: x * scale,
        *(0, 0),
    ),
    "ballot_compaction": (
        [(_integers(5_000),), (_integers(3),)],
        lambda x: x[x > 0].sort().values,
        *(0, 0),
    ),
    "persistent_loop": (
        [(_integers(200, 100, low=-999, high=999),), (_integers(1, 70),)],
        lambda x: x.amax(1),
        *(0, 0),
    ),
    "spin_on_block": (
        [(50, False)],
        lambda blocks, _: torch.arange(blocks).cumsum(0).int(),
        *(0, 0),
    ),
    "group_tiles": (
        [(torch.randn(1024), 128), (torch.randn(512), 64)],
        _tile_sums,
        *(1e-4, 1e-4),
    ),
}


def check(name: str) -> list[str]:
    """What is wrong with the program's answers; empty when all is right."""
    inputs, oracle, rtol, atol = CASES[name]
    wrong = []
    for arguments in inputs:
        got, want = program(name).run(*arguments), oracle(*arguments)
        pairs = zip(got, want, strict=True) if isinstance(got, list) else [(got, want)]
        for g, w in pairs:
            try:
                torch.testing.assert_close(g, w, rtol=rtol, atol=atol)
            except AssertionError as error:
                wrong.append(str(error))
    return wrong


def spin_for_ever() -> None:
    """Every block waits for the next one, with more blocks than an sm_90 device holds at once."""
    program("spin_on_block").run(9_000, True)
