"""SwiGLU of expert rows, each row weighted by its router probability.

plain    out[r, f] = silu(gate) * up * weight[r],  silu(g) = g * sigmoid(g)
clamped  gate = min(gate, limit), up = clamp(up, -limit, limit), then
         out[r, f] = gate * sigmoid(alpha * gate) * (up + 1) * weight[r]   (gpt-oss: 7 and 1.702)

x       (rows, 2 * width)  fp32, bf16 or fp16, any strides; gate is the first half, up the second
weight  (rows,)            fp32, any stride
out     (rows, width)      as x; differentiable with respect to x and weight

Everything is computed in fp32 and rounded once. A clamped value's gradient is zero beyond limit,
not at it.
The shapes are those of DeepSeek-V3 (2048), Qwen3 (768, 1536), gpt-oss (2880), Mixtral (14336).
"""

import torch
import torch.nn as nn

CASES = {
    "headline": {},
    "small": dict(rows=5, width=8, dtype="float32"),
    "odd": dict(rows=33, width=67, offset=1),
    "odd fp32": dict(rows=19, width=131, dtype="float32"),
    "clamped": dict(rows=40, width=96, variant="clamped"),
    "clamped fp16": dict(rows=21, width=257, variant="clamped", dtype="float16"),
    "one wide row": dict(rows=1, width=3000, dtype="float32"),
    "wide": dict(rows=3, width=14336),
    "many rows": dict(rows=4100, width=16),
    "width 1": dict(rows=70, width=1),
    "strided": dict(rows=31, width=40, strided=True),
    "row pitch": dict(rows=30, width=64, pitch=16, dtype="float32"),
    "misaligned": dict(rows=30, width=64, offset=1, dtype="float16"),
    "empty": dict(rows=0, width=64),
    "no width": dict(rows=6, width=0),
    "128 rows": dict(rows=128),
    "fp32": dict(dtype="float32"),
    "Qwen3-30B": dict(width=768),
    "Qwen3-235B": dict(width=1536),
    "gpt-oss": dict(rows=16384, width=2880, variant="clamped"),
    "Mixtral": dict(rows=8192, width=14336),
}
GPU_ONLY = (
    "headline",
    "128 rows",
    "fp32",
    "Qwen3-30B",
    "Qwen3-235B",
    "gpt-oss",
    "Mixtral",
)
TIMED = GPU_ONLY
GRADIENTS = True
FAMILIES = {
    "scaled": dict(spread=2.0),
    "tiny": dict(spread=1e-3),
    "zero weights": dict(zero_weights=True),
    "far": dict(far=True),
}
TOLERANCE = dict(
    rtol=2e-5,
    atol=1e-4,
    source="fast exponentials are 5e-6 off; a weight's gradient sums 14336 products of about 4",
)


class Model(nn.Module):
    """variant: "plain" or "clamped"; limit and alpha belong to the latter."""

    def __init__(self, variant="plain", limit=7.0, alpha=1.702):
        super().__init__()
        self.variant, self.limit, self.alpha = variant, limit, alpha

    def forward(self, x, weight):
        gate, up = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, 1)
        if self.variant == "plain":
            active = gate * gate.sigmoid() * up
        else:
            # As clamp, but with a gradient at the limit itself in every version of torch.
            gate = gate.where(~(gate > self.limit), self.limit)
            up = up.where(~(up > self.limit), self.limit).where(~(up < -self.limit), -self.limit)
            active = gate * (self.alpha * gate).sigmoid() * (up + 1)
        return (active * weight[:, None]).to(x.dtype)


def get_init_inputs(variant="plain", **sizes):
    return [variant]


def get_inputs(
    rows=32768,
    width=2048,
    dtype="bfloat16",
    variant="plain",
    spread=1.0,
    far=False,
    zero_weights=False,
    pitch=0,
    offset=0,
    strided=False,
):
    """Inputs of one case, on the CPU.

    spread   standard deviation of x
    far      a tenth of x lies 20 times further out, where sigmoids saturate and clamps clamp
    pitch    elements between the end of a row of x and the next row
    offset   elements by which x's storage is shifted
    strided  x is a transposed view and the weights are every second element
    """
    columns = 2 * width
    values = spread * torch.randn(rows, columns + pitch)
    if far:
        values = values.where(torch.rand(values.shape) > 0.1, 20 * values)
    values = values.to(getattr(torch, dtype))
    weight = torch.rand(rows)
    if zero_weights:
        weight = weight.where(torch.rand(rows) < 0.5, 0)
    if offset:
        values = torch.cat([values.new_zeros(offset), values.flatten()])[offset:]
        values = values.view(rows, columns + pitch)
    values = values[:, :columns]
    if strided:
        values = values.t().contiguous().t()
        weight = weight.repeat_interleave(2)[::2]
    return [values, weight]


def work(model, x, weight):
    """x and weights read once, the result (half of x) written once."""
    return dict(bytes=x.numel() * x.element_size() * 3 // 2 + weight.nbytes, flops=0)


def work_backward(model, x, weight):
    """x, weights and the gradient (half of x) read once, both gradients written once."""
    return dict(bytes=x.numel() * x.element_size() * 5 // 2 + 2 * weight.numel() * 4, flops=0)
