"""Sort the (token, k) entries by expert, each expert padded to whole blocks, for block-wise GEMMs.

Entries are numbered t * k_total + k. With an expert_map, id i is local expert expert_map[i].

size[e]         = entries of local expert e, rounded up to a multiple of block
entries[r]      = the entries of expert 0 in rising order, then padding, then those of expert 1, ...
block_expert[b] = the local expert of rows [b * block, (b + 1) * block)
used            = size[0] + ... + size[experts - 1], in a tensor of one

indices      (tokens, k)      int32 or int64, any strides; an id outside [0, ids) is dropped, where
                              ids is len(expert_map), or experts without one
expert_map   (ids,)           int32, optional; a value outside [0, experts) (-1: elsewhere) drops
entries      (rows,)          int32; rows is the most that ids of this shape can need; padding and
                              rows from `used` on hold the number of entries, tokens * k
block_expert (rows / block,)  int32; -1 from used / block on
used         (1,)             int32
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=5, topk=2, experts=3, block=4),
    "one token": dict(tokens=1),
    "odd": dict(tokens=333, topk=7, experts=31, block=5, index="int64", local=0.9),
    "block of one": dict(tokens=65, topk=3, experts=7, block=1),
    "expert map": dict(tokens=600, experts=64, shared=128, block=16),
    "expert map, few local": dict(tokens=700, experts=4, shared=256, block=128, index="int64"),
    "one expert": dict(tokens=900, experts=72, hot=1.0, block=32),
    "last expert only": dict(tokens=300, topk=1, experts=257, hot=1.0, hottest=256, block=16),
    "skewed": dict(tokens=1500, topk=6, experts=96, skew=3.0, block=128),
    "duplicates": dict(tokens=600, topk=6, experts=5, duplicates=True, block=16),
    "all dropped": dict(tokens=200, experts=16, local=0.0),
    "strided": dict(tokens=1029, experts=64, strided=True, local=0.9),
    "misaligned": dict(tokens=97, topk=5, experts=9, offset=1),
    "1500 experts": dict(tokens=515, topk=10, experts=1500, block=16),
    "empty": dict(tokens=0),
    "DeepSeek-V3 decode": dict(tokens=16),
    "Kimi-K2": dict(tokens=2048, experts=384),
    "Mixtral": dict(tokens=4096, experts=8, topk=2, block=128),
    "Qwen3 16384": dict(tokens=16384, experts=128),
}
GPU_ONLY = ("Qwen3 16384",)
TIMED = ("headline", "DeepSeek-V3 decode", "Kimi-K2", "Mixtral", *GPU_ONLY)
TOLERANCE = dict(rtol=0, atol=0, source="integers are exact")


class Model(nn.Module):
    """experts: number of local experts; block: rows of a block."""

    def __init__(self, experts=256, block=64):
        super().__init__()
        self.experts, self.block = experts, block

    def rows(self, entries):
        """The most rows that `entries` entries can need."""
        spare = min(self.experts, entries) * (self.block - 1)
        return (entries + spare) // self.block * self.block

    def forward(self, indices, expert_map=None):
        expert, experts, block = indices.flatten().long(), self.experts, self.block
        if expert_map is not None:
            listed = (expert >= 0) & (expert < len(expert_map))
            expert = expert_map.long()[expert.where(listed, 0)].where(listed, -1)
        known = (expert >= 0) & (expert < experts)
        expert = expert.where(known, experts)  # dropped entries are sorted last
        counts = expert.new_zeros(experts + 1).scatter_add_(0, expert, known.long())
        size = (counts + block - 1) // block * block
        offsets = size.cumsum(0) - size
        order = expert.argsort(stable=True)
        rank = torch.arange(len(order), device=order.device)
        rank = rank - (counts.cumsum(0) - counts)[expert[order]]
        rows = self.rows(len(order))
        row = (offsets[expert[order]] + rank).where(known[order], rows)
        entries = row.new_full((rows + 1,), len(order))
        entries[row] = order.where(known[order], len(order))
        first = torch.arange(rows // block, device=order.device) * block
        block_expert = torch.searchsorted((offsets + size)[:experts], first, right=True)
        block_expert = block_expert.where(first < offsets[experts], -1)
        return entries[:rows].int(), block_expert.int(), offsets[experts:].int()


def get_init_inputs(experts=256, block=64, **sizes):
    return [experts, block]


def get_inputs(
    tokens=4096,
    topk=8,
    experts=256,
    block=64,
    index="int32",
    local=1.0,
    duplicates=False,
    shared=0,
    skew=0.0,
    hot=0.0,
    hottest=0,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU.

    local       share of the entries that name a local expert; the others are -1, below -1 or
                far above the experts, as dispatchers and stale buffers leave them
    shared      above 0: ids name `shared` global experts, of which a random `experts` are local and
                have a place in expert_map
    duplicates  an expert may be named twice by one token
    skew        how much likelier low experts are
    hot         share of the entries that name expert `hottest` instead
    offset      elements by which the storage is shifted
    """
    ids = shared or experts
    if duplicates:
        chosen = (torch.rand(tokens, topk) ** (1 + skew) * ids).long().clamp(max=ids - 1)
    else:
        wide = max(ids, topk)
        score = torch.rand(tokens, wide) + skew * torch.arange(wide) / wide
        chosen = score.argsort(1)[:, :topk]
    chosen = torch.where(torch.rand(tokens, topk) < hot, hottest, chosen)
    nowhere = torch.tensor([-1, -1, -1, -2, -99999, ids, ids + 1, 2071690107])
    other = nowhere[torch.randint(len(nowhere), (tokens, topk))]
    indices = torch.where(torch.rand(tokens, topk) < local, chosen, other)
    indices = indices.to(getattr(torch, index))
    if strided:
        indices = indices.t().contiguous().t()
    if offset:
        shifted = torch.cat([indices.new_zeros(offset), indices.flatten()])
        indices = shifted[offset:].view(tokens, topk)
    if not shared:
        return [indices]
    expert_map = torch.full((ids,), -1, dtype=torch.int32)
    expert_map[torch.randperm(ids)[:experts]] = torch.arange(experts, dtype=torch.int32)
    return [indices, expert_map]


def work(model, indices, expert_map=None):
    """The ids and the map read once, each output written once."""
    rows = model.rows(indices.numel())
    read = indices.numel() * indices.element_size()
    if expert_map is not None:
        read += expert_map.nbytes
    return dict(bytes=read + 4 * (rows + rows // model.block + 1), flops=0)
