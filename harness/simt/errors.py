"""What the CPU execution says when it cannot, or should not, go on."""

from __future__ import annotations

from dataclasses import dataclass


class NeedsGPU(RuntimeError):
    """The source uses something that has no meaning on the CPU; never a pass, never "wrong"."""

    def __init__(self, construct: str, line: int = 0, file: str = ""):
        self.construct = construct
        self.line = line
        self.file = file
        where = f" at {file}:{line}" if file else f" at line {line}" if line else ""
        super().__init__(f"needs a GPU: {construct}{where}")


class BuildFailed(RuntimeError):
    """The host compiler refused the translated source; `log` is all it said."""

    def __init__(self, message: str, log: str):
        super().__init__(message)
        self.log = log


class Fault(RuntimeError):
    """A kernel did something a GPU would refuse, hang on, or leave undefined."""

    def __init__(
        self,
        kind: str,
        message: str,
        kernel: str = "",
        file: str = "",
        line: int = 0,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
    ):
        self.kind = kind
        self.kernel = kernel
        self.file = file
        self.line = line
        self.block = block
        self.thread = thread
        super().__init__(message)

    @property
    def message(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Finding:
    """Something seen while kernels ran; an "error" makes the kernel's result undefined."""

    kind: str
    severity: str  # error | warning | note
    message: str
    line: int = 0
    other_line: int = 0
    kernel: str = ""
    file: str = ""
    count: int = 1
