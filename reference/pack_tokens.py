"""Pack tokens into expert-major order.

out[expert_offsets[expert_idx[t]] + slot_idx[t], :] = token_hidden[t, :]

token_hidden   (tokens, hidden)  fp32, bf16 or fp16, any strides
expert_idx     (tokens,)         int32 or int64; outside [0, experts) the token is dropped
slot_idx       (tokens,)         as expert_idx; outside its expert's [0, rows) the token is dropped
expert_offsets (experts + 1,)    as expert_idx; not falling, first 0, last = rows of out
out            (rows, hidden)    as token_hidden; a row that no token fills is zero

Two tokens for one row: the later token (larger t) is kept.
The headline case is the seed's. Real sizes are those of Llama-like (4096) and DeepSeek-V3 (7168)
hidden states; `capacity` leaves rows unfilled; `skew` sends most tokens to few experts.
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(tokens=5, hidden=8, experts=3),
    "odd": dict(tokens=331, hidden=67, experts=7, dtype="bfloat16", index="int64", offset=1),
    "capacity": dict(tokens=512, hidden=96, experts=8, capacity=1.5, dtype="float16"),
    "skewed": dict(tokens=1024, hidden=64, experts=16, skew=3.0, capacity=1.25, dropped=0.1),
    "strided": dict(tokens=257, hidden=40, experts=5, strided=True, index="int64"),
    "empty": dict(tokens=0, hidden=16, experts=4, capacity=2.0),
    "8192x2048": dict(tokens=8192, hidden=2048),
    "16384x4096": dict(tokens=16384, hidden=4096),
    "16384x4096 bf16": dict(tokens=16384, hidden=4096, dtype="bfloat16"),
    "32768x7168": dict(tokens=32768, hidden=7168),
    "32768x7168 bf16": dict(tokens=32768, hidden=7168, dtype="bfloat16"),
    "32768x7168 capacity": dict(
        tokens=32768, hidden=7168, experts=256, dtype="bfloat16", capacity=1.25, skew=0.5
    ),
}
GPU_ONLY = (
    "8192x2048",
    "16384x4096",
    "16384x4096 bf16",
    "32768x7168",
    "32768x7168 bf16",
    "32768x7168 capacity",
)
TOLERANCE = dict(rtol=0, atol=0, source="a copy is exact")


class Model(nn.Module):
    def forward(self, token_hidden, expert_idx, slot_idx, expert_offsets):
        experts = expert_offsets.numel() - 1
        expert_idx, slot_idx, expert_offsets = (
            t.long() for t in (expert_idx, slot_idx, expert_offsets)
        )
        rows = int(expert_offsets[-1])
        known = (expert_idx >= 0) & (expert_idx < experts)
        expert = expert_idx.where(known, 0)
        row = expert_offsets[expert] + slot_idx
        kept = known & (slot_idx >= 0) & (row < expert_offsets[expert + 1])
        token = torch.arange(len(token_hidden), device=token_hidden.device)
        token_of_row = torch.full((rows,), -1, device=token_hidden.device)
        token_of_row.scatter_reduce_(0, row[kept], token[kept], "amax")
        out = token_hidden.new_zeros(rows, token_hidden.shape[1])
        filled = token_of_row >= 0
        out[filled] = token_hidden[token_of_row[filled]]
        return out


def get_init_inputs():
    return []


def get_inputs(
    tokens=2048,
    hidden=128,
    experts=16,
    dtype="float32",
    index="int32",
    skew=0.0,
    capacity=1.0,
    dropped=0.0,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU.

    skew      0: token t goes to expert t % experts; above 0: expert e has weight (e + 1) ** -skew
    capacity  rows of an expert over the tokens it receives
    dropped   share of tokens whose expert is -1, below -1 or not an expert at all
    offset    elements by which token_hidden's storage is shifted (breaks 16-byte alignment)
    strided   token_hidden is a transposed view and the indices are every second element
    """
    if skew:
        weight = torch.arange(1, experts + 1, dtype=torch.float64) ** -skew
        expert = torch.multinomial(weight, max(tokens, 1), replacement=True)[:tokens]
    else:
        expert = torch.arange(tokens) % experts
    counts = torch.bincount(expert, minlength=experts)
    order = torch.argsort(expert, stable=True)
    first = torch.cumsum(counts, 0) - counts
    slot = torch.empty_like(expert)
    slot[order] = torch.arange(tokens) - first[expert[order]]
    rows = (counts * capacity).ceil().long() if tokens else torch.full((experts,), 3)
    offsets = torch.cat([rows.new_zeros(1), rows.cumsum(0)])
    lost = torch.rand(tokens) < dropped
    nowhere = torch.tensor([-1, -2, -99999, experts, 2071690107])
    expert = torch.where(lost, nowhere[torch.randint(5, (tokens,))], expert)
    kind = getattr(torch, index)
    hidden_states = torch.randn(tokens * hidden + offset).to(getattr(torch, dtype))[offset:]
    hidden_states = hidden_states.view(tokens, hidden)
    expert, slot, offsets = expert.to(kind), slot.to(kind), offsets.to(kind)
    if strided:
        hidden_states = hidden_states.t().contiguous().t()
        expert, slot = (t.repeat_interleave(2)[::2] for t in (expert, slot))
    return [hidden_states, expert, slot, offsets]


def work(model, token_hidden, expert_idx, slot_idx, expert_offsets):
    """Each kept token's row read once, each output row written once, each index read once."""
    rows = int(expert_offsets[-1])
    row_bytes = token_hidden.shape[1] * token_hidden.element_size()
    experts = expert_offsets.numel() - 1
    kept = int(((expert_idx >= 0) & (expert_idx < experts)).sum())
    indices = expert_idx.numel() + slot_idx.numel() + expert_offsets.numel()
    return dict(bytes=(kept + rows) * row_bytes + indices * expert_idx.element_size(), flops=0)
