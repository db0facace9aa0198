"""moe_layer's reference against a loop over entries in double precision, gradients by hand."""

import math

import pytest
import torch

from reference import moe_layer as moe

SMALL = [name for name in moe.CASES if name not in moe.GPU_ONLY]
DTYPE_STEPS = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}


def activated(h, variant):
    """swiglu(h) and its derivatives by gate and up, for one row in float64."""
    gate, up = h.chunk(2)
    alpha, limit = (1.702, 7.0) if variant == "clamped" else (1.0, math.inf)
    inside_gate, inside_up = gate <= limit, up.abs() <= limit
    g, u = gate.clamp(max=limit), up.clamp(-limit, limit)
    u = u + 1 if variant == "clamped" else u
    s = 1 / (1 + torch.exp(-alpha * g))
    by_gate = u * s * (1 + alpha * g * (1 - s)) * inside_gate
    return g * s * u, torch.cat([by_gate, g * s * inside_up])


def by_loop(model, x, probs, indices, gate_up, down, grad):
    """Result and gradients by x, probs, gate_up and down: one entry at a time."""
    x, probs, gate_up, down, grad = (t.double() for t in (x, probs, gate_up, down, grad))
    out, found = torch.zeros_like(x), [torch.zeros_like(t) for t in (x, probs, gate_up, down)]
    for t, named in enumerate(indices.tolist()):
        for k, e in enumerate(named):
            if not 0 <= e < len(gate_up):
                continue
            h = gate_up[e] @ x[t]
            a, slopes = activated(h, model.variant)
            out[t] += probs[t, k] * (down[e] @ a)
            back = down[e].t() @ grad[t]
            grad_h = probs[t, k] * slopes * back.repeat(2)
            found[0][t] += gate_up[e].t() @ grad_h
            found[1][t, k] = a @ back
            found[2][e] += torch.outer(grad_h, x[t])
            found[3][e] += torch.outer(grad[t], probs[t, k] * a)
    return out, *found


def answered(model, inputs):
    """The reference's result, a gradient of it, and the gradients of its inputs."""
    floats = [t.requires_grad_() for t in inputs if t.is_floating_point()]
    out = model(*inputs)
    grad = torch.randn_like(out)
    found = torch.autograd.grad(out, floats, grad)
    for t in floats:
        t.requires_grad_(False)
    return out.detach(), grad, found


def close(got, want, step):
    """Within `step` of the largest element: sums in a narrow type may end near zero."""
    assert got.shape == want.shape
    if got.numel():
        torch.testing.assert_close(got.double(), want, rtol=0, atol=step * float(want.abs().max()))


@pytest.mark.parametrize("case", SMALL)
def test_reference_equals_the_loop(case):
    torch.manual_seed(12)
    sizes = moe.CASES[case]
    model = moe.Model(*moe.get_init_inputs(**sizes))
    inputs = moe.get_inputs(**sizes)
    out, grad, found = answered(model, inputs)
    assert out.dtype == inputs[0].dtype
    assert [g.dtype for g in found] == [t.dtype for t in inputs if t.is_floating_point()]
    for got, want in zip((out, *found), by_loop(model, *inputs, grad), strict=True):
        close(got, want, DTYPE_STEPS[inputs[0].dtype])


@pytest.mark.parametrize("variant", ["plain", "clamped"])
def test_far_inputs_and_clamps_equal_the_loop(variant):
    torch.manual_seed(13)
    sizes = dict(tokens=25, hidden=24, width=20, topk=3, experts=5, dtype="float32", local=0.8)
    model = moe.Model(variant)
    inputs = moe.get_inputs(**sizes, spread=12.0, exact=True)
    h = torch.einsum("th,efh->tef", inputs[0], inputs[3])
    assert (h > 7).any()
    assert (h < -7).any()
    out, grad, found = answered(model, inputs)
    for got, want in zip((out, *found), by_loop(model, *inputs, grad), strict=True):
        close(got, want, 1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_exact_inputs_give_h_in_any_order(dtype):
    torch.manual_seed(14)
    sizes = dict(tokens=40, hidden=64, width=32, topk=2, experts=3, dtype=dtype)
    x, _, _, gate_up, _ = moe.get_inputs(**sizes, spread=12.0, exact=True)
    wide = x.double() @ gate_up[0].double().t()
    assert torch.equal((x.float() @ gate_up[0].float().t()).double(), wide)
    assert torch.equal(x.float() * 4, (x.float() * 4).round())


def test_by_hand():
    x = torch.tensor([[1.0, 2.0], [5.0, 5.0]])
    gate_up = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[9.0, 9.0], [9.0, 9.0]]])
    down = torch.tensor([[[3.0], [-1.0]], [[9.0], [9.0]]])
    probs = torch.tensor([[0.5, math.nan], [math.nan, math.nan]])
    out = moe.Model()(x, probs, torch.tensor([[0, -1], [2, -7]]), gate_up, down)
    a = 0.5 * 2 / (1 + math.exp(-1))
    torch.testing.assert_close(out, torch.tensor([[3 * a, -a], [0.0, 0.0]]))


def test_what_nobody_names_has_gradient_zero():
    torch.manual_seed(15)
    sizes = dict(tokens=20, hidden=16, width=8, topk=2, experts=6, local=0.5, hot=1.0)
    inputs = moe.get_inputs(**sizes)
    _, _, (grad_x, grad_probs, grad_gate_up, grad_down) = answered(moe.Model(), inputs)
    kept = inputs[2] == 1
    assert kept.any()
    assert not kept.all()
    assert not grad_probs[~kept].any()
    assert not grad_x[~kept.any(1)].any()
    for grad in (grad_gate_up, grad_down):
        assert grad[1].any()
        assert not grad[[0, 2, 3, 4, 5]].any()


def test_repeated_values_differ_from_row_to_row():
    values = moe.drawn((3, 1024, 768), 1.0, torch.bfloat16)
    assert values.shape == (3, 1024, 768)
    assert len(values.flatten(0, 1).float().unique(dim=0)) == 3 * 1024


@pytest.mark.parametrize("case", SMALL)
def test_work_counts_no_more_than_all_tensors_once(case):
    torch.manual_seed(16)
    sizes = moe.CASES[case]
    model, inputs = moe.Model(*moe.get_init_inputs(**sizes)), moe.get_inputs(**sizes)
    all_bytes = sum(t.nbytes for t in inputs) + inputs[0].nbytes
    floats = sum(t.nbytes for t in inputs if t.is_floating_point())
    forward, backward = moe.work(model, *inputs), moe.work_backward(model, *inputs)
    assert 0 <= forward["bytes"] <= all_bytes
    assert 0 <= backward["bytes"] <= all_bytes + floats
    assert backward["flops"] == 2 * forward["flops"]


def test_work_by_hand():
    x, gate_up, down = torch.zeros(3, 8), torch.zeros(4, 10, 8), torch.zeros(4, 8, 5)
    indices = torch.tensor([[0, 2], [2, -1], [9, -1]])
    found = moe.work(moe.Model(), x, torch.zeros(3, 2), indices, gate_up, down)
    rows, weights = 4 * 8 * (2 + 3), 4 * 2 * (80 + 40)
    assert found == dict(bytes=rows + weights + 4 * 3 + 48, flops=2 * 3 * 120, unit="fp32")
