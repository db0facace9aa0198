"""load_balance_loss' reference against a loop in Python's own double precision."""

import math

import pytest
import torch

from reference import load_balance_loss as balance

SMALL = [name for name in balance.CASES if name not in balance.GPU_ONLY]


def losses_by_loop(logits, counts, valid, model):
    rows = [row for row, kept in zip(logits.tolist(), valid.tolist(), strict=True) if kept]
    n = max(len(rows), 1)
    aux = z = 0.0
    for row in rows:
        if model.score == "softmax":
            scores = [math.exp(x - max(row)) for x in row]
        else:
            scores = [1 / (1 + math.exp(-x)) for x in row]
        shares = [s / sum(scores) for s in scores]
        aux += sum(p * c for p, c in zip(shares, counts.tolist(), strict=True))
        z += (max(row) + math.log(sum(math.exp(x - max(row)) for x in row))) ** 2
    return aux * len(counts) / (model.topk * n * n), z / n


@pytest.mark.parametrize("case", SMALL)
def test_reference_equals_the_loop(case):
    torch.manual_seed(4)
    sizes = balance.CASES[case]
    model = balance.Model(*balance.get_init_inputs(**sizes))
    inputs = balance.get_inputs(**sizes)
    aux, z = model(*inputs)
    assert aux.dtype == z.dtype == torch.float32
    valid = inputs[2] if len(inputs) > 2 else torch.ones(len(inputs[0]))
    want = losses_by_loop(*inputs[:2], valid, model)
    assert (aux.item(), z.item()) == pytest.approx(want, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_gradient_equals_the_finite_difference(score):
    torch.manual_seed(3)
    logits = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    counts, valid = torch.randint(9, (5,)), torch.tensor([True, False, True, True, False, True])
    model = balance.Model(2, score)
    assert torch.autograd.gradcheck(lambda x: model(x, counts, valid), (logits,))


def test_perfect_balance_is_one():
    aux, z = balance.Model(2)(torch.zeros(12, 4), torch.full((4,), 6))
    assert aux.item() == pytest.approx(1.0)
    assert z.item() == pytest.approx(math.log(4) ** 2)
