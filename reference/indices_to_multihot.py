"""Top-k expert indices and probabilities to a boolean map and dense probabilities.

map[t, e]   = any_k(indices[t, k] == e)
dense[t, e] = sum_k(probs[t, k] where indices[t, k] == e)

indices (tokens, k)        int32 or int64, any strides; every value outside [0, experts) means
                           "not on this device" and is dropped, with gradient zero
probs   (tokens, k)        fp32, bf16 or fp16, any strides
map     (tokens, experts)  bool
dense   (tokens, experts)  as probs; differentiable with respect to probs

An expert named twice by a token adds up, in order of k, in fp32, rounded once; each of the two
receives the whole gradient, which is the derivative of that sum.
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=4, topk=2, experts=4),
    "odd": dict(tokens=333, topk=7, experts=31, dtype="bfloat16"),
    "one of one": dict(tokens=65, topk=1, experts=1),
    "k is e": dict(tokens=130, topk=12, experts=12, index="int32", local=1.0, dtype="float16"),
    "duplicates": dict(tokens=257, topk=6, experts=5, local=1.0, duplicates=True),
    "stale ids": dict(tokens=512, topk=8, experts=20, local=0.3, index="int32"),
    "strided": dict(tokens=129, topk=8, experts=64, strided=True),
    "misaligned": dict(tokens=97, topk=5, experts=9, offset=1, dtype="bfloat16"),
    "skewed": dict(tokens=300, topk=6, experts=96, local=1.0, skew=3.0),
    "empty": dict(tokens=0, topk=8, experts=32),
    "16384 tokens": dict(tokens=16384, experts=64, local=1.0),
    "512 local": dict(topk=10, experts=512, local=1.0, dtype="bfloat16"),
    "256 local": dict(experts=256, local=1.0),
    "256 local bf16": dict(experts=256, local=1.0, dtype="bfloat16", index="int32"),
    "4096 tokens": dict(tokens=4096, experts=8),
}
GPU_ONLY = ("headline", "16384 tokens", "256 local", "256 local bf16", "512 local")
TIMED = (*GPU_ONLY, "4096 tokens")
GRADIENTS = True
TOLERANCE = dict(
    rtol=1e-6,
    atol=0,
    source="moved values are exact; K duplicates summed in another order are K fp32 roundings off",
)


class Model(nn.Module):
    """experts: number of local experts."""

    def __init__(self, experts=32):
        super().__init__()
        self.experts = experts

    def forward(self, indices, probs):
        local = (indices >= 0) & (indices < self.experts)
        # Dropped entries go to a spare column, cut off at the end.
        column = indices.long().where(local, self.experts)
        chosen = column.new_zeros(len(column), self.experts + 1, dtype=torch.bool)
        chosen = chosen.scatter_(1, column, True)[:, : self.experts]
        dense = probs.new_zeros(chosen.shape[0], self.experts + 1, dtype=torch.float32)
        dense = dense.scatter_add(1, column, probs.float())[:, : self.experts]
        return chosen.contiguous(), dense.to(probs.dtype).contiguous()


def get_init_inputs(experts=32, **sizes):
    return [experts]


def get_inputs(
    tokens=65536,
    topk=8,
    experts=32,
    dtype="float32",
    index="int64",
    local=0.5,
    duplicates=False,
    skew=0.0,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU.

    local       share of the entries that name a local expert; the others are -1, below -1 or
                far above the experts, as dispatchers and stale buffers leave them
                (NaN beside every seventh of them)
    duplicates  an expert may be named twice by one token
    skew        how much likelier low experts are
    offset      elements by which both inputs' storage is shifted
    """
    if duplicates:
        chosen = torch.randint(experts, (tokens, topk))
    else:
        wide = max(experts, topk)
        score = torch.rand(tokens, wide) + skew * torch.arange(wide) / wide
        chosen = score.argsort(1)[:, :topk]
    nowhere = torch.tensor([-1, -1, -1, -2, -99999, experts, experts + 1, 2071690107])
    other = nowhere[torch.randint(len(nowhere), (tokens, topk))]
    here = torch.rand(tokens, topk) < local
    indices = torch.where(here, chosen, other)
    indices = indices.to(getattr(torch, index))
    probs = torch.rand(tokens, topk).to(getattr(torch, dtype))
    probs[~here & (torch.rand(tokens, topk) < 1 / 7)] = float("nan")
    if strided:
        indices = indices.t().contiguous().t()
        probs = torch.stack([probs, probs], 2).flatten(1)[:, ::2]
    if offset:
        indices, probs = (
            torch.cat([x.new_zeros(offset), x.flatten()])[offset:].view(tokens, topk)
            for x in (indices, probs)
        )
    return [indices, probs]


def work(model, indices, probs):
    """Indices and probabilities read once, map and dense probabilities written once."""
    entry = indices.element_size() + probs.element_size()
    cells = indices.shape[0] * model.experts
    return dict(bytes=indices.numel() * entry + cells * (1 + probs.element_size()), flops=0)


def work_backward(model, indices, probs):
    """Indices read once, one 32-byte sector for each local entry, gradient written once."""
    local = int(((indices >= 0) & (indices < model.experts)).sum())
    touched = min(local * 32, indices.shape[0] * model.experts * probs.element_size())
    moved = indices.numel() * (indices.element_size() + probs.element_size())
    return dict(bytes=moved + touched, flops=0)
