"""What a solution changed in its own process: flags, environment, patched functions. Notes only:
nothing of the judge's lives here, so none of it can change a verdict."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time

import torch

WATCHED = (
    (time, "perf_counter"),
    (time, "perf_counter_ns"),
    (time, "time"),
    (time, "monotonic"),
    (statistics, "median"),
    (torch, "allclose"),
    (torch, "equal"),
    (torch, "empty"),
    (torch, "empty_like"),
    (torch, "manual_seed"),
    (torch.cuda, "synchronize"),
    (torch.cuda.Event, "elapsed_time"),
    (torch.cuda.Event, "record"),
    (torch.cuda.Event, "synchronize"),
    (torch.testing, "assert_close"),
    (torch.nn.Module, "__call__"),
)


def snapshot() -> dict:
    """Every watched thing by the name a reader would look for."""
    seen = {
        "torch.backends.cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "torch.backends.cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "gradient mode": torch.is_grad_enabled(),
        "working folder": os.getcwd(),
        "recursion limit": sys.getrecursionlimit(),
        "standard output": id(sys.stdout),
    }
    seen.update({f"${name}": value for name, value in os.environ.items()})
    for holder, name in WATCHED:
        owner = getattr(holder, "__qualname__", holder.__name__)
        seen[f"{owner}.{name}"] = id(getattr(holder, name, None))
    return seen


def changes(before: dict, after: dict) -> list[str]:
    """Sentences of at most 100 characters, at most 10 of them."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if isinstance(old, int) and not isinstance(old, bool) and old > 1 << 20:
            found.append(f"replaced {name}")
        elif name.startswith("$"):
            found.append(f"set {name}" if new is not None else f"removed {name}")
        else:
            found.append(f"set {name} from {old} to {new}"[:100])
    return found[:10]


def threads() -> int:
    """Threads of this process that Python started."""
    return threading.active_count()
