"""The references themselves, against loops that do one element at a time."""

import importlib
import inspect

import pytest
import torch

OPS = ("pack_tokens", "indices_to_multihot", "multihot_to_indices")
MODULES = {op: importlib.import_module(f"reference.{op}") for op in OPS}


SMALL_CASES = [
    pytest.param(op, name, id=f"{op}-{name}")
    for op, module in MODULES.items()
    for name in module.CASES
    if name not in module.GPU_ONLY and name != "headline"
]


def model_and_inputs(op: str, **sizes):
    module = MODULES[op]
    takes_sizes = inspect.signature(module.get_init_inputs).parameters
    init = module.get_init_inputs(**sizes) if takes_sizes else module.get_init_inputs()
    return module.Model(*init), module.get_inputs(**sizes)


def packed_by_loop(hidden, expert_idx, slot_idx, offsets):
    """out, and for each token the row it owns (-1: none)."""
    expert_idx, slot_idx, offsets = (x.tolist() for x in (expert_idx, slot_idx, offsets))
    owner = {}
    for token, (expert, slot) in enumerate(zip(expert_idx, slot_idx, strict=True)):
        if 0 <= expert < len(offsets) - 1 and 0 <= slot < offsets[expert + 1] - offsets[expert]:
            owner[offsets[expert] + slot] = token
    out = torch.zeros(offsets[-1], hidden.shape[1], dtype=hidden.dtype)
    row_of = [-1] * len(hidden)
    for row, token in owner.items():
        out[row] = hidden[token]
        row_of[token] = row
    return out, row_of


def multihot_by_loop(indices, probs, experts):
    chosen = torch.zeros(len(indices), experts, dtype=torch.bool)
    dense = torch.zeros(len(indices), experts, dtype=torch.float64)
    for row, (named, weights) in enumerate(zip(indices.tolist(), probs.tolist(), strict=True)):
        for expert, weight in zip(named, weights, strict=True):
            if 0 <= expert < experts:
                chosen[row, expert] = True
                dense[row, expert] += weight
    return chosen, dense


def indices_by_loop(chosen, dense, topk):
    indices = torch.full((len(chosen), topk), -1)
    probs = torch.zeros(len(chosen), topk, dtype=dense.dtype)
    for row in range(len(chosen)):
        for slot, expert in enumerate(chosen[row].nonzero().flatten().tolist()[:topk]):
            indices[row, slot] = expert
            probs[row, slot] = dense[row, expert]
    return indices, probs


def check_pack(inputs, out, grad, grad_hidden):
    want, row_of = packed_by_loop(*inputs)
    assert torch.equal(out, want)
    for token, row in enumerate(row_of):
        want = grad[row] if row >= 0 else torch.zeros_like(grad_hidden[token])
        assert torch.equal(grad_hidden[token], want), token


def check_multihot(model, inputs, chosen, dense, grad, grad_probs):
    indices, probs = inputs
    want_chosen, want = multihot_by_loop(indices, probs, model.experts)
    assert torch.equal(chosen, want_chosen)
    torch.testing.assert_close(dense.double(), want.to(probs.dtype).double(), rtol=1e-6, atol=0)
    for row, named in enumerate(indices.tolist()):
        for k, expert in enumerate(named):
            local = 0 <= expert < model.experts
            assert grad_probs[row, k] == (grad[row, expert] if local else 0), (row, k)


def check_indices(model, inputs, indices, probs, grad, grad_dense):
    want_indices, want = indices_by_loop(*inputs, model.topk)
    assert torch.equal(indices.long(), want_indices)
    assert torch.equal(probs, want)
    expected = torch.zeros_like(grad_dense)
    for row, named in enumerate(indices.tolist()):
        for k, expert in enumerate(named):
            if expert >= 0:
                expected[row, expert] = grad[row, k]
    assert torch.equal(grad_dense, expected)


@pytest.mark.parametrize(("op", "case"), SMALL_CASES)
def test_reference_equals_the_loop(op, case):
    torch.manual_seed(11)
    model, inputs = model_and_inputs(op, **MODULES[op].CASES[case])
    values = next(x for x in inputs if x.is_floating_point()).requires_grad_()
    outputs = model(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    moved = next(x for x in outputs if x.is_floating_point())
    grad = torch.randn_like(moved)
    moved.backward(grad)
    inputs = [x.detach() for x in inputs]
    if op == "pack_tokens":
        check_pack(inputs, moved.detach(), grad, values.grad)
    elif op == "indices_to_multihot":
        check_multihot(model, inputs, outputs[0], moved.detach(), grad, values.grad)
    else:
        check_indices(model, inputs, outputs[0], moved.detach(), grad, values.grad)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_types_are_kept(dtype, index):
    kept = getattr(torch, dtype)
    model, inputs = model_and_inputs("pack_tokens", tokens=9, hidden=5, dtype=dtype, index=index)
    assert [x.dtype for x in inputs[1:]] == [getattr(torch, index)] * 3
    assert model(*inputs).dtype == kept
    sizes = dict(tokens=9, experts=6, topk=2, dtype=dtype, index=index)
    model, inputs = model_and_inputs("indices_to_multihot", **sizes)
    assert inputs[0].dtype == getattr(torch, index)
    assert [x.dtype for x in model(*inputs)] == [torch.bool, kept]
    model, inputs = model_and_inputs("multihot_to_indices", **sizes)
    assert [x.dtype for x in model(*inputs)] == [getattr(torch, index), kept]


def test_pack_tokens_by_hand():
    hidden = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    expert, slot = torch.tensor([1, 0, -1, 1, 1]), torch.tensor([0, 1, 0, 0, 2])
    out = MODULES["pack_tokens"].Model()(hidden, expert, slot, torch.tensor([0, 2, 4]))
    assert out.flatten().tolist() == [0, 2, 4, 0]  # slot 2 of expert 1 would be beyond its rows


def test_multihot_by_hand():
    indices = torch.tensor([[0, 2, -1], [-5, 1, 1], [3, 99, 0]])
    probs = torch.tensor([[0.5, 0.25, 9.0], [9.0, 0.5, 0.125], [9.0, 9.0, 1.0]])
    chosen, dense = MODULES["indices_to_multihot"].Model(3)(indices, probs)
    assert dense.tolist() == [[0.5, 0, 0.25], [0, 0.625, 0], [1.0, 0, 0]]
    assert torch.equal(chosen, dense > 0)


@pytest.mark.parametrize("experts", [1, 8, 33])
def test_the_two_conversions_are_inverse(experts):
    topk = min(experts, 4)
    indices = torch.rand(50, experts).argsort(1)[:, :topk].sort(1).values
    probs = torch.rand(50, topk)
    multihot = MODULES["indices_to_multihot"].Model(experts)(indices, probs)
    back = MODULES["multihot_to_indices"].Model(topk)(*multihot)
    assert torch.equal(back[0], indices)
    assert torch.equal(back[1], probs)


@pytest.mark.parametrize(("op", "case"), SMALL_CASES)
def test_work_counts_no_more_than_all_tensors_once(op, case):
    model, inputs = model_and_inputs(op, **MODULES[op].CASES[case])
    outputs = model(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    most = sum(x.numel() * x.element_size() for x in (*inputs, *outputs))
    slack = 64 * len(inputs[0])  # a sector may stick out of a short row
    assert 0 <= MODULES[op].work(model, *inputs)["bytes"] <= most + slack
