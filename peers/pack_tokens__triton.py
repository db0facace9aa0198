"""pack_tokens as a plain Triton scatter: zero the output, then one program per token and block.

What a Triton user writes first; where two tokens name one row, either may win.
"""

import torch.nn as nn

try:
    import triton
    import triton.language as tl
except ImportError:
    raise ImportError("needs the package triton (pip install triton)") from None


@triton.jit
def pack_tokens_kernel(
    hidden_ptr,
    expert_ptr,
    slot_ptr,
    offsets_ptr,
    out_ptr,
    hidden,
    experts,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(expert_ptr + token).to(tl.int64)
    slot = tl.load(slot_ptr + token).to(tl.int64)
    known = (expert >= 0) & (expert < experts)
    expert = tl.where(known, expert, 0)
    row = tl.load(offsets_ptr + expert).to(tl.int64) + slot
    kept = known & (slot >= 0) & (row < tl.load(offsets_ptr + expert + 1))
    inside = (column < hidden) & kept
    value = tl.load(hidden_ptr + token * hidden + column, mask=inside)
    tl.store(out_ptr + row * hidden + column, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, token_hidden, expert_idx, slot_idx, expert_offsets):
        tokens, hidden = token_hidden.shape
        out = token_hidden.new_zeros(int(expert_offsets[-1]), hidden)
        if tokens == 0:
            return out
        block = min(1024, triton.next_power_of_2(hidden))
        pack_tokens_kernel[(tokens, triton.cdiv(hidden, block))](
            token_hidden.contiguous(),
            expert_idx.contiguous(),
            slot_idx.contiguous(),
            expert_offsets.contiguous(),
            out,
            hidden,
            expert_offsets.numel() - 1,
            BLOCK=block,
        )
        return out
