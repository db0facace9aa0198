"""weighted_swiglu's reference against a loop in Python's own double precision."""

import math

import pytest
import torch

from reference import weighted_swiglu as swiglu

SMALL = [name for name in swiglu.CASES if name not in swiglu.GPU_ONLY]


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def activated(gate, up, variant):
    if variant == "plain":
        return gate * sigmoid(gate) * up
    gate, up = min(gate, 7.0), max(-7.0, min(up, 7.0))
    return gate * sigmoid(1.702 * gate) * (up + 1)


@pytest.mark.parametrize("case", SMALL)
@pytest.mark.parametrize("far", [False, True])
def test_reference_equals_the_loop(case, far):
    torch.manual_seed(8)
    sizes = swiglu.CASES[case]
    model = swiglu.Model(*swiglu.get_init_inputs(**sizes))
    x, weight = swiglu.get_inputs(**sizes, far=far)
    x, weight = x[:40], weight[:40]
    out = model(x, weight)
    width = x.shape[1] // 2
    assert out.shape == (len(x), width)
    assert out.dtype == x.dtype
    want = [
        [w * activated(row[f], row[width + f], model.variant) for f in range(width)]
        for row, w in zip(x.tolist(), weight.tolist(), strict=True)
    ]
    want = torch.tensor(want, dtype=torch.float64).view(len(x), width)
    rounding = torch.finfo(x.dtype).eps / 2
    torch.testing.assert_close(out.double(), want, rtol=rounding + 1e-5, atol=1e-7)


@pytest.mark.parametrize("variant", ["plain", "clamped"])
def test_gradient_equals_the_finite_difference(variant):
    torch.manual_seed(9)
    x, weight = torch.randn(3, 10, dtype=torch.float64) * 6, torch.rand(3, dtype=torch.float64)
    inputs = (x.requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(swiglu.Model(variant), inputs)


def test_the_gradient_passes_at_the_limit_and_not_beyond():
    at, beyond = 7.0, 7.03125
    x = torch.tensor([[at, beyond, 1.0, 1.0, 1.0, at, beyond, -at]], requires_grad=True)
    out = swiglu.Model("clamped")(x, torch.ones(1))
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert (grad != 0).tolist() == [[True, False, True, True, True, True, False, True]]


def test_by_hand():
    x = torch.tensor([[0.0, 1.0, 5.0, 2.0], [9.0, -1.0, -9.0, 0.0]])
    out = swiglu.Model("clamped")(x, torch.tensor([2.0, 1.0]))
    want = [[0.0, 6 * sigmoid(1.702)], [7 * sigmoid(1.702 * 7) * -6, -sigmoid(-1.702)]]
    torch.testing.assert_close(out, torch.tensor(want))
    assert swiglu.Model()(x, torch.zeros(2)).count_nonzero() == 0
