"""receive_tokens' reference against a loop that places one entry at a time."""

import pytest
import torch

from reference import receive_tokens as receive

SMALL = [name for name in receive.CASES if name not in receive.GPU_ONLY]


def received_by_loop(hidden, ids, probs, num_rows, model):
    groups = [[] for _ in range(model.experts)]
    for token, named in enumerate(ids.tolist()):
        for k, expert in enumerate(named):
            if 0 <= expert < model.experts:
                groups[expert].append((token, k))
    out = torch.zeros(num_rows, hidden.shape[1], dtype=hidden.dtype)
    out_probs = torch.zeros(num_rows)
    row_of = torch.full(ids.shape, -1, dtype=torch.int32)
    offsets = [0]
    for group in groups:
        for i, (token, k) in enumerate(group):
            row = offsets[-1] + i
            if row < num_rows:
                out[row], out_probs[row], row_of[token, k] = hidden[token], probs[token, k], row
        offsets.append(offsets[-1] - -len(group) // model.alignment * model.alignment)
    counts = torch.tensor([len(group) for group in groups], dtype=torch.int32)
    return out, out_probs, torch.tensor(offsets, dtype=torch.int32), counts, row_of


@pytest.mark.parametrize("case", SMALL)
def test_reference_equals_the_loop(case):
    torch.manual_seed(4)
    sizes = receive.CASES[case]
    model = receive.Model(*receive.get_init_inputs(**sizes))
    inputs = receive.get_inputs(**sizes)
    for got, want in zip(model(*inputs), received_by_loop(*inputs, model), strict=True):
        assert got.dtype == want.dtype
        assert torch.equal(got, want)


def test_by_hand():
    hidden = torch.tensor([[1.0], [2.0], [3.0]])
    ids = torch.tensor([[1, -1], [0, 1], [7, 1]])
    probs = torch.tensor([[0.1, float("nan")], [0.2, 0.3], [float("nan"), 0.4]])
    out, out_probs, offsets, counts, row_of = receive.Model(2, 2)(hidden, ids, probs, 7)
    assert out.flatten().tolist() == [2, 0, 1, 2, 3, 0, 0]
    assert out_probs.tolist() == pytest.approx([0.2, 0, 0.1, 0.3, 0.4, 0, 0])
    assert offsets.tolist() == [0, 2, 6]
    assert counts.tolist() == [1, 3]
    assert row_of.tolist() == [[2, -1], [0, 3], [-1, 4]]
