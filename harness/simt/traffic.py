"""How well a kernel's loads and stores use memory, by source line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from .outcomes import Finding

_POOR = 2.0  # sectors over the least possible, from here on worth a note


@dataclass(frozen=True)
class Traffic:
    """One line's loads or stores. `bytes` of all lanes; the rest from the first blocks only.

    A sector is 32 bytes of global memory; `least` is the number that the distinct bytes need;
    `conflicts` are extra passes of shared memory because of bank conflicts.
    """

    kernel: str
    file: str
    line: int
    write: bool
    shared: bool
    bytes: int
    warps: int
    sectors: int
    least: int
    conflicts: int
    lanes: int

    COUNTS: ClassVar[tuple[str, ...]] = (
        "bytes",
        "warps",
        "sectors",
        "least",
        "conflicts",
        "lanes",
    )

    def __add__(self, other: Traffic) -> Traffic:
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.COUNTS}
        return Traffic(self.kernel, self.file, self.line, self.write, self.shared, **sums)

    @property
    def access(self) -> str:
        return "store" if self.write else "load"

    @property
    def summary(self) -> str:
        """For example: 32.0 sectors per warp access, 4.0 would do."""
        warps = max(self.warps, 1)
        if self.shared:
            return (
                f"shared {self.access}: {self.conflicts / warps:.1f} extra passes per warp access"
            )
        return (
            f"global {self.access}: {self.sectors / warps:.1f} sectors per warp access, "
            f"{self.least / warps:.1f} would do"
        )

    def findings(self) -> Iterator[Finding]:
        place = dict(line=self.line, kernel=self.kernel, file=self.file)
        if self.shared and self.conflicts >= self.warps > 0:
            yield Finding("bank conflict", "note", self.summary, **place)
        if not self.shared and self.least and self.sectors > _POOR * self.least:
            yield Finding("uncoalesced access", "note", self.summary, **place)
