"""Pad the tokens of each expert to a multiple, by sending it the first tokens it does not have.

map   (tokens, experts)  bool, any strides: which token goes to which expert
out   (tokens, experts)  bool: map, and in each column the first False entries made True until the
                         number of True ones is a multiple; an empty column stays empty
short (experts,)         int32, entries that a column still lacks because it has no False one left

Where `short` is not zero the column is all True. Megatron-Core's fused form does not tell.
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=40, experts=4, multiple=8, density=0.3),
    "odd": dict(tokens=331, experts=67, multiple=16, density=0.2),
    "multiple of 1": dict(tokens=50, experts=20, multiple=1),
    "multiple of 3": dict(tokens=130, experts=33, multiple=3, density=0.5),
    "cannot pad": dict(tokens=10, experts=48, multiple=16, density=0.6),
    "nearly full": dict(tokens=300, experts=32, multiple=128, density=0.97),
    "full": dict(tokens=129, experts=16, multiple=32, density=1.0),
    "nothing": dict(tokens=100, experts=64, density=0.0),
    "one token": dict(tokens=1, experts=256),
    "one expert": dict(tokens=1000, experts=1, density=0.1),
    "wide": dict(tokens=70, experts=1500),
    "many rows": dict(tokens=40000, experts=4, density=0.4),
    "strided": dict(tokens=129, experts=64, strided=True, density=0.1),
    "row pitch": dict(tokens=129, experts=64, pitch=16, density=0.1),
    "misaligned": dict(tokens=97, experts=32, offset=1, density=0.1),
    "empty": dict(tokens=0),
    "no experts": dict(tokens=7, experts=0),
    "4096 tokens": dict(tokens=4096),
    "1M tokens": dict(tokens=1048576, experts=64, multiple=128),
    "local 128": dict(tokens=65536, experts=32, multiple=128),
}
GPU_ONLY = ("headline", "4096 tokens", "1M tokens", "local 128")
TIMED = GPU_ONLY
TOLERANCE = dict(rtol=0, atol=0, source="booleans and counts")


class Model(nn.Module):
    """multiple: what each expert's number of tokens is padded to."""

    def __init__(self, multiple=16):
        super().__init__()
        self.multiple = multiple

    def forward(self, chosen):
        counts = chosen.sum(0)
        wanted = torch.where(counts > 0, -counts % self.multiple, 0)
        free = ~chosen
        added = free & (free.cumsum(0) <= wanted)
        return (chosen | added).contiguous(), (wanted - added.sum(0)).int()


def get_init_inputs(multiple=16, **sizes):
    return [multiple]


def get_inputs(
    tokens=65536,
    experts=256,
    multiple=16,
    density=1 / 32,
    pitch=0,
    offset=0,
    strided=False,
):
    """A map, on the CPU: each entry set by chance, with column 0 left empty and column 1 full.

    pitch    elements between the end of a row and the next row
    offset   elements by which the storage is shifted
    strided  the map is a transposed view
    """
    chosen = torch.rand(tokens, experts + pitch) < density
    if experts >= 2:
        chosen[:, 0], chosen[:, 1] = False, density > 0
    if offset:
        chosen = torch.cat([chosen.new_zeros(offset), chosen.flatten()])[offset:]
        chosen = chosen.view(tokens, experts + pitch)
    chosen = chosen[:, :experts]
    return [chosen.t().contiguous().t() if strided else chosen]


def work(model, chosen):
    """The map read once, the padded one written once."""
    return dict(bytes=2 * chosen.numel() + 4 * chosen.shape[1], flops=0)
