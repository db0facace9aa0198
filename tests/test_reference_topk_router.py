"""The router's reference against a loop in Python's own double precision."""

import math

import pytest
import torch

from reference import topk_router as router

SMALL = [name for name in router.CASES if name not in router.GPU_ONLY]
LARGEST = torch.finfo(torch.float32).max


def number(x: float) -> float:
    """What a logit counts as."""
    return -math.inf if math.isnan(x) else min(x, LARGEST)


def scores_by_loop(row, score):
    if score == "softmax":
        top = max(row)
        powers = [0.0 if top == -math.inf else math.exp(x - top) for x in row]
        return [p / (sum(powers) or 1.0) for p in powers]
    if score == "sigmoid":
        return [0.0 if x < -700 else 1 / (1 + math.exp(-x)) for x in row]
    return [0.0 if x <= -80 else math.sqrt(x if x > 40 else math.log1p(math.exp(x))) for x in row]


def best(values, count):
    """Indices of the highest values, falling, equal ones by lowest index."""
    return sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]


def chosen_by_loop(row, bias, rule):
    scores = scores_by_loop(row, rule.score)
    values = row if bias is None else [s + b for s, b in zip(scores, bias, strict=True)]
    values = [max(v, -LARGEST) for v in values]
    size = len(row) // rule.groups
    ranks = []
    for group in range(rule.groups):
        two = sorted(values[group * size : (group + 1) * size])[-2:]
        ranks.append(two[-1] if bias is None else sum(two))
    open_ = set(best(ranks, rule.group_topk)) if rule.groups > 1 else {0}
    inside = [e for e in range(len(row)) if e // size in open_]
    ids = [inside[i] for i in best([values[e] for e in inside], rule.topk)]
    if rule.score == "softmax" and rule.renormalize:
        return ids, scores_by_loop([row[e] for e in ids], "softmax")
    weights = [scores[e] for e in ids]
    total = sum(weights) + 1e-20 if rule.renormalize else 1.0
    return ids, [w / total for w in weights]


@pytest.mark.parametrize("case", SMALL)
def test_reference_equals_the_loop(case):
    torch.manual_seed(5)
    sizes = router.CASES[case]
    rule = router.Model(*router.get_init_inputs(**sizes))
    inputs = router.get_inputs(**sizes)
    weights, second = rule(*inputs)
    assert weights.dtype == torch.float32
    bias = inputs[1].tolist() if len(inputs) > 1 else None
    for token, logits in enumerate(inputs[0].float().tolist()):
        ids, want = chosen_by_loop([number(x) for x in logits], bias, rule)
        if rule.output == "lists":
            assert second[token].tolist() == ids
            got = weights[token].tolist()
        else:
            assert second[token].nonzero().flatten().tolist() == sorted(ids)
            got = weights[token, ids].tolist()
            assert weights[token].count_nonzero() <= len(ids)
        assert got == pytest.approx([rule.scale * w for w in want], rel=1e-5, abs=1e-9), token


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "sqrtsoftplus"])
@pytest.mark.parametrize("renormalize", [True, False])
def test_gradient_equals_the_finite_difference(score, renormalize):
    torch.manual_seed(6)
    rule = router.Model(3, score, 2, 1, renormalize, 1.5)
    logits = torch.randn(4, 12, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(12, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: rule(x, bias)[0], (logits,))


def test_by_hand():
    rule = router.Model(2, "softmax", 1, 1, True, 1.0)
    weights, ids = rule(torch.tensor([[0.0, 0.0, 0.0], [1.0, math.nan, 1.0 + math.log(3)]]))
    assert ids.tolist() == [[0, 1], [2, 0]]
    assert weights.flatten().tolist() == pytest.approx([0.5, 0.5, 0.75, 0.25])


def test_the_bias_chooses_and_does_not_weigh():
    rule = router.Model(1, "sigmoid", 2, 1, False, 1.0)
    weights, ids = rule(torch.tensor([[3.0, 2.0, 0.0, 0.0]]), torch.tensor([0.0, 0.0, 9.0, -9.0]))
    assert ids.tolist() == [[0]]  # the sum of a group's two best counts: 1.83 against 1
    assert weights.item() == pytest.approx(1 / (1 + math.exp(-3)))


def test_rows_without_a_number_name_distinct_experts():
    for value in (math.nan, math.inf, -math.inf):
        weights, ids = router.Model()(torch.full((2, 256), value), torch.zeros(256))
        assert ids.tolist() == [list(range(8))] * 2
        assert weights.isfinite().all()
