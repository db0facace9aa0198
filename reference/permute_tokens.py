"""Copy tokens to the rows of their experts, with their probabilities; padding rows are zero.

out[r, :]    = x[entry_of[r] // k, :]
out_probs[r] = probs[entry_of[r] // k, entry_of[r] % k]      both 0 where entry_of[r] is -1

x         (tokens, hidden)  fp32, bf16 or fp16, any strides
probs     (tokens, k)       fp32, bf16 or fp16, any strides
row_of    (tokens, k)       int32, any strides: the row of each entry, -1 where it is dropped
entry_of  (rows,)           int32: the inverse of row_of; -1 for padding. Both as route_tokens gives
out       (rows, hidden)    as x;     grad_x[t] = sum_k grad_out[row_of[t, k]], in fp32
out_probs (rows,)           as probs; grad_probs[t, k] = grad_out_probs[row_of[t, k]]

A dropped entry writes nothing; its gradient is zero.
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=5, hidden=8, topk=2, experts=3),
    "one token": dict(tokens=1, hidden=256, topk=8, experts=16, alignment=16),
    "odd": dict(tokens=131, hidden=67, topk=7, experts=31, dtype="float32", alignment=5),
    "local view": dict(tokens=150, hidden=72, experts=12, local=0.3, alignment=16),
    "fp16": dict(tokens=90, hidden=40, topk=3, experts=9, dtype="float16", alignment=8),
    "bf16 probabilities": dict(tokens=64, hidden=48, topk=4, experts=8, probs="bfloat16"),
    "one of one": dict(tokens=65, hidden=24, topk=1, experts=1, dtype="float32"),
    "many choices": dict(tokens=40, hidden=33, topk=40, experts=64, dtype="float32", local=0.8),
    "duplicates": dict(tokens=100, hidden=16, topk=6, experts=5, duplicates=True, alignment=4),
    "all dropped": dict(tokens=30, hidden=16, topk=2, experts=4, local=0.0, padding=7),
    "wide": dict(tokens=9, hidden=9001, topk=2, experts=4, dtype="float32"),
    "wide bf16": dict(tokens=7, hidden=16400, topk=3, experts=4),
    "strided": dict(tokens=77, hidden=40, topk=4, experts=5, strided=True),
    "misaligned": dict(tokens=57, hidden=64, topk=4, experts=4, offset=1),
    "empty": dict(tokens=0, hidden=16, topk=4, experts=4),
    "gpt-oss hidden": dict(tokens=48, hidden=2880, topk=4, experts=32, alignment=8),
    "DeepSeek-V3 aligned": dict(alignment=128),
    "DeepSeek-V3 decode": dict(tokens=128),
    "DeepSeek-V3 EP8": dict(tokens=16384, experts=32, local=0.125, alignment=128),
    "Kimi-K2": dict(experts=384),
    "Qwen3-235B": dict(hidden=4096, experts=128),
    "gpt-oss": dict(hidden=2880, topk=4, experts=128),
    "Mixtral": dict(hidden=4096, topk=2, experts=8),
    "fp32": dict(tokens=2048, dtype="float32"),
}
GPU_ONLY = (
    "headline",
    "DeepSeek-V3 aligned",
    "DeepSeek-V3 decode",
    "DeepSeek-V3 EP8",
    "Kimi-K2",
    "Qwen3-235B",
    "gpt-oss",
    "Mixtral",
    "fp32",
)
TIMED = GPU_ONLY
GRADIENTS = True
TOLERANCE = dict(
    rtol=1e-6,
    atol=5e-6,
    source="copies are exact; a gradient is a sum of K fp32 numbers in any order, rounded once",
)


class Model(nn.Module):
    def forward(self, x, probs, row_of, entry_of):
        entry = entry_of.long().clamp(min=0)
        padding = entry_of < 0
        # In fp32, so that the gradient's sum over a token's rows is.
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        out = wide[entry // max(row_of.shape[1], 1)].masked_fill(padding[:, None], 0)
        return out.to(x.dtype), probs.flatten()[entry].masked_fill(padding, 0)


def routing(indices, experts, alignment):
    """row_of (tokens, k) and entry_of (rows,), int32, as route_tokens gives them, without tail."""
    expert = indices.flatten()
    known = (expert >= 0) & (expert < experts)
    counts = torch.bincount(expert[known], minlength=experts)
    size = (counts + alignment - 1) // alignment * alignment
    order = expert.where(known, experts).argsort(stable=True)[: int(counts.sum())]
    rank = torch.arange(len(order)) - (counts.cumsum(0) - counts)[expert[order]]
    row = (size.cumsum(0) - size)[expert[order]] + rank
    row_of = torch.full((expert.numel(),), -1)
    row_of[order] = row
    entry_of = torch.full((int(size.sum()),), -1)
    entry_of[row] = order
    return row_of.view(indices.shape).int(), entry_of.int()


def get_init_inputs():
    return []


def get_inputs(
    tokens=4096,
    hidden=7168,
    topk=8,
    experts=256,
    dtype="bfloat16",
    probs="float32",
    alignment=1,
    padding=0,
    local=1.0,
    duplicates=False,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU.

    local       share of the entries that name a local expert; NaN is the probability of some others
    alignment   rows of an expert are a multiple of it
    padding     more rows of padding at the end
    duplicates  an expert may be named twice by one token
    offset      elements by which the floating inputs' storage is shifted
    strided     the rows of the hidden states are columns in memory, and so are the maps' and
                probabilities'
    """
    if duplicates:
        indices = torch.randint(experts, (tokens, topk))
    else:
        indices = torch.rand(tokens, max(experts, topk)).argsort(1)[:, :topk]
    here = torch.rand(tokens, topk) < local
    row_of, entry_of = routing(indices.where(here, -1), experts, alignment)
    entry_of = torch.cat([entry_of, entry_of.new_full((padding,), -1)])
    weights = torch.rand(tokens, topk).to(getattr(torch, probs))
    weights[(row_of < 0) & (torch.rand(tokens, topk) < 0.5)] = float("nan")
    rows = tokens
    values = torch.randn(rows, hidden).to(getattr(torch, dtype))
    if strided:
        values, weights, row_of = (t.t().contiguous().t() for t in (values, weights, row_of))
    if offset:
        values, weights = (
            torch.cat([t.new_zeros(offset), t.flatten()])[offset:].view(t.shape)
            for t in (values, weights)
        )
    return [values, weights, row_of, entry_of]


def work(model, x, probs, row_of, entry_of):
    """Each token with a row and each map read once, each output written once."""
    rows, tokens = len(entry_of), int((row_of >= 0).any(1).sum())
    moved = (rows + tokens) * x.shape[1] * x.element_size()
    kept = int((row_of >= 0).sum())
    return dict(
        bytes=moved + (rows + kept) * probs.element_size() + row_of.nbytes + entry_of.nbytes,
        flops=0,
    )


def work_backward(model, x, probs, row_of, entry_of):
    """The gradient rows that have an entry read once, the tokens' gradients written once."""
    kept = int((row_of >= 0).sum())
    row_bytes = x.shape[1] * x.element_size()
    probabilities = (kept + probs.numel()) * probs.element_size()
    return dict(
        bytes=(kept + len(x)) * row_bytes + probabilities + row_of.nbytes,
        flops=kept * x.shape[1],
    )
