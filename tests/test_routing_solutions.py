"""The routing solutions on a GPU: every case, capture, streams, determinism, large tensors, words.

Memory faults and races: compute-sanitizer --tool memcheck (racecheck, initcheck) \
    python -m pytest tests/test_routing_solutions.py -m gpu -k "case or captured"
"""

import functools
import importlib.util
import inspect
from pathlib import Path

import pytest
import torch
from test_routing_references import MODULES, OPS, model_and_inputs

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parent.parent
TRAINED = [op for op in OPS if getattr(MODULES[op], "GRADIENTS", False)]


@functools.cache
def solution(op: str):
    spec = importlib.util.spec_from_file_location(op, ROOT / "solutions" / f"{op}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def to_device(x: torch.Tensor) -> torch.Tensor:
    """A copy on the device with the same strides and storage offset."""
    storage = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).to("cuda")
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


def as_tuple(outputs) -> tuple:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def built(op: str, **sizes):
    """Reference and solution models, and inputs on the device."""
    model, inputs = model_and_inputs(op, **sizes)
    names = [n for n in inspect.signature(type(model).__init__).parameters if hasattr(model, n)]
    new = solution(op).ModelNew(**{name: getattr(model, name) for name in names})
    return model.cuda(), new, [to_device(x) for x in inputs]


def poison(outputs) -> None:
    """Leave bytes of 0xa5 where the allocator will put outputs of these sizes."""
    for x in outputs:
        torch.empty(x.numel() * x.element_size(), dtype=torch.uint8, device="cuda").fill_(0xA5)


def same(op: str, got, want) -> None:
    limits = MODULES[op].TOLERANCE
    for mine, other in zip(as_tuple(got), as_tuple(want), strict=True):
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        assert mine.is_contiguous()
        rtol = limits["rtol"] if other.is_floating_point() else 0
        if rtol and other.dtype != torch.float32:
            rtol += torch.finfo(other.dtype).eps
        atol = limits["atol"] if other.is_floating_point() else 0
        torch.testing.assert_close(mine, other, rtol=rtol, atol=atol)


def all_cases(ops):
    return [pytest.param(op, name, id=f"{op}-{name}") for op in ops for name in MODULES[op].CASES]


@pytest.mark.parametrize(("op", "case"), all_cases(OPS))
def test_case(op, case):
    model, new, inputs = built(op, **MODULES[op].CASES[case])
    want = as_tuple(model(*inputs))
    poison(want)
    same(op, new(*inputs), want)


@pytest.mark.parametrize(("op", "case"), all_cases(TRAINED))
def test_case_backward(op, case):
    model, new, inputs = built(op, **MODULES[op].CASES[case])
    floats = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    want = as_tuple(model(*inputs))
    grads = [torch.randn_like(x) for x in want]
    expected = torch.autograd.grad(want, floats, grads)
    poison(expected)
    same(op, torch.autograd.grad(as_tuple(new(*inputs)), floats, grads), expected)


SIZES = {
    "route_tokens": dict(tokens=6000, experts=48, alignment=16, local=0.9),
    "align_blocks": dict(tokens=6000, experts=48, local=0.9),
    "permute_tokens": dict(tokens=500, hidden=520, experts=16),
    "combine_tokens": dict(tokens=500, hidden=520, experts=16),
    "sort_chunks": dict(rows=3000, hidden=520),
}


@pytest.mark.parametrize("op", OPS)
def test_captured_call_replays_with_new_contents(op):
    model, new, inputs = built(op, **SIZES[op])
    new(*inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = as_tuple(new(*inputs))
    for seed in (4, 5):
        torch.manual_seed(seed)
        for old, x in zip(inputs, MODULES[op].get_inputs(**SIZES[op]), strict=True):
            old.copy_(x)
        for x in outputs:
            x.view(torch.uint8).fill_(1)
        graph.replay()
        torch.cuda.synchronize()
        same(op, outputs, model(*inputs))


@pytest.mark.parametrize("op", OPS)
def test_runs_on_the_current_stream(op):
    model, new, inputs = built(op, **SIZES[op])
    late = [torch.zeros_like(x) for x in inputs]
    want = model(*inputs)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # about 10 ms: on any other stream the op would run before
        for x, value in zip(late, inputs, strict=True):
            x.copy_(value)
        got = new(*late)
    stream.synchronize()
    same(op, got, want)


@pytest.mark.parametrize("op", OPS)
def test_five_runs_are_bit_equal(op):
    _, new, inputs = built(op, **SIZES[op])
    runs = [[x.clone() for x in as_tuple(new(*inputs))] for _ in range(5)]
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def test_a_token_does_not_depend_on_the_others():
    _, new, (y, probs, row_of, entry_of) = built("combine_tokens", **SIZES["combine_tokens"])
    whole = new(y, probs, row_of, entry_of)
    for few in (1, 7, 130):
        assert torch.equal(new(y, probs[:few], row_of[:few], entry_of), whole[:few])


def test_more_than_two_to_the_31_elements():
    tokens, k, hidden = 38_000, 8, 7168  # 2.18e9 elements of the permuted tokens
    indices = torch.rand(tokens, 64, device="cuda").argsort(1)[:, :k]
    _, _, row_of, entry_of = solution("route_tokens").ModelNew(64)(indices)
    x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16).requires_grad_()
    probs = torch.full((tokens, k), 0.125, device="cuda")
    out, out_probs = solution("permute_tokens").ModelNew()(x, probs, row_of, entry_of)
    for rows in torch.arange(len(entry_of), device="cuda").split(2**14):
        assert torch.equal(out[rows], x[entry_of[rows].long() // k])
    assert (out_probs == 0.125).all()
    back = solution("combine_tokens").ModelNew()(out, probs, row_of, entry_of)
    assert torch.equal(back, x)
    (grad,) = torch.autograd.grad(back, x, x.detach())
    assert torch.equal(grad, x)


def test_a_tensor_in_host_memory_is_refused_in_words():
    ids = torch.zeros(4, 2, dtype=torch.int64)
    for op in ("route_tokens", "align_blocks"):
        with pytest.raises(RuntimeError, match="on a GPU"):
            solution(op).ModelNew(8)(ids)


def test_wrong_inputs_are_refused_in_words():
    ids = torch.zeros(4, 2, dtype=torch.int64, device="cuda")
    route = solution("route_tokens").ModelNew
    for model, indices, words in (
        (route(8), ids.float(), "int32 or int64"),
        (route(5000), ids, "experts must be 1 to 4096"),
        (route(8, 0), ids, "alignment must be"),
    ):
        with pytest.raises(RuntimeError, match=words):
            model(indices)
    _, new, (x, probs, row_of, entry_of) = built("permute_tokens", **SIZES["permute_tokens"])
    for inputs, words in (
        ((x, probs[:, :3], row_of, entry_of), r"both be \(tokens, k\)"),
        ((x, probs.double(), row_of, entry_of), "fp32, fp16 or bf16"),
        ((x[:5], probs, row_of, entry_of), "as many tokens"),
        ((x, probs, row_of, entry_of.long()), "entry_of must be int32"),
    ):
        with pytest.raises(RuntimeError, match=words):
            new(*inputs)
