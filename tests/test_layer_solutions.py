"""The solutions around the routing on a GPU, and the whole layer: every case, capture, streams,
repeatability, words.

Memory faults and races: compute-sanitizer --tool memcheck (racecheck, initcheck) \
    python -m pytest tests/test_layer_solutions.py -m gpu -k "case or captured"
"""

import functools
from dataclasses import replace
from unittest import mock

import pytest
import torch
from test_routing_solutions import as_tuple, poison, solution

from harness import check, plan, problem, wire
from harness.records import Case

pytestmark = pytest.mark.gpu
OPS = (
    "topk_router",
    "weighted_swiglu",
    "receive_tokens",
    "load_balance_loss",
    "pad_routing_map",
    "moe_layer",
)


@functools.cache
def reference(op: str) -> problem.Reference:
    return problem.load(plan.ROOT / "reference" / f"{op}.py")


def names(op: str) -> dict[str, dict]:
    return {case.name: case.sizes for case in reference(op).cases}


TRAINED = [op for op in OPS if reference(op).gradients]


def on_device(values: list) -> list:
    """Copies on the device with the same strides and storage offsets."""
    packed = wire.pack(values, torch.device("cuda"))
    return wire.unpack(packed.tree, [image.untyped_storage() for image in packed.storages])


def built(op: str, sizes: dict, seed: int = 11) -> tuple:
    """Reference and solution models, and inputs on the device."""
    found, case = reference(op), Case("test", sizes)
    torch.manual_seed(seed)
    init, inputs = found.init_inputs(case), found.inputs(case)
    return found.Model(*init).cuda(), solution(op).ModelNew(*init), on_device(inputs)


def same(op: str, got, want) -> None:
    """Within the reference's tolerance and a whole rounding to a narrow type."""
    for mine, other in zip(as_tuple(got), as_tuple(want), strict=True):
        if other is None:
            assert mine is None
            continue
        assert mine.dtype == other.dtype
        assert mine.is_contiguous()
        expected = check.Expected(other)
        tolerance = check.tolerance_for(expected, reference(op).tolerance)
        if other.dtype in (torch.float16, torch.bfloat16) and tolerance.rtol:
            tolerance = replace(tolerance, rtol=tolerance.rtol + torch.finfo(other.dtype).eps / 2)
        found = check.compare(mine, expected, tolerance, op)
        assert found.ok, found.message


def all_cases(ops):
    return [pytest.param(op, name, id=f"{op}-{name}") for op in ops for name in names(op)]


@pytest.mark.parametrize(("op", "case"), all_cases(OPS))
def test_case(op, case):
    model, new, inputs = built(op, names(op)[case])
    with torch.no_grad():
        want = as_tuple(model(*inputs))
        poison(want)
        same(op, new(*inputs), want)


def differentiated(model, inputs: list, grads=None) -> tuple:
    """Gradients of the floating inputs, and the outputs' gradients that were used."""
    floats = [x.requires_grad_() for x in wire.tensors_of(inputs) if x.is_floating_point()]
    outputs = [x for x in as_tuple(model(*inputs)) if x.requires_grad]
    grads = grads or [torch.randn_like(x) for x in outputs]
    return torch.autograd.grad(outputs, floats, grads, allow_unused=True), grads


@pytest.mark.parametrize(("op", "case"), all_cases(TRAINED))
def test_case_backward(op, case):
    model, new, inputs = built(op, names(op)[case])
    want, grads = differentiated(model, inputs)
    poison(x for x in want if x is not None)
    same(op, differentiated(new, inputs, grads)[0], want)


SIZES = {
    "topk_router": dict(tokens=3000),
    "weighted_swiglu": dict(rows=700, width=520),
    "receive_tokens": dict(tokens=3000, hidden=520, experts=16),
    "load_balance_loss": dict(tokens=3000, experts=64),
    "pad_routing_map": dict(tokens=5000, experts=64),
    "moe_layer": dict(tokens=400, hidden=512, width=256, experts=16, local=0.9),
}


