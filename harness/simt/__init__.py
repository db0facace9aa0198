"""Execute unchanged `load_inline` CUDA solutions on the CPU: correctness of logic, never speed.

`install()` makes "cuda" mean CPU tensors in this process and puts `load_inline` in the place of
torch's. `findings()` and `kernels_run()` tell what happened since they were last asked.
README.md beside this file has the layout; docs/simt.md says what a pass means.
"""

from __future__ import annotations

from harness.simt.errors import BuildFailed, Fault, Finding, NeedsGPU

__all__ = [
    "BuildFailed",
    "Fault",
    "Finding",
    "NeedsGPU",
    "configure",
    "findings",
    "install",
    "kernels_run",
    "load_inline",
]


def load_inline(*args, **kwargs):
    """Stand-in for torch.utils.cpp_extension.load_inline; same arguments, same kind of module.

    Raises NeedsGPU (the source cannot be executed here) or BuildFailed (it does not compile).
    A call of the module raises Fault where a kernel goes wrong.
    """
    from harness.simt import extension

    return extension.load_inline(*args, **kwargs)


def install() -> None:
    """Make "cuda" mean CPU tensors in this process; may be called more than once."""
    from harness.simt import devices

    devices.install()


def configure(**settings) -> None:
    """Set mode ("plain" | "checked"), workers, seed (order of blocks and threads), stall_seconds."""
    from harness.simt import runtime

    runtime.configure(**settings)


def findings() -> list[Finding]:
    """What was found in kernels since the last call."""
    from harness.simt import runtime

    return runtime.findings()


def kernels_run() -> int:
    """Kernel launches that ran to their end since the last call."""
    from harness.simt import runtime

    return runtime.kernels_run()
