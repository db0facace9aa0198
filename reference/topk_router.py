"""Router of a mixture of experts: logits to the chosen experts and their weights.

score  softmax(x), sigmoid(x) or sqrt(softplus(x)) of the row's logits x
value  what the choice is made by: x itself without a bias (the scores' order), score + bias with
groups the experts lie in `groups` groups of equal size; only those of the group_topk best groups
       can be chosen. A group's rank: its best value; with a bias the sum of its two best values
chosen the topk highest values; equal ones by lowest expert, equal groups by lowest group
weight scale * score, with renormalize over the sum of the chosen scores (+ 1e-20; for softmax it
       is the softmax over the chosen logits): the bias is in the choice only

logits (tokens, experts)  fp32, bf16 or fp16, any strides
bias   (experts,)         fp32, or none; gets no gradient
lists     weights (tokens, topk) fp32, ids (tokens, topk) int32 or int64, by falling value
multihot  weights (tokens, experts) fp32, zero where not chosen, map (tokens, experts) bool

A NaN logit counts as -inf, +inf as the largest number; a bias that is NaN as -inf. A row of nothing
but -inf has scores of zero. sqrt(softplus(x)) is zero below x = -80. No gradient flows to a logit
that is not finite. Values that differ by less than the scores' rounding may be chosen in either
order: get_inputs leaves such rows out.
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=5, experts=8, topk=2, groups=2, group_topk=1),
    "one token": dict(tokens=1),
    "odd": dict(tokens=131, experts=67, topk=9, groups=1, group_topk=1, score="softmax"),
    "multihot": dict(tokens=70, output="multihot"),
    "softmax bias": dict(tokens=64, experts=60, topk=7, groups=5, group_topk=3, score="softmax"),
    "plain softmax bf16": dict(
        tokens=65,
        experts=64,
        topk=6,
        groups=8,
        group_topk=3,
        score="softmax",
        renormalize=False,
        bias=False,
        dtype="bfloat16",
        index="int64",
    ),
    "plain softmax multihot": dict(
        tokens=33,
        experts=40,
        topk=3,
        groups=1,
        group_topk=1,
        score="softmax",
        renormalize=False,
        output="multihot",
        dtype="float16",
    ),
    "sqrtsoftplus": dict(
        tokens=65, experts=384, topk=6, groups=1, group_topk=1, score="sqrtsoftplus", scale=1.5
    ),
    "one of one": dict(tokens=33, experts=1, topk=1, groups=1, group_topk=1),
    "k is e": dict(tokens=34, experts=40, topk=40, groups=4, group_topk=4, bias=False),
    "one expert a group": dict(tokens=35, experts=16, topk=5, groups=16, group_topk=6),
    "wide": dict(tokens=17, experts=1500, topk=22, groups=1, group_topk=1, bias=False),
    "strided": dict(tokens=43, strided=True, dtype="bfloat16", output="multihot"),
    "misaligned": dict(tokens=44, experts=128, groups=1, group_topk=1, offset=1, bias=False),
    "ties": dict(tokens=66, values="ties"),
    "all equal": dict(tokens=37, values="equal", groups=4, group_topk=2, score="softmax"),
    "not finite": dict(tokens=128, values="not finite", dtype="bfloat16"),
    "empty": dict(tokens=0),
    "128 tokens": dict(tokens=128),
    "Qwen3": dict(experts=128, groups=1, group_topk=1, score="softmax", bias=False, scale=1.0),
    "gpt-oss": dict(
        experts=128, topk=4, groups=1, group_topk=1, score="softmax", bias=False, scale=1.0
    ),
    "Mixtral": dict(
        experts=8, topk=2, groups=1, group_topk=1, score="softmax", bias=False, scale=1.0
    ),
    "Llama-4": dict(
        experts=128, topk=1, groups=1, group_topk=1, bias=False, renormalize=False, scale=1.0
    ),
    "Kimi-K2": dict(experts=384, groups=1, group_topk=1),
    "512 experts, 22": dict(experts=512, topk=22, groups=1, group_topk=1),
    "multihot bf16": dict(output="multihot", dtype="bfloat16"),
}
GPU_ONLY = (
    "headline",
    "128 tokens",
    "Qwen3",
    "gpt-oss",
    "Mixtral",
    "Llama-4",
    "Kimi-K2",
    "512 experts, 22",
    "multihot bf16",
)
TIMED = GPU_ONLY
GRADIENTS = True
FAMILIES = {
    "tied": dict(values="ties"),
    "negative": dict(values="negative"),
    "far apart": dict(values="far apart"),
    "not finite": dict(values="not finite"),
}
TOLERANCE = dict(
    rtol=2e-5,
    atol=1e-6,
    source="fast exponentials of up to 80 are 5e-6 off; gradients are differences of weights of "
    "up to scale",
)
CLOSE = 1e-5  # values as near as this are not told apart by rounded scores


class Model(nn.Module):
    """topk of each token's experts; the other arguments as in the module's docstring."""

    def __init__(
        self,
        topk=8,
        score="sigmoid",
        groups=8,
        group_topk=4,
        renormalize=True,
        scale=2.5,
        output="lists",
        index="int32",
    ):
        super().__init__()
        self.topk, self.score = topk, score
        self.groups, self.group_topk = groups, group_topk
        self.renormalize, self.scale = renormalize, scale
        self.output, self.index = output, getattr(torch, index)

    def forward(self, logits, bias=None):
        x = logits.to(torch.promote_types(logits.dtype, torch.float32))
        x = x.nan_to_num(nan=-torch.inf, posinf=torch.finfo(x.dtype).max, neginf=-torch.inf)
        scores = scores_of(x, self.score)
        ids = self.choose(x if bias is None else scores + bias, bias is not None)
        if self.score == "softmax" and self.renormalize:
            weights = scores_of(x.gather(1, ids), "softmax")
        else:
            weights = scores.gather(1, ids)
            if self.renormalize:
                weights = weights / (weights.sum(1, keepdim=True) + 1e-20)
        weights = self.scale * weights
        if self.output == "lists":
            return weights, ids.to(self.index)
        dense = torch.zeros_like(x).scatter(1, ids, weights)
        return dense, torch.zeros_like(x, dtype=torch.bool).scatter(1, ids, True)

    @torch.no_grad()
    def choose(self, value, biased):
        """(tokens, topk) int64: the experts with the highest values, of the best groups."""
        value = finite(value)
        if self.groups > 1:
            best = highest(self.group_values(value, biased), self.group_topk)
            open_ = torch.zeros(len(value), self.groups, dtype=torch.bool, device=value.device)
            open_ = open_.scatter(1, best, True)
            closed = ~open_.repeat_interleave(value.shape[1] // self.groups, 1)
            value = value.masked_fill(closed, -torch.inf)
        return highest(value, self.topk)

    def group_values(self, value, biased):
        """(tokens, groups): each group's best value, or the sum of its two best."""
        grouped = value.unflatten(1, (self.groups, -1))
        return grouped.topk(min(2 if biased else 1, grouped.shape[2]), 2).values.sum(2)