@pytest.mark.parametrize("op", OPS)
def test_captured_call_replays_with_new_contents(op):
    model, new, inputs = built(op, SIZES[op])
    new(*inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = as_tuple(new(*inputs))
    for seed in (4, 5):
        fresh = built(op, SIZES[op], seed)[2]
        for old, x in zip(wire.tensors_of(inputs), wire.tensors_of(fresh), strict=True):
            old.copy_(x)
        for x in outputs:
            x.view(torch.uint8).fill_(1) if x.dim() else x.fill_(1)
        graph.replay()
        torch.cuda.synchronize()
        same(op, outputs, model(*inputs))


@pytest.mark.parametrize("op", OPS)
def test_runs_on_the_current_stream(op):
    model, new, inputs = built(op, SIZES[op])
    want = model(*inputs)
    late = [torch.zeros_like(x) if isinstance(x, torch.Tensor) else x for x in inputs]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # about 10 ms: on any other stream the op would run before
        for x, value in zip(wire.tensors_of(late), wire.tensors_of(inputs), strict=True):
            x.copy_(value)
        got = new(*late)
    stream.synchronize()
    same(op, got, want)


def test_the_layer_does_not_wait_for_the_device():
    _, new, inputs = built("moe_layer", SIZES["moe_layer"])
    _, grads = differentiated(new, inputs)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        differentiated(new, inputs, grads)
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.mark.parametrize("op", OPS)
def test_five_runs_are_bit_equal(op):
    _, new, inputs = built(op, SIZES[op])
    runs = [[x.clone() for x in as_tuple(new(*inputs))] for _ in range(5)]
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            assert torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))


PRODUCTS = {  # what changes: grouped products of a forward, and of a backward
    "nothing": (dict(), 2, 4),
    "fp32": (dict(dtype="float32"), 0, 0),
    "the weights are not aligned": (dict(offset=1), 0, 2),
    "a row of a is no 16 bytes": (dict(width=20), 1, 2),
    "a row of h is no 16 bytes": (dict(width=18), 1, 0),
    "a row of y is no 16 bytes": (dict(hidden=36), 1, 0),
}


@pytest.mark.parametrize("change", PRODUCTS)
def test_the_layer_uses_grouped_products_where_they_serve(change):
    sizes, forward, backward = PRODUCTS[change]
    model, new, inputs = built("moe_layer", {**SIZES["moe_layer"], **sizes})
    want, grads = differentiated(model, inputs)
    with mock.patch.object(torch, "_grouped_mm", wraps=torch._grouped_mm) as grouped:
        with torch.no_grad():
            same("moe_layer", new(*inputs), model(*inputs))
        assert grouped.call_count == forward
        same("moe_layer", differentiated(new, inputs, grads)[0], want)
        assert grouped.call_count == 2 * forward + backward


def test_the_layer_leaves_out_gradients_that_nobody_wants():
    _, new, (x, probs, indices, gate_up, down) = built("moe_layer", SIZES["moe_layer"])
    everything, grads = differentiated(new, [x, probs, indices, gate_up, down])
    for i, wanted in enumerate((x, probs, gate_up, down)):
        leaves = [t.detach().clone() for t in (x, probs, gate_up, down)]
        leaves[i].requires_grad_()
        out = new(*leaves[:2], indices, *leaves[2:])
        (grad,) = torch.autograd.grad(out, leaves[i], grads[0])
        assert grad.shape == wanted.shape
        assert torch.equal(grad, everything[i])


def refusals(op: str) -> list[tuple[list, str]]:
    """Inputs that the op must refuse, and words of the sentence."""
    _, _, inputs = built(op, SIZES[op])
    first, *rest = inputs
    if op == "topk_router":
        return [([first.double(), *rest], "fp32, fp16 or bf16"), ([first, rest[0][:3]], "bias")]
    if op == "weighted_swiglu":
        return [([first[:5], *rest], "weight must be"), ([first[:, :7], *rest], "2 \\* width")]
    if op == "receive_tokens":
        ids, probs, rows = rest
        return [
            ([first[:5], *rest], "as many rows"),
            ([first, ids.float(), probs, rows], "int32 or int64"),
            ([first, ids, probs, -1], "num_rows"),
        ]
    if op == "load_balance_loss":
        return [([first, rest[0][:3], *rest[1:]], "counts must be")]
    if op == "pad_routing_map":
        return [([first.int()], "bool")]
    probs, indices, gate_up, down = rest
    return [
        ([first[:5], *rest], "as many tokens"),
        ([first[:, :8], *rest], "experts, hidden, width"),
        ([first, probs, indices, gate_up, down.float()], "one type"),
        ([first, probs.half(), indices, gate_up, down], "fp32"),
        ([first, probs, indices.float(), gate_up, down], "int32 or int64"),
        ([first, probs[:, :3], indices, gate_up, down], "both be"),
    ]


@pytest.mark.parametrize("op", OPS)
def test_wrong_inputs_are_refused_in_words(op):
    _, new, _ = built(op, SIZES[op])
    for inputs, words in refusals(op):
        with pytest.raises(RuntimeError, match=words):
            new(*inputs)
