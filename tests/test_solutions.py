"""The solutions on a GPU: every case of their references, and the situations that broke others.

Memory faults and races: compute-sanitizer --tool memcheck (racecheck, initcheck) \
    python -m pytest tests/test_solutions.py -m gpu -k "case or many"
"""

import functools
import importlib.util
from pathlib import Path

import pytest
import torch
from test_references import MODULES, OPS, model_and_inputs

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parent.parent
DEVICE = "cuda"


@functools.cache
def solution(op: str):
    spec = importlib.util.spec_from_file_location(op, ROOT / "solutions" / f"{op}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def to_device(x: torch.Tensor, device: str = DEVICE) -> torch.Tensor:
    """A copy on the device with the same strides and storage offset."""
    storage = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).to(device)
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


def built(op: str, sizes: dict, seed: int = 3, device: str = DEVICE):
    """Reference model, solution model, CPU inputs, and the same inputs on the device."""
    torch.manual_seed(seed)
    model, inputs = model_and_inputs(op, **sizes)
    arguments = {"indices_to_multihot": ["experts"], "multihot_to_indices": ["topk", "index"]}
    names = arguments.get(op, [])
    new = solution(op).ModelNew(**{name: sizes[name] for name in names if name in sizes})
    return model, new, inputs, [to_device(x, device) for x in inputs]


def poison(outputs) -> None:
    """Leave bytes of 0xa5 where the allocator will put outputs of these sizes."""
    for x in outputs:
        torch.empty(x.numel() * x.element_size(), dtype=torch.uint8, device=DEVICE).fill_(0xA5)


def as_tuple(outputs) -> tuple:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def same(op: str, got, want) -> None:
    for mine, other in zip(as_tuple(got), as_tuple(want), strict=True):
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        assert mine.is_contiguous()
        tolerance = MODULES[op].TOLERANCE["rtol"] if other.is_floating_point() else 0
        torch.testing.assert_close(mine.cpu(), other.cpu(), rtol=tolerance, atol=0)


def all_cases():
    return [pytest.param(op, name, id=f"{op}-{name}") for op in OPS for name in MODULES[op].CASES]


@pytest.mark.parametrize(("op", "case"), all_cases())
def test_case(op, case):
    model, new, inputs, on_gpu = built(op, MODULES[op].CASES[case])
    want = as_tuple(model(*inputs))
    poison(want)
    same(op, new(*on_gpu), want)


@pytest.mark.parametrize(("op", "case"), all_cases())
def test_case_backward(op, case):
    model, new, inputs, on_gpu = built(op, MODULES[op].CASES[case])
    gradients = []
    for run, tensors in ((model, inputs), (new, on_gpu)):
        values = next(x for x in tensors if x.is_floating_point()).requires_grad_()
        outputs = as_tuple(run(*tensors))
        moved = next(x for x in outputs if x.is_floating_point())
        assert all(not x.requires_grad for x in outputs if x is not moved)
        if not gradients:
            grad = torch.randn_like(moved)
        poison([values])
        gradients.append(torch.autograd.grad(moved, values, grad.to(moved.device))[0])
    assert gradients[1].dtype == gradients[0].dtype
    assert torch.equal(gradients[1].cpu(), gradients[0])


