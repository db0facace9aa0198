"""Losses that keep a router in balance: the auxiliary (Switch) loss and the z-loss.

p[t, e] = softmax of the row's logits, or sigmoid over the row's sum of sigmoids (+ 1e-20)
aux     = experts / (topk * n^2) * sum_e(counts[e] * sum_t(p[t, e]))
z       = sum_t(logsumexp(logits[t])^2) / n
Sums are over the valid tokens, n is their number (1 where there is none). Coefficients are the
caller's: multiply.

logits (tokens, experts)  fp32, bf16 or fp16, any strides
counts (experts,)         int32 or int64, tokens sent to each expert (here or on all devices)
valid  (tokens,)          bool, or none: False for padding, which adds nothing and gets no gradient
aux, z ()                 fp32, differentiable with respect to the logits
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=33, experts=8, topk=2),
    "odd": dict(tokens=131, experts=67, index="int32", dtype="bfloat16"),
    "sigmoid": dict(tokens=100, experts=60, score="sigmoid"),
    "sigmoid fp16": dict(tokens=64, experts=256, score="sigmoid", dtype="float16", padding=0.3),
    "padding": dict(tokens=200, experts=32, padding=0.5),
    "all padding": dict(tokens=50, experts=16, padding=1.0),
    "no mask": dict(tokens=90, experts=128, padding=None),
    "one expert": dict(tokens=64, experts=1, topk=1),
    "skewed": dict(tokens=300, experts=16, skew=6.0),
    "wide": dict(tokens=40, experts=1000),
    "strided": dict(tokens=77, experts=64, strided=True),
    "misaligned": dict(tokens=77, experts=64, offset=1, dtype="float16"),
    "many rows": dict(tokens=9000, experts=2, topk=1),
    "empty": dict(tokens=0, experts=16),
    "Qwen3": dict(experts=128, score="softmax"),
    "DeepSeek-V3": dict(score="sigmoid"),
    "Kimi-K2": dict(tokens=8192, experts=384, score="sigmoid"),
    "16384 tokens bf16": dict(tokens=16384, dtype="bfloat16"),
}
GPU_ONLY = ("headline", "Qwen3", "DeepSeek-V3", "Kimi-K2", "16384 tokens bf16")
TIMED = GPU_ONLY
GRADIENTS = True
FAMILIES = {"skewed": dict(skew=6.0), "large": dict(spread=8.0), "tiny": dict(spread=1e-3)}
TOLERANCE = dict(
    rtol=2e-5,
    atol=1e-8,
    source="fast exponentials are 5e-6 off; a gradient is some 1 / (tokens * experts)",
)


class Model(nn.Module):
    """topk: experts of each token; score: "softmax" or "sigmoid"."""

    def __init__(self, topk=8, score="softmax"):
        super().__init__()
        self.topk, self.score = topk, score

    def forward(self, logits, counts, valid=None):
        x = logits.to(torch.promote_types(logits.dtype, torch.float32))
        mask = torch.ones_like(x[:, 0]) if valid is None else valid.to(x.dtype)
        n = mask.sum().clamp(min=1)
        if self.score == "softmax":
            p = x.softmax(1)
        else:
            p = x.sigmoid()
            p = p / (p.sum(1, keepdim=True) + 1e-20)
        share = (p * mask[:, None]).sum(0)
        aux = (share * counts).sum() * (x.shape[1] / self.topk) / n / n
        z = (x.logsumexp(1).square() * mask).sum() / n
        return aux, z


def get_init_inputs(topk=8, score="softmax", **sizes):
    return [topk, score]


def get_inputs(
    tokens=4096,
    experts=256,
    topk=8,
    score="softmax",
    dtype="float32",
    index="int64",
    padding=0.05,
    skew=0.0,
    spread=1.0,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU: [logits, counts, valid] or [logits, counts].

    padding  share of the tokens that are not valid; None: no mask
    skew     how much likelier high experts are
    spread   standard deviation of the logits
    offset   elements by which the logits' storage is shifted
    strided  logits are a transposed view, the mask every second element
    """
    logits = spread * torch.randn(tokens, experts) + skew * torch.arange(experts) / experts
    chosen = logits.topk(min(topk, experts), 1).indices
    counts = torch.bincount(chosen.flatten(), minlength=experts).to(getattr(torch, index))
    logits = logits.to(getattr(torch, dtype))
    valid = torch.rand(tokens) >= (padding or 0)
    if strided:
        logits = logits.t().contiguous().t()
        valid = valid.repeat_interleave(2)[::2]
    if offset:
        logits = torch.cat([logits.new_zeros(offset), logits.flatten()])[offset:]
        logits = logits.view(tokens, experts)
    return [logits, counts] if padding is None else [logits, counts, valid]


def work(model, logits, counts, valid=None):
    """Logits, counts and mask read once."""
    mask = 0 if valid is None else valid.numel()
    return dict(bytes=logits.numel() * logits.element_size() + counts.nbytes + mask + 8, flops=0)


def work_backward(model, logits, counts, valid=None):
    """Logits, counts and mask read once, the gradient written once."""
    forward = work(model, logits, counts, valid)["bytes"]
    return dict(bytes=forward + logits.numel() * logits.element_size(), flops=0)
