"""Pack tokens into expert-major order.

out[expert_offsets[expert_idx[t]] + slot_idx[t], :] = token_hidden[t, :]

token_hidden   (tokens, hidden)  fp32, bf16 or fp16, any strides
expert_idx     (tokens,)         int32 or int64; outside [0, experts) the token is dropped
slot_idx       (tokens,)         as expert_idx; outside its expert's [0, rows) the token is dropped
expert_offsets (experts + 1,)    as expert_idx; not falling, first 0, last = rows of out
out            (rows, hidden)    as token_hidden; a row that no token fills is zero

Two tokens for one row: the later token (larger t) is kept, the other is dropped.
A dropped token writes nothing and its gradient is zero.
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
    "wild ids": dict(tokens=400, hidden=36, experts=9, dropped=0.5, index="int64", capacity=1.1),
    "duplicates": dict(tokens=600, hidden=36, experts=5, duplicates=0.4),
    "one expert": dict(tokens=300, hidden=72, experts=16, skew=40.0, dtype="bfloat16"),
    "strided": dict(tokens=257, hidden=40, experts=5, strided=True, index="int64"),
    "misaligned": dict(tokens=257, hidden=64, experts=4, offset=1, dtype="float16"),
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
TIMED = ("headline", *GPU_ONLY)
GRADIENTS = True
TOLERANCE = dict(rtol=0, atol=0, source="a copy is exact")


class Model(nn.Module):
    def forward(self, token_hidden, expert_idx, slot_idx, expert_offsets):
        rows = int(expert_offsets[-1])
        row = destination(expert_idx, slot_idx, expert_offsets)
        token = torch.arange(len(row), device=row.device)
        # Dropped tokens go to a spare row, cut off at the end.
        last = token.new_full((rows + 1,), -1).scatter_reduce_(0, row, token, "amax")
        row = row.where(last[row] == token, rows)
        out = token_hidden.new_zeros(rows + 1, token_hidden.shape[1])
        return out.index_copy_(0, row, token_hidden)[:rows]


def destination(expert_idx, slot_idx, expert_offsets):
    """Row of each token, (tokens,) int64; one past the last row where it is dropped."""
    expert_idx, slot_idx, offsets = (t.long() for t in (expert_idx, slot_idx, expert_offsets))
    known = (expert_idx >= 0) & (expert_idx < offsets.numel() - 1)
    expert = expert_idx.where(known, 0)
    room = offsets[expert + 1] - offsets[expert]
    kept = known & (slot_idx >= 0) & (slot_idx < room)
    return torch.where(kept, offsets[expert] + slot_idx, offsets[-1])


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
    duplicates=0.0,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU.

    skew      0: token t goes to expert t % experts; above 0: expert e has weight (e + 1) ** -skew
    capacity  rows of an expert over the tokens it receives
    dropped   share of tokens whose expert is -1, below -1 or not an expert at all, or whose slot
              is below 0 or beyond its expert's rows
    duplicates  share of tokens that name the row of another token
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
    nowhere = torch.tensor([-1, -2, -99999, experts, 2071690107])
    lost, chance = torch.rand(tokens) < dropped, torch.rand(tokens)
    expert = torch.where(lost & (chance < 0.7), nowhere[torch.randint(5, (tokens,))], expert)
    slot = torch.where(lost & (chance >= 0.7), slot - counts.max(), slot)
    slot = torch.where(lost & (chance >= 0.85), 123456789, slot)
    other = torch.where(
        torch.rand(tokens) < duplicates, torch.randperm(tokens), torch.arange(tokens)
    )
    expert, slot = expert[other], slot[other]
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
    row = destination(expert_idx, slot_idx, expert_offsets)
    kept = row[row < rows].unique().numel()
    indices = expert_idx.numel() + slot_idx.numel() + expert_offsets.numel()
    return dict(bytes=(kept + rows) * row_bytes + indices * expert_idx.element_size(), flops=0)


def work_backward(model, token_hidden, expert_idx, slot_idx, expert_offsets):
    """A gradient row read for each kept token and one written for each token, indices once."""
    forward = work(model, token_hidden, expert_idx, slot_idx, expert_offsets)["bytes"]
    unread = int(expert_offsets[-1]) - len(token_hidden)
    return dict(bytes=forward - unread * token_hidden[:1].nbytes, flops=0)
