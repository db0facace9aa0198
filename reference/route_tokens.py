"""Top-k expert ids to a stable counting sort of the (token, k) entries: counts, offsets, both maps.

Entries are numbered t * k_total + k, in the order of the tokens.

counts[e]    = entries that name expert e
size[e]      = counts[e] rounded up to a multiple of alignment; for an empty expert 0, or one
               alignment where pad_empty is set
offsets[e]   = size[0] + ... + size[e - 1]; offsets[experts] is the number of rows in use
row_of[t, k] = offsets[e] + earlier entries of the same expert e, or -1 where the entry is dropped
entry_of[r]  = the entry whose row is r, or -1: padding, and all rows from offsets[experts] on

indices  (tokens, k)      int32 or int64, any strides; every value outside [0, experts) is dropped
counts   (experts,)       int32
offsets  (experts + 1,)   int32; what pack_tokens takes, and from 1 on what a grouped GEMM takes
row_of   (tokens, k)      int32
entry_of (rows,)          int32; rows is the most that any ids of this shape can need, so that the
                          host need not know the counts

An expert named twice by a token gets two rows.
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=5, topk=2, experts=3),
    "one token": dict(tokens=1, alignment=128),
    "one of one": dict(tokens=65, topk=1, experts=1, alignment=8),
    "odd": dict(tokens=333, topk=7, experts=31, alignment=5, index="int32", local=0.9),
    "k is e": dict(tokens=130, topk=12, experts=12, index="int32"),
    "aligned 16": dict(tokens=700, experts=160, alignment=16, local=0.9),
    "empty experts get a block": dict(tokens=9, experts=96, alignment=16, pad_empty=True),
    "one expert": dict(tokens=900, topk=8, experts=72, hot=1.0, alignment=32),
    "skewed": dict(tokens=1500, topk=6, experts=64, skew=3.0, alignment=128),
    "last expert only": dict(tokens=300, topk=1, experts=257, hot=1.0, hottest=256),
    "duplicates": dict(tokens=600, topk=6, experts=5, duplicates=True),
    "local view": dict(tokens=1024, experts=32, local=0.125, alignment=128),
    "all dropped": dict(tokens=200, experts=16, local=0.0, alignment=16, pad_empty=True),
    "strided": dict(tokens=1029, topk=8, experts=64, strided=True, local=0.9),
    "misaligned": dict(tokens=97, topk=5, experts=9, offset=1, index="int32"),
    "1500 experts": dict(tokens=515, topk=10, experts=1500, alignment=8),
    "4096 experts": dict(tokens=2200, topk=4, experts=4096, index="int32"),
    "many strips": dict(tokens=70001, topk=3, experts=4096, duplicates=True, local=0.9),
    "empty": dict(tokens=0),
    "empty padded": dict(tokens=0, experts=7, alignment=16, pad_empty=True),
    "DeepSeek-V3 aligned": dict(alignment=128),
    "DeepSeek-V3 decode": dict(tokens=128, alignment=128),
    "DeepSeek-V3 EP8": dict(experts=32, local=0.125, alignment=128),
    "Kimi-K2": dict(experts=384, index="int32"),
    "Qwen3 16384": dict(tokens=16384, experts=128),
    "gpt-oss": dict(experts=128, topk=4),
    "Mixtral": dict(experts=8, topk=2),
    "512 of 10": dict(tokens=8192, topk=10, experts=512, index="int32", skew=1.0),
    "131072 tokens": dict(tokens=131072, duplicates=True, skew=1.0),
    "4M entries": dict(tokens=524288, duplicates=True, local=0.1, alignment=128),
}
GPU_ONLY = ("Qwen3 16384", "512 of 10", "131072 tokens", "4M entries")
TIMED = (
    "headline",
    "DeepSeek-V3 aligned",
    "DeepSeek-V3 decode",
    "DeepSeek-V3 EP8",
    "Kimi-K2",
    "gpt-oss",
    "Mixtral",
    *GPU_ONLY,
)
TOLERANCE = dict(rtol=0, atol=0, source="integers are exact")


class Model(nn.Module):
    """experts: number of experts; alignment: rows of an expert are a multiple of it; pad_empty:
    an expert without entries gets `alignment` rows of padding instead of none."""

    def __init__(self, experts=256, alignment=1, pad_empty=False):
        super().__init__()
        self.experts, self.alignment, self.pad_empty = experts, alignment, pad_empty

    def rows(self, entries):
        """The most rows that `entries` entries can need."""
        filled = min(self.experts, entries)
        spare = self.experts * self.alignment if self.pad_empty else filled * (self.alignment - 1)
        return (entries + spare) // self.alignment * self.alignment

    def forward(self, indices):
        expert = indices.flatten().long()
        known = (expert >= 0) & (expert < self.experts)
        expert = expert.where(known, self.experts)  # dropped entries are sorted last
        counts = expert.new_zeros(self.experts + 1).scatter_add_(0, expert, known.long())
        size = (counts + self.alignment - 1) // self.alignment * self.alignment
        if self.pad_empty:
            size = size.clamp(min=self.alignment)
        offsets = size.cumsum(0) - size
        order = expert.argsort(stable=True)
        rank = torch.arange(len(order), device=order.device)
        rank = rank - (counts.cumsum(0) - counts)[expert[order]]
        row = offsets[expert[order]] + rank
        row = row.where(known[order], -1)
        row_of = torch.empty_like(row)
        row_of[order] = row
        rows = self.rows(len(order))
        entry_of = row.new_full((rows + 1,), -1)
        entry_of[row.where(row >= 0, rows)] = order.where(row >= 0, -1)
        counts, row_of = counts[: self.experts], row_of.view(indices.shape)
        return tuple(x.int() for x in (counts, offsets, row_of, entry_of[:rows]))


def get_init_inputs(experts=256, alignment=1, pad_empty=False, **sizes):
    return [experts, alignment, pad_empty]


def get_inputs(
    tokens=4096,
    topk=8,
    experts=256,
    alignment=1,
    pad_empty=False,
    index="int64",
    local=1.0,
    duplicates=False,
    skew=0.0,
    hot=0.0,
    hottest=0,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU.

    local       share of the entries that name a local expert; the others are -1, below -1 or
                far above the experts, as dispatchers and stale buffers leave them
    duplicates  an expert may be named twice by one token
    skew        how much likelier low experts are
    hot         share of the entries that name expert `hottest` instead
    offset      elements by which the storage is shifted
    """
    if duplicates:
        chosen = (torch.rand(tokens, topk) ** (1 + skew) * experts).long().clamp(max=experts - 1)
    else:
        wide = max(experts, topk)
        score = torch.rand(tokens, wide) + skew * torch.arange(wide) / wide
        chosen = score.argsort(1)[:, :topk]
    chosen = torch.where(torch.rand(tokens, topk) < hot, hottest, chosen)
    nowhere = torch.tensor([-1, -1, -1, -2, -99999, experts, experts + 1, 2071690107])
    other = nowhere[torch.randint(len(nowhere), (tokens, topk))]
    indices = torch.where(torch.rand(tokens, topk) < local, chosen, other)
    indices = indices.to(getattr(torch, index))
    if strided:
        indices = indices.t().contiguous().t()
    if offset:
        shifted = torch.cat([indices.new_zeros(offset), indices.flatten()])
        indices = shifted[offset:].view(tokens, topk)
    return [indices]


def work(model, indices):
    """The ids read once, each output written once."""
    entries = indices.numel()
    written = 2 * model.experts + 1 + entries + model.rows(entries)
    return dict(bytes=entries * indices.element_size() + 4 * written, flops=0)
