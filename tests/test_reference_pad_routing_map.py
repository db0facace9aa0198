"""pad_routing_map's reference against a loop that sets one entry at a time."""

import pytest
import torch

from reference import pad_routing_map as pad

SMALL = [name for name in pad.CASES if name not in pad.GPU_ONLY]


@pytest.mark.parametrize("case", SMALL)
def test_reference_equals_the_loop(case):
    torch.manual_seed(4)
    sizes = pad.CASES[case]
    model = pad.Model(*pad.get_init_inputs(**sizes))
    (chosen,) = pad.get_inputs(**sizes)
    before = chosen.clone()
    out, short = model(chosen)
    assert torch.equal(chosen, before)
    assert (out.dtype, short.dtype) == (torch.bool, torch.int32)
    assert out.shape == chosen.shape
    for expert, column in enumerate(chosen.t().tolist()):
        row = 0
        while sum(column) % model.multiple and row < len(column):
            row = column.index(False) if False in column else len(column)
            if row < len(column):
                column[row] = True
        assert out[:, expert].tolist() == column
        assert short[expert] == -sum(column) % model.multiple


def test_by_hand():
    chosen = torch.tensor([[0, 1, 0, 1], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]).bool()
    out, short = pad.Model(3)(chosen)
    want = torch.tensor([[1, 1, 0, 1], [1, 1, 0, 1], [1, 1, 0, 0], [0, 0, 0, 1]]).bool()
    assert torch.equal(out, want)
    assert short.tolist() == [0, 0, 0, 0]
    assert pad.Model(8)(chosen)[1].tolist() == [4, 4, 0, 4]
