"""Put chunks of rows in another order; rows after the last chunk stay where they are.

out = cat(chunk[order[0]], chunk[order[1]], ..., x[sum(split_sizes):]), where chunk[i] is the rows
of x that split_sizes[i] gives it, one chunk after another.

x            (rows, hidden)  fp32, bf16 or fp16, any strides
split_sizes  (chunks,)       int32 or int64, none negative; their sum is at most rows
order        (chunks,)       int32 or int64: a permutation of the chunks
out          (rows, hidden)  as x; differentiable with respect to x

A dispatcher receives source-major (rank, expert) chunks and sorts them expert-major, and back.
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(rows=9, hidden=8, ranks=2, experts=2),
    "odd": dict(rows=331, hidden=67, ranks=3, experts=7, index="int32", spare=20),
    "one chunk": dict(rows=64, hidden=20, ranks=1, experts=1, dtype="float32"),
    "no chunk": dict(rows=40, hidden=12, ranks=0, experts=4),
    "empty chunks": dict(rows=100, hidden=24, ranks=16, experts=32, dtype="float16"),
    "skewed": dict(rows=500, hidden=40, ranks=4, experts=8, skew=4.0, dtype="float32"),
    "only spare rows": dict(rows=33, hidden=8, spare=33, ranks=2, experts=4),
    "many chunks": dict(rows=5000, hidden=3, ranks=15, experts=256, index="int32"),
    "strided": dict(rows=129, hidden=40, ranks=4, experts=4, strided=True),
    "misaligned": dict(rows=97, hidden=64, ranks=4, experts=4, offset=1),
    "empty": dict(rows=0, hidden=16),
    "DeepSeek-V3 EP64": dict(rows=32768, ranks=64, experts=4),
    "Qwen3-235B EP8": dict(rows=32768, hidden=4096, ranks=8, experts=16),
    "gpt-oss EP4": dict(rows=16384, hidden=2880, ranks=4, experts=32),
    "fp32": dict(rows=16384, dtype="float32"),
    "decode": dict(rows=512),
}
GPU_ONLY = ("headline", "DeepSeek-V3 EP64", "Qwen3-235B EP8", "gpt-oss EP4", "fp32", "decode")
TIMED = GPU_ONLY
GRADIENTS = True
TOLERANCE = dict(rtol=0, atol=0, source="a copy is exact")


class Model(nn.Module):
    def forward(self, x, split_sizes, order):
        row = torch.arange(len(x), device=x.device)
        if len(order) == 0:
            return x[row]
        sizes, order = split_sizes.long(), order.long()
        first, moved = sizes.cumsum(0) - sizes, sizes[order]
        end = moved.cumsum(0)
        slot = torch.searchsorted(end, row, right=True)  # the spare rows are past the last slot
        inside = slot < len(order)
        slot = slot.where(inside, 0)
        source = first[order][slot] + row - (end - moved)[slot]
        return x[source.where(inside, row)]


def get_init_inputs():
    return []


def get_inputs(
    rows=32768,
    hidden=7168,
    ranks=8,
    experts=32,
    dtype="bfloat16",
    index="int64",
    spare=0,
    skew=0.0,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU: (rank, expert) chunks, to be sorted by expert.

    spare    rows after the last chunk
    skew     how much larger low chunks are
    offset   elements by which the storage of x is shifted
    strided  x is a transposed view, and the lists are every second element
    """
    chunks = ranks * experts
    weight = torch.arange(1, chunks + 1, dtype=torch.float64) ** -skew
    if chunks and rows > spare:
        chunk = torch.multinomial(weight, rows - spare, replacement=True)
        sizes = torch.bincount(chunk, minlength=chunks)
    else:
        sizes = torch.zeros(chunks, dtype=torch.long)
    order = torch.arange(chunks).view(ranks, experts).t().reshape(-1)
    sizes, order = (t.to(getattr(torch, index)) for t in (sizes, order))
    x = torch.randn(rows * hidden + offset).to(getattr(torch, dtype))[offset:].view(rows, hidden)
    if strided:
        x = x.t().contiguous().t()
        sizes, order = (t.repeat_interleave(2)[::2] for t in (sizes, order))
    return [x, sizes, order]


def work(model, x, split_sizes, order):
    """Each row read and written once, the lists read once."""
    lists = (split_sizes.numel() + order.numel()) * order.element_size()
    return dict(bytes=2 * x.numel() * x.element_size() + lists, flops=0)


def work_backward(model, x, split_sizes, order):
    """As forward: the gradient's rows go back."""
    return work(model, x, split_sizes, order)