def scores_of(x, score):
    """Scores of each row of x; x holds no NaN and no +inf."""
    if score == "sigmoid":
        return x.sigmoid()
    if score == "sqrtsoftplus":
        return nn.functional.softplus(x.clamp(min=-80)).sqrt().where(x > -80, 0)
    top = x.detach().amax(1, keepdim=True).clamp(min=torch.finfo(x.dtype).min)
    power = (x - top).exp()
    total = power.sum(1, keepdim=True)
    return power / total.where(total > 0, 1)


def finite(value):
    """NaN and -inf to the lowest number, +inf to the highest."""
    limits = torch.finfo(value.dtype)
    return value.nan_to_num(nan=limits.min, posinf=limits.max, neginf=limits.min)


def highest(value, count):
    """Columns of each row's `count` highest values, falling; equal ones by lowest column."""
    return value.sort(dim=1, descending=True, stable=True).indices[:, :count]


def get_init_inputs(
    topk=8,
    score="sigmoid",
    groups=8,
    group_topk=4,
    renormalize=True,
    scale=2.5,
    output="lists",
    index="int32",
    **sizes,
):
    return [topk, score, groups, group_topk, renormalize, scale, output, index]


def get_inputs(
    tokens=4096,
    experts=256,
    bias=True,
    dtype="float32",
    values="normal",
    offset=0,
    strided=False,
    **rule,
):
    """Inputs of one case, on the CPU: [logits, bias] or [logits].

    values   normal; ties (few distinct ones, no bias to speak of); equal; negative; far apart;
             not finite (NaN, infinities, whole rows of them)
    offset   elements by which the logits' storage is shifted
    strided  logits are a transposed view
    rule     Model's arguments
    """
    kind = getattr(torch, dtype)
    tied = values in ("ties", "equal")
    offsets = torch.zeros(experts) if tied else torch.randn(experts) / 4
    logits = drawn(values, tokens, experts).to(kind)
    if bias and not tied:
        model = Model(*get_init_inputs(**rule))
        for _ in range(100):
            close = margin(model, logits, offsets) < CLOSE
            if not close.any():
                break
            logits[close] = drawn(values, int(close.sum()), experts).to(kind)
    if strided:
        logits = logits.t().contiguous().t()
    if offset:
        logits = torch.cat([logits.new_zeros(offset), logits.flatten()])[offset:]
        logits = logits.view(tokens, experts)
    return [logits, offsets] if bias else [logits]


