"""What running CUDA source on the CPU can say besides a result."""

from __future__ import annotations

from dataclasses import dataclass


class NeedsGPU(RuntimeError):
    """The source uses something that only a GPU has; never a verdict on the solution."""

    def __init__(self, construct: str, line: int = 0, file: str = ""):
        place = f" at line {line}" if line else ""
        super().__init__(f"needs a GPU: {construct}{place}")
        self.construct = construct
        self.line = line
        self.file = file


class Fault(RuntimeError):
    """A kernel did something a GPU would punish or hang on; raised from the extension's call.

    `line` is in `file` (the solution where its source text was found there), `block` and `thread`
    are texts such as "(0, 0, 0)".
    """

    def __init__(self, kind, message, *, file="", line=0, kernel="", block="", thread=""):
        place = f" at {file}:{line}" if line else ""
        super().__init__(
            f"{kind}: {message}{place}, in kernel {kernel}, block {block}, thread {thread}"
        )
        self.kind = kind
        self.message = message
        self.file = file
        self.line = line
        self.kernel = kernel
        self.block = block
        self.thread = thread


class BuildFailed(RuntimeError):
    """The host compiler refused the translated source; the message holds its errors."""


@dataclass(frozen=True)
class Finding:
    """One observation about a kernel. `severity`: error, warning or note."""

    kind: str
    severity: str
    message: str
    line: int = 0
    other_line: int = 0
    kernel: str = ""
    file: str = ""
    other_file: str = ""
    count: int = 1

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        other = f" (the other access: line {self.other_line})" if self.other_line else ""
        times = f" [{self.count} times]" if self.count > 1 else ""
        return f"{place}{self.kind}: {self.message}{other}{times}"
