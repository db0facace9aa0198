"""The references of the routing ops, against loops that do one entry at a time, in float64."""

import importlib
import inspect

import pytest
import torch

OPS = ("route_tokens", "permute_tokens", "combine_tokens", "align_blocks", "sort_chunks")
MODULES = {op: importlib.import_module(f"reference.{op}") for op in OPS}


def small_cases(*ops):
    return [
        pytest.param(op, name, id=f"{op}-{name}")
        for op in ops
        for name in MODULES[op].CASES
        if name not in MODULES[op].GPU_ONLY
    ]


def model_and_inputs(op: str, **sizes):
    module = MODULES[op]
    takes_sizes = inspect.signature(module.get_init_inputs).parameters
    init = module.get_init_inputs(**sizes) if takes_sizes else module.get_init_inputs()
    torch.manual_seed(11)
    return module.Model(*init), module.get_inputs(**sizes)


def grouped(experts, count):
    """For each expert the entries that name it, in order."""
    groups = [[] for _ in range(count)]
    for entry, expert in enumerate(experts):
        if 0 <= expert < count:
            groups[expert].append(entry)
    return groups


@pytest.mark.parametrize(("op", "case"), small_cases("route_tokens"))
def test_route_tokens_equals_the_loop(op, case):
    model, (indices,) = model_and_inputs(op, **MODULES[op].CASES[case])
    counts, offsets, row_of, entry_of = (x.tolist() for x in model(indices))
    row, want_rows, want_entries = 0, [-1] * indices.numel(), [-1] * len(entry_of)
    for expert, entries in enumerate(grouped(indices.flatten().tolist(), model.experts)):
        assert counts[expert] == len(entries)
        assert offsets[expert] == row
        for rank, entry in enumerate(entries):
            want_rows[entry], want_entries[row + rank] = row + rank, entry
        size = -(-len(entries) // model.alignment) * model.alignment
        row += max(size, model.alignment) if model.pad_empty else size
    assert offsets[model.experts] == row <= len(entry_of)
    assert [r for token in row_of for r in token] == want_rows
    assert entry_of == want_entries


@pytest.mark.parametrize(("op", "case"), small_cases("align_blocks"))
def test_align_blocks_equals_the_loop(op, case):
    model, inputs = model_and_inputs(op, **MODULES[op].CASES[case])
    entries, block_expert, used = (x.tolist() for x in model(*inputs))
    ids = inputs[0].flatten().tolist()
    if len(inputs) > 1:
        expert_map = inputs[1].tolist()
        ids = [expert_map[i] if 0 <= i < len(expert_map) else -1 for i in ids]
    want, want_expert = [], []
    for expert, group in enumerate(grouped(ids, model.experts)):
        blocks = -(-len(group) // model.block)
        want += group + [len(ids)] * (blocks * model.block - len(group))
        want_expert += [expert] * blocks
    assert used == [len(want)]
    assert entries == want + [len(ids)] * (len(entries) - len(want))
    assert block_expert == want_expert + [-1] * (len(block_expert) - len(want_expert))


def routed(op, case):
    """Model, inputs and, with gradients of ones' size, its outputs and input gradients."""
    model, inputs = model_and_inputs(op, **MODULES[op].CASES[case])
    floats = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    outputs = model(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    grads = [torch.randn_like(x) for x in outputs]
    found = torch.autograd.grad(outputs, floats, grads)
    return [x.detach() for x in inputs], [x.detach() for x in outputs], grads, found


def close(got, want, dtype):
    """Within fp32 summation error, then one rounding to the result's type."""
    half = torch.finfo(dtype).eps / 2 if dtype != torch.float32 else 0
    torch.testing.assert_close(got.double(), want, rtol=1e-5 + half, atol=1e-4)


@pytest.mark.parametrize(("op", "case"), small_cases("permute_tokens"))
def test_permute_tokens_equals_the_loop(op, case):
    (x, probs, row_of, entry_of), (out, out_probs), grads, found = routed(op, case)
    assert out.dtype == x.dtype
    assert out_probs.dtype == probs.dtype
    grad_x, grad_probs = torch.zeros(x.shape).double(), torch.zeros(probs.shape)
    named = set()
    for token, rows in enumerate(row_of.tolist()):
        for k, row in enumerate(rows):
            if row < 0:
                continue
            assert entry_of[row] == token * row_of.shape[1] + k
            assert torch.equal(out[row], x[token])
            assert out_probs[row] == probs[token, k]
            grad_x[token] += grads[0][row].double()
            grad_probs[token, k] = grads[1][row]
            named.add(row)
    padding = [row for row in range(len(out)) if row not in named]
    assert (entry_of[padding] == -1).all()
    assert not out[padding].any()
    assert not out_probs[padding].any()
    close(found[0], grad_x, x.dtype)
    assert torch.equal(found[1].float(), grad_probs)


@pytest.mark.parametrize(("op", "case"), small_cases("combine_tokens"))
def test_combine_tokens_equals_the_loop(op, case):
    (y, probs, row_of, entry_of), (out,), (grad,), found = routed(op, case)
    want, grad_y = torch.zeros(out.shape).double(), torch.zeros(y.shape).double()
    grad_probs = torch.zeros(probs.shape).double()
    for token, rows in enumerate(row_of.tolist()):
        for k, row in enumerate(rows):
            if row < 0:
                continue
            assert entry_of[row] == token * row_of.shape[1] + k
            want[token] += probs[token, k].double() * y[row].double()
            grad_y[row] = probs[token, k].double() * grad[token].double()
            grad_probs[token, k] = y[row].double() @ grad[token].double()
    assert out.dtype == y.dtype
    close(out, want, y.dtype)
    close(found[0], grad_y, y.dtype)
    close(found[1], grad_probs, probs.dtype)


@pytest.mark.parametrize(("op", "case"), small_cases("sort_chunks"))
def test_sort_chunks_equals_the_loop(op, case):
    (x, sizes, order), (out,), (grad,), (grad_x,) = routed(op, case)
    parts = x[: int(sizes.sum())].split(sizes.tolist()) if len(sizes) else ()
    want = [parts[i] for i in order.tolist()] + [x[int(sizes.sum()) :]]
    assert torch.equal(out, torch.cat(want))
    back = MODULES[op].Model()(grad, sizes[order.long()], order.long().argsort())
    assert torch.equal(grad_x, back)


def test_route_tokens_by_hand():
    indices = torch.tensor([[2, 0], [2, -1], [7, 2]])
    found = MODULES["route_tokens"].Model(experts=3, alignment=2, pad_empty=True)(indices)
    counts, offsets, row_of, entry_of = (x.tolist() for x in found)
    assert counts == [1, 0, 3]
    assert offsets == [0, 2, 4, 8]
    assert row_of == [[4, 0], [5, -1], [-1, 6]]
    assert entry_of == [1, -1, -1, -1, 0, 2, 5, -1, -1, -1, -1, -1]


def test_a_dropped_entry_adds_nothing_beside_nan():
    nan = float("nan")
    y = torch.tensor([[nan, nan], [1.0, 2.0]])
    probs, row_of = torch.tensor([[nan, 0.5], [nan, nan]]), torch.tensor([[-1, 1], [-1, -1]])
    out = MODULES["combine_tokens"].Model()(y, probs, row_of.int(), torch.tensor([-1, 1]).int())
    assert out.tolist() == [[0.5, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize(("op", "case"), small_cases(*OPS))
def test_work_counts_no_more_than_all_tensors_once(op, case):
    model, inputs = model_and_inputs(op, **MODULES[op].CASES[case])
    outputs = model(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    most = sum(x.numel() * x.element_size() for x in (*inputs, *outputs))
    assert 0 <= MODULES[op].work(model, *inputs)["bytes"] <= most