def drawn(values, tokens, experts):
    """(tokens, experts) fp32 logits of one kind."""
    x = torch.randn(tokens, experts)
    if values == "ties":
        return (x * 2).round().abs() / 2
    if values == "equal":
        return x[:, :1].expand(tokens, experts).clone()
    if values == "negative":
        return -5 - 3 * x.abs()
    if values == "far apart":
        return x * 30
    if values == "not finite":
        odd = torch.tensor([torch.nan, torch.inf, -torch.inf])
        one = odd[torch.randint(3, (tokens, experts))]
        x = torch.where(torch.rand(tokens, experts) < 0.3 * torch.rand(tokens, 1), one, x)
        whole = torch.rand(tokens, 1)
        x = torch.where(whole < 0.1, one, x)
        return torch.where(whole < 0.05, one[:, :1], x)
    return x


def margin(model, logits, bias):
    """(tokens,): least difference between unequal numbers that decides the choice, in float64."""
    x = finite(logits.double())
    value = scores_of(x.clamp(min=-1e300), model.score) + bias
    least = torch.full((len(x),), torch.inf, dtype=x.dtype)
    if model.groups > 1:
        order = model.group_values(value, True).sort(1, descending=True).values
        least = gap(order[:, model.group_topk - 1 : model.group_topk + 1])
    order = value.sort(1, descending=True).values
    if model.groups == 1:
        order = order[:, : model.topk + 1]
    return torch.minimum(least, gap(order))


def gap(falling):
    """(rows,): least difference between neighbours of a falling row that are not equal."""
    if falling.shape[1] < 2 or len(falling) == 0:
        return torch.full((len(falling),), torch.inf, dtype=falling.dtype)
    steps = falling[:, :-1] - falling[:, 1:]
    return steps.where(steps > 0, torch.inf).amin(1)


def work(model, logits, bias=None):
    """Logits and bias read once, the result written once."""
    entry = 4 + torch.empty(0, dtype=model.index).element_size()
    result = len(logits) * model.topk * entry if model.output == "lists" else logits.numel() * 5
    read = logits.nbytes + (0 if bias is None else bias.nbytes)
    return dict(bytes=read + result, flops=0)


def work_backward(model, logits, bias=None):
    """Ids and gradients of the chosen, their logits (by sectors of 32 bytes) or, for a softmax over
    all, every logit, read once; the gradient written once."""
    whole = model.score == "softmax" and not model.renormalize
    chosen = len(logits) * model.topk
    lists = model.output == "lists"
    listed = chosen * (4 + (torch.empty(0, dtype=model.index).element_size() if lists else 4))
    sectors = chosen * 32 if lists else 2 * chosen * 32
    read = logits.nbytes if whole else min(sectors, logits.nbytes)
    return dict(bytes=listed + read + logits.nbytes, flops=0)
