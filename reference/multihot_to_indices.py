"""The inverse of indices_to_multihot: a boolean map and dense probabilities to top-k form.

indices[t, :] = the experts e with map[t, e], rising, then -1
probs[t, k]   = dense[t, indices[t, k]], and 0 where the index is -1

map     (tokens, experts)  bool, any strides
dense   (tokens, experts)  fp32, bf16 or fp16, any strides
indices (tokens, topk)     int64 (or int32, as the model was built)
probs   (tokens, topk)     as dense; differentiable with respect to dense

A token with more than topk experts keeps the topk lowest; the others are dropped, gradient zero.
dense counts only where the map is set; elsewhere it may be anything, NaN too.
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=4, topk=2, experts=4, chosen=2),
    "odd": dict(tokens=333, topk=7, experts=31, dtype="bfloat16", chosen=4),
    "one of one": dict(tokens=65, topk=1, experts=1, chosen=1),
    "k is e": dict(tokens=130, topk=12, experts=12, dtype="float16", chosen=12, index="int32"),
    "too many": dict(tokens=257, topk=3, experts=40, chosen=9),
    "wide": dict(tokens=64, topk=10, experts=600, chosen=10),
    "strided": dict(tokens=129, topk=8, experts=64, strided=True),
    "misaligned": dict(tokens=97, topk=8, experts=9, offset=1, dtype="float16"),
    "skewed": dict(tokens=300, topk=6, experts=96, chosen=6, skew=3.0),
    "more slots than experts": dict(tokens=70, topk=9, experts=6),
    "empty": dict(tokens=0),
    "16384 tokens": dict(tokens=16384, experts=64, chosen=8),
    "256 local": dict(experts=256, chosen=8),
    "256 local bf16": dict(experts=256, chosen=8, dtype="bfloat16", index="int32"),
    "4096 tokens": dict(tokens=4096, experts=8),
}
GPU_ONLY = ("headline", "16384 tokens", "256 local", "256 local bf16")
TIMED = (*GPU_ONLY, "4096 tokens")
GRADIENTS = True
TOLERANCE = dict(rtol=0, atol=0, source="moved values are exact")


class Model(nn.Module):
    """topk: columns of the result; index: "int64" or "int32"."""

    def __init__(self, topk=8, index="int64"):
        super().__init__()
        self.topk = topk
        self.index = getattr(torch, index)

    def forward(self, chosen, dense):
        # The slot of a set entry is the number of set entries before it; all other entries go to a
        # spare column, cut off at the end.
        slot = chosen.long().cumsum(1) - 1
        slot = slot.where(chosen & (slot < self.topk), self.topk)
        expert = torch.arange(chosen.shape[1], device=chosen.device).expand_as(slot)
        listed = slot.new_full((len(chosen), self.topk + 1), -1).scatter_(1, slot, expert)
        listed = listed[:, : self.topk]
        probs = dense.gather(1, listed.clamp(min=0)).where(listed >= 0, 0)
        return listed.to(self.index).contiguous(), probs


def get_init_inputs(topk=8, index="int64", **sizes):
    return [topk, index]


def get_inputs(
    tokens=65536,
    topk=8,
    experts=32,
    dtype="float32",
    index="int64",
    chosen=4,
    skew=0.0,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU: up to `chosen` experts a token, at random, some with none.

    skew    how much likelier low experts are
    offset  elements by which both inputs' storage is shifted
    """
    score = torch.rand(tokens, experts) + skew * torch.arange(experts) / experts
    bound = score.sort(1).values[:, min(chosen, experts) - 1 : min(chosen, experts)]
    picked = (score <= bound) & (torch.rand(tokens, 1) < 0.95)
    dense = torch.rand(tokens, experts).to(getattr(torch, dtype))
    dense[~picked & (torch.rand(tokens, experts) < 1 / 7)] = float("nan")
    if strided:
        picked = picked.t().contiguous().t()
        dense = torch.stack([dense, dense], 2).flatten(1)[:, ::2]
    if offset:
        picked, dense = (
            torch.cat([x.new_zeros(offset), x.flatten()])[offset:].view(tokens, experts)
            for x in (picked, dense)
        )
    return [picked, dense]


def work(model, chosen, dense):
    """The map read once, each 32-byte sector with a chosen entry, the result written once."""
    entry = chosen.flatten().nonzero().flatten() * dense.element_size()
    sectors = (entry // 32).unique_consecutive().numel()
    listed = torch.empty(0, dtype=model.index).element_size() + dense.element_size()
    return dict(bytes=chosen.numel() + sectors * 32 + len(chosen) * model.topk * listed, flops=0)


def work_backward(model, chosen, dense):
    """Indices and gradients read once, the dense gradient written once."""
    entry = torch.empty(0, dtype=model.index).element_size() + dense.element_size()
    result = chosen.shape[0] * model.topk * entry
    return dict(bytes=result + dense.numel() * dense.element_size(), flops=0)
