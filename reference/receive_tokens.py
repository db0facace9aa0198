"""What a dispatcher hands over (token rows, local expert ids with -1, probabilities) to
expert-major rows, ready for a grouped matrix product.

hidden   (tokens, hidden)  fp32, bf16 or fp16, any strides
ids      (tokens, k)       int32 or int64, any strides; outside [0, experts) the entry is dropped
probs    (tokens, k)       fp32, any strides; what stands beside a dropped entry counts for nothing
num_rows int               rows of out, which dispatchers report to the host; may be more or fewer
                           than needed

out      (num_rows, hidden)  as hidden: for each kept entry its token's row, expert after expert,
                             within an expert by token, then by k; each expert begins at a multiple
                             of `alignment`; all other rows are zero
out_probs (num_rows,)        fp32, the entries' probabilities, zero in the other rows
offsets  (experts + 1,)      int32, first row of each expert and the end of the last, as if num_rows
                             were enough; more than num_rows tells that rows were lost
counts   (experts,)          int32, kept entries of each expert, an empty one takes no rows
row_of   (tokens, k)         int32, row of each entry, -1 where dropped or beyond num_rows

An expert named twice by a token gets two rows. In one call this is what indices_to_multihot, a row
map and a permutation do in three. The cases are local views of DeepSeek-V3 and Qwen3.
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=5, hidden=8, topk=2, experts=3),
    "odd": dict(tokens=131, hidden=67, topk=7, experts=5, offset=1, index="int32"),
    "aligned": dict(tokens=90, hidden=40, topk=4, experts=9, alignment=16),
    "aligned 128": dict(tokens=50, hidden=24, topk=4, experts=6, alignment=128, dtype="float32"),
    "spare rows": dict(tokens=61, hidden=32, topk=3, experts=4, alignment=8, spare=50),
    "too few rows": dict(tokens=60, hidden=32, topk=3, experts=4, alignment=8, spare=-70),
    "no rows": dict(tokens=60, hidden=32, topk=3, experts=4, spare=-1000000),
    "one expert takes all": dict(tokens=300, hidden=16, topk=1, experts=16, only=15),
    "duplicates": dict(tokens=200, hidden=16, topk=6, experts=3, duplicates=True, local=1.0),
    "none local": dict(tokens=100, hidden=16, experts=4, local=0.0),
    "many entries": dict(tokens=2000, hidden=8, topk=8, experts=20, dtype="float16"),
    "many experts": dict(tokens=300, hidden=12, topk=8, experts=700, local=0.9),
    "strided": dict(tokens=77, hidden=40, topk=5, experts=8, strided=True),
    "misaligned": dict(tokens=77, hidden=64, topk=5, experts=8, offset=1, dtype="float16"),
    "empty": dict(tokens=0, hidden=64, alignment=16, spare=3),
    "no hidden": dict(tokens=9, hidden=0),
    "all local": dict(local=1.0, experts=256),
    "EP 64": dict(tokens=16384, experts=4, local=0.1),
    "aligned rows": dict(tokens=8192, alignment=128),
    "Qwen3": dict(tokens=16384, hidden=4096, experts=16, local=0.25),
    "128 tokens": dict(tokens=128),
}
GPU_ONLY = ("headline", "all local", "EP 64", "aligned rows", "Qwen3", "128 tokens")
TIMED = GPU_ONLY
TOLERANCE = dict(rtol=0, atol=0, source="a copy is exact")


class Model(nn.Module):
    """experts: number of local experts; alignment: rows whose multiples the experts begin at."""

    def __init__(self, experts=32, alignment=1):
        super().__init__()
        self.experts, self.alignment = experts, alignment

    def forward(self, hidden, ids, probs, num_rows):
        tokens, topk = ids.shape
        expert = ids.long().where((ids >= 0) & (ids < self.experts), self.experts).flatten()
        counts = torch.bincount(expert, minlength=self.experts + 1)[: self.experts]
        taken = (counts + self.alignment - 1) // self.alignment * self.alignment
        offsets = torch.cat([taken.new_zeros(1), taken.cumsum(0)])
        # In the sorted order the entries of an expert follow each other, the dropped ones last.
        order = expert.argsort(stable=True)
        before = counts.cumsum(0) - counts
        first = torch.cat([offsets[:-1] - before, offsets.new_full((1,), num_rows)])
        row = torch.empty_like(expert)
        row[order] = torch.arange(len(order), device=row.device) + first[expert[order]]
        row = row.clamp(max=num_rows)  # lost entries go to a spare row, cut off at the end
        out = hidden.new_zeros(num_rows + 1, hidden.shape[1])
        out = out.index_copy(0, row, hidden.repeat_interleave(topk, 0))[:num_rows]
        out_probs = probs.new_zeros(num_rows + 1)
        out_probs = out_probs.index_copy(0, row, probs.flatten())[:num_rows]
        row_of = row.where(row < num_rows, -1).view(tokens, topk)
        return out, out_probs, offsets.int(), counts.int(), row_of.int()


def get_init_inputs(experts=32, alignment=1, **sizes):
    return [experts, alignment]


def get_inputs(
    tokens=4096,
    hidden=7168,
    topk=8,
    experts=32,
    dtype="bfloat16",
    index="int64",
    local=0.5,
    alignment=1,
    spare=0,
    only=None,
    duplicates=False,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU: [hidden, ids, probs, num_rows].

    local       share of the entries that name a local expert; the others are -1, below -1 or stale
                (NaN beside every seventh of them)
    spare       rows of out more (or fewer) than needed
    only        the expert that all entries name
    duplicates  an expert may be named twice by one token
    offset      elements by which hidden's storage is shifted
    strided     hidden and ids are transposed views, probs every second element
    """
    if duplicates:
        chosen = torch.randint(experts, (tokens, topk))
    else:
        chosen = torch.rand(tokens, max(experts, topk)).argsort(1)[:, :topk]
    nowhere = torch.tensor([-1, -1, -1, -1, -2, -99999, experts, 2071690107])
    here = torch.rand(tokens, topk) < local
    ids = torch.where(here, chosen, nowhere[torch.randint(8, (tokens, topk))])
    if only is not None:
        ids = torch.full_like(ids, only)
    inside = (ids >= 0) & (ids < experts)
    counts = torch.bincount(ids[inside], minlength=experts)
    needed = int(((counts + alignment - 1) // alignment * alignment).sum())
    probs = torch.rand(tokens, topk)
    probs[~inside & (torch.rand(tokens, topk) < 1 / 7)] = float("nan")
    rows = torch.randn(tokens * hidden + offset).to(getattr(torch, dtype))[offset:]
    rows, ids = rows.view(tokens, hidden), ids.to(getattr(torch, index))
    if strided:
        rows, ids = rows.t().contiguous().t(), ids.t().contiguous().t()
        probs = torch.stack([probs, probs], 2).flatten(1)[:, ::2]
    return [rows, ids, probs, max(needed + spare, 0)]


def work(model, hidden, ids, probs, num_rows):
    """Each row with a kept entry read once, each result written once, ids and probs read once."""
    row_bytes = hidden.shape[1] * hidden.element_size()
    kept = int(((ids >= 0) & (ids < model.experts)).any(1).sum()) if num_rows else 0
    entries = ids.numel() * (ids.element_size() + 4 + 4)
    lists = 4 * (num_rows + 2 * model.experts + 1)
    return dict(bytes=(min(kept, num_rows) + num_rows) * row_bytes + entries + lists, flops=0)