PACK_GRID = [
    dict(tokens=tokens, hidden=hidden, experts=experts, capacity=capacity, duplicates=d, offset=o)
    for tokens, hidden, experts in ((1, 1, 1), (33, 3, 2), (1025, 8, 5), (4097, 20, 300))
    for capacity, d, o in ((1.0, 0.0, 0), (1.3, 0.3, 1), (2.0, 0.0, 2))
]
TOPK_AND_EXPERTS = (
    *((1, 1), (2, 4), (4, 7), (6, 12), (7, 20), (8, 31), (8, 64), (9, 9), (10, 72), (16, 160)),
    *((22, 512), (8, 257), (33, 384), (5, 601), (12, 9000)),
)
MULTIHOT_GRID = [
    dict(tokens=tokens, topk=topk, experts=experts, strided=tokens % 2 == 0)
    for tokens in (1, 3, 128, 513)
    for topk, experts in TOPK_AND_EXPERTS
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("op", OPS)
def test_many_sizes(op, dtype, index):
    kinds = dict(dtype=dtype, index=index)
    grids = PACK_GRID if op == "pack_tokens" else MULTIHOT_GRID
    for sizes in grids:
        model, new, inputs, on_gpu = built(op, {**sizes, **kinds})
        want = model(*inputs)
        poison(as_tuple(want))
        same(op, new(*on_gpu), want)


@pytest.mark.parametrize("k", [8, 40])
def test_many_duplicates_add_up_in_slot_order(k):
    torch.manual_seed(5)
    indices, probs = torch.randint(3, (200, k)), torch.randn(200, k)
    want = torch.zeros(200, 3)
    for slot in range(k):
        want[torch.arange(200), indices[:, slot]] += probs[:, slot]
    new = solution("indices_to_multihot").ModelNew(3)
    chosen, dense = new(indices.cuda(), probs.cuda())
    assert torch.equal(dense.cpu(), want)
    assert torch.equal(chosen.cpu(), want != 0)


def test_a_new_row_count_each_call():
    for capacity in (1.0, 1.5, 1.0, 3.0, 1.25, 1.25):
        for tokens in (100, 6000):
            sizes = dict(tokens=tokens, hidden=24, experts=4, capacity=capacity)
            model, new, inputs, on_gpu = built("pack_tokens", sizes)
            same("pack_tokens", new(*on_gpu), model(*inputs))


@pytest.mark.parametrize("tokens", [100, 6000])
def test_known_row_count_and_upper_bound(tokens):
    sizes = dict(tokens=tokens, hidden=24, experts=4, capacity=1.5)
    model, new, inputs, on_gpu = built("pack_tokens", sizes)
    want = model(*inputs)
    for spare in (0, 7):
        poison([torch.cat([want, want])])
        out = new(*on_gpu, num_rows=len(want) + spare)
        assert torch.equal(out[: len(want)].cpu(), want)
        assert out[len(want) :].count_nonzero() == 0
    fewer = new(*on_gpu, num_rows=len(want) - 5)
    assert torch.equal(fewer.cpu(), want[:-5])


@pytest.mark.parametrize("tokens", [300, 7000])
@pytest.mark.parametrize("op", OPS)
def test_captured_call_replays_with_new_contents(op, tokens):
    sizes = dict(tokens=tokens, experts=16)
    if op == "pack_tokens":
        sizes["hidden"] = 60
    model, new, inputs, on_gpu = built(op, sizes)
    extra = {"num_rows": int(inputs[-1][-1])} if op == "pack_tokens" else {}
    new(*on_gpu, **extra)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = new(*on_gpu, **extra)
    for seed in (4, 5):
        torch.manual_seed(seed)
        _, fresh = model_and_inputs(op, **sizes)
        for old, x in zip(on_gpu, fresh, strict=True):
            old.copy_(x)
        for x in as_tuple(outputs):
            x.view(torch.uint8).fill_(1)
        graph.replay()
        torch.cuda.synchronize()
        same(op, outputs, model(*fresh))


def test_capture_without_a_row_count_is_refused():
    _, new, _, on_gpu = built("pack_tokens", dict(tokens=10, hidden=4, experts=2))
    new(*on_gpu)
    refused = []
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        try:
            new(*on_gpu)
        except RuntimeError as error:
            refused.append(str(error))
    assert "give num_rows" in refused[0]


@pytest.mark.parametrize("op", OPS)
def test_runs_on_the_current_stream(op):
    sizes = dict(tokens=6000, experts=16)
    model, new, inputs, on_gpu = built(op, sizes)
    late = [torch.zeros_like(x) for x in on_gpu]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # about 10 ms: on any other stream the op would run before
        for x, value in zip(late, on_gpu, strict=True):
            x.copy_(value)
        got = new(*late)
    stream.synchronize()
    same(op, got, model(*inputs))


@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="needs two GPUs")
@pytest.mark.parametrize("op", OPS)
def test_runs_on_the_inputs_device(op):
    model, new, inputs, on_second = built(op, dict(tokens=6000, experts=16), device="cuda:1")
    values = next(x for x in on_second if x.is_floating_point()).requires_grad_()
    got = as_tuple(new(*on_second))
    same(op, tuple(x.detach() for x in got), model(*inputs))
    moved = next(x for x in got if x.is_floating_point())
    grad = torch.autograd.grad(moved, values, torch.randn_like(moved))[0]
    assert {x.device for x in (*got, grad)} == {torch.device("cuda:1")}
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("op", OPS)
def test_five_runs_are_bit_equal(op):
    sizes = dict(tokens=9000, experts=16)
    if op == "indices_to_multihot":
        sizes.update(duplicates=True, local=1.0)
    if op == "pack_tokens":
        sizes.update(duplicates=0.5)
    _, new, _, on_gpu = built(op, sizes)
    runs = [[x.clone() for x in as_tuple(new(*on_gpu))] for _ in range(5)]
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("op", OPS)
def test_broadcast_gradient_and_no_second_derivative(op):
    sizes = dict(hidden=12) if op == "pack_tokens" else dict(topk=2)
    _, new, _, on_gpu = built(op, dict(tokens=50, experts=4, **sizes))
    values = next(x for x in on_gpu if x.is_floating_point()).requires_grad_()
    moved = next(x for x in as_tuple(new(*on_gpu)) if x.is_floating_point())
    grad = torch.autograd.grad(moved.sum(), values, retain_graph=True)[0]
    assert set(grad.unique().tolist()) <= {0.0, 1.0}
    upper = torch.ones_like(moved).requires_grad_()
    grad = torch.autograd.grad(moved, values, upper, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(grad.sum(), upper)


def test_more_than_two_to_the_31_elements_packed():
    tokens, hidden = 2**18 + 1, 2**13
    x = torch.randint(-(2**15), 2**15, (tokens, hidden), dtype=torch.int16, device=DEVICE)
    x = x.view(torch.float16)
    order = torch.randperm(tokens, device=DEVICE)
    offsets = torch.tensor([0, tokens], device=DEVICE)
    expert = torch.zeros(tokens, dtype=torch.int64, device=DEVICE)
    new = solution("pack_tokens").ModelNew()
    out = new(x, expert, order, offsets)
    for rows in torch.arange(tokens, device=DEVICE).split(2**15):
        assert torch.equal(out[order[rows]].view(torch.int16), x[rows].view(torch.int16))


def test_more_than_two_to_the_31_elements_multihot():
    tokens, experts = 2**23 + 5, 256
    indices = torch.randint(experts, (tokens, 1), device=DEVICE, dtype=torch.int32)
    probs = (torch.rand(tokens, 1, device=DEVICE) + 0.5).half().requires_grad_()
    chosen, dense = solution("indices_to_multihot").ModelNew(experts)(indices, probs)
    assert torch.equal(dense.detach().gather(1, indices.long()), probs)
    assert all(int(part.sum()) == len(part) for part in chosen.split(2**20))
    assert sum(int(part.count_nonzero()) for part in dense.detach().split(2**20)) == tokens
    grad = torch.autograd.grad(dense, probs, dense.detach())[0]
    assert torch.equal(grad, probs)
    back = solution("multihot_to_indices").ModelNew(1, "int32")
    listed, values = back(chosen, dense)
    assert torch.equal(listed, indices)
    assert torch.equal(values, probs)
    del chosen
    grad = torch.autograd.grad(values.sum(), dense)[0]
    assert sum(int(part.count_nonzero()) for part in grad.split(2**20)) == tokens


def test_wrong_inputs_are_refused_in_words():
    _, new, _, (hidden, expert, slot, offsets) = built("pack_tokens", dict(tokens=8, hidden=4))
    for inputs, words in (
        ((hidden.cpu(), expert, slot, offsets), "on a GPU"),
        ((hidden, expert.float(), slot, offsets), "expert_idx must be int32 or int64"),
        ((hidden, expert, slot[:3], offsets), "equally long"),
        ((hidden[:5], expert, slot, offsets), "token_hidden has 5 rows"),
    ):
        with pytest.raises(RuntimeError, match=words):
            new(*inputs)
    _, new, _, (indices, probs) = built("indices_to_multihot", dict(tokens=8))
    with pytest.raises(RuntimeError, match=r"both be \(tokens, k\)"):
        new(indices, probs[:, :3])
    with pytest.raises(RuntimeError, match="must be fp32, fp16 or bf16"):
        new(indices, probs.double())
    _, new, _, (chosen, dense) = built("multihot_to_indices", dict(tokens=8))
    with pytest.raises(RuntimeError, match=r"map \(bool\)"):
        new(chosen.int(), dense)
