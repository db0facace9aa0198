"""Equal parameters for Model and ModelNew, by a stated policy.

1. Both are built under the same seed: equal already.
2. Equal values under other names: equal already.
3. By name: every parameter of the reference has one of that name and shape in the solution.
4. By shape: each shape occurs once in both.
5. Otherwise the weights differ, and a wrong result is not the kernel's fault.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch

from harness import wire
from harness.candidate_model import digest


@dataclass(frozen=True)
class Match:
    """How the two states relate. `copies`: solution's name -> reference's name, to be assigned."""

    how: str  # "none" | "same seed" | "by name" | "by shape" | "differ"
    copies: tuple[tuple[str, str], ...] = ()
    why: str = ""


def match(wanted: dict[str, torch.Tensor], theirs: list[dict]) -> Match:
    """`theirs`: name, shape, dtype and digest of each of the solution's parameters and buffers."""
    mine = {
        name: (tuple(t.shape), wire.DTYPE_NAMES[t.dtype], digest(t))
        for name, t in wanted.items()
        if isinstance(t, torch.Tensor)
    }
    if not mine:
        return Match("none")
    other = {str(d["name"]): (tuple(d["shape"]), str(d["dtype"]), str(d["digest"])) for d in theirs}
    if not Counter(mine.values()) - Counter(other.values()):
        return Match("same seed")
    if all(name in other and other[name][0] == spec[0] for name, spec in mine.items()):
        return Match("by name", tuple((name, name) for name in mine))
    return _by_shape(mine, other)


def _by_shape(mine: dict, other: dict) -> Match:
    shapes = Counter(spec[0] for spec in mine.values())
    their_shapes = Counter(spec[0] for spec in other.values())
    missing = shapes - their_shapes
    if missing:
        name = next(n for n, spec in mine.items() if spec[0] in missing)
        return Match(
            "differ",
            why=f"the reference's {name} {list(mine[name][0])} has no counterpart in the solution",
        )
    if all(shapes[s] == 1 == their_shapes[s] for s in shapes):
        by_shape = {spec[0]: name for name, spec in other.items()}
        return Match("by shape", tuple((by_shape[spec[0]], name) for name, spec in mine.items()))
    twice = next(s for s in shapes if shapes[s] > 1 or their_shapes[s] > 1)
    return Match(
        "differ",
        why=f"several parameters have shape {list(twice)} and their names do not tell which is "
        "which; name them as the reference does",
    )
