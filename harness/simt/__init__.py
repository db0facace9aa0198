"""Executes unchanged CUDA solutions on the CPU: correctness of logic, never speed."""

from .device import install
from .load import load, load_inline
from .outcomes import BuildFailed, Fault, Finding, NeedsGPU
from .runtime_library import findings, kernels_run

__all__ = [
    "BuildFailed",
    "Fault",
    "Finding",
    "NeedsGPU",
    "findings",
    "install",
    "kernels_run",
    "load",
    "load_inline",
]
