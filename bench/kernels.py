"""The table of docs/measurements.md: solutions beside the seeds' kernels, PyTorch and a copy.

    python bench/kernels.py [--json FILE] [--quick]

Needs a GPU. For each case: checks first (fresh inputs, poisoned outputs), then
- device: one call captured in a CUDA graph, cold L2 (512 MB written before each replay), median of
  replays by events, less the events' own cost (an empty kernel's replay less an empty kernel);
- call: one whole call from an idle GPU to a finished result, by the host's clock, cold L2;
- host: time of a call on the host when nothing waits for the GPU.
Floor: bytes of the reference's work() over the bandwidth of a copy of 512 MiB in this run.
"""

import argparse
import importlib
import json
import statistics
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PACK = {
    "2048x128": dict(),
    "8192x2048": dict(tokens=8192, hidden=2048),
    "16384x4096": dict(tokens=16384, hidden=4096),
    "16384x4096 bf16": dict(tokens=16384, hidden=4096, dtype="bfloat16"),
    "16384x4096 bf16, 64 experts, skewed, 1/5 unfilled": dict(
        tokens=16384, hidden=4096, experts=64, skew=0.5, capacity=1.25, dtype="bfloat16"
    ),
    "32768x7168": dict(tokens=32768, hidden=7168),
    "32768x7168 bf16": dict(tokens=32768, hidden=7168, dtype="bfloat16"),
    "32768x7168 bf16, 256 experts": dict(
        tokens=32768, hidden=7168, experts=256, dtype="bfloat16", skew=0.5
    ),
}
MULTIHOT = {
    "4096 tokens, 8 experts": dict(tokens=4096, experts=8, topk=2, local=1.0),
    "16384, k 8, 64 experts": dict(tokens=16384, experts=64, local=1.0),
    "65536, k 8, 4 experts": dict(experts=4, topk=4, local=1.0),
    "65536, k 8, 32 experts": dict(local=1.0),
    "65536, k 7, 30 experts": dict(experts=30, topk=7, local=1.0),
    "65536, k 8, 256 experts": dict(experts=256, local=1.0),
    "65536, k 8, 256 experts, bf16/int32": dict(
        experts=256, local=1.0, dtype="bfloat16", index="int32"
    ),
    "65536, k 10, 512 experts, bf16": dict(experts=512, topk=10, local=1.0, dtype="bfloat16"),
    "262144, k 8, 64 experts, bf16": dict(tokens=262144, experts=64, local=1.0, dtype="bfloat16"),
}
LISTS = {
    "4096 tokens, 8 experts": dict(tokens=4096, experts=8, topk=2, chosen=2),
    "16384, k 8, 64 experts": dict(tokens=16384, experts=64, chosen=8),
    "65536, k 8, 32 experts": dict(chosen=8),
    "65536, k 7, 30 experts": dict(experts=30, topk=7, chosen=7),
    "65536, k 8, 256 experts": dict(experts=256, chosen=8),
    "65536, k 8, 256 experts, bf16": dict(experts=256, chosen=8, dtype="bfloat16"),
}
CASES = {"pack_tokens": PACK, "indices_to_multihot": MULTIHOT, "multihot_to_indices": LISTS}
INIT = {"indices_to_multihot": ("experts",), "multihot_to_indices": ("topk", "index")}


class Clock:
    """Cold-L2 times in microseconds on the current GPU."""

    def __init__(self, samples: int):
        self.samples = samples
        self.flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
        self.stream = torch.cuda.Stream()
        one = torch.zeros(1, device="cuda")
        self.offset = 0.0
        for _ in range(300):  # the clocks rise from idle
            self.flush.zero_()
        tiny = self.replayed(self.captured(lambda: one.zero_()))
        many = self.captured(lambda: [one.zero_() for _ in range(200)])
        self.tiny = self.replayed(many) / 200
        self.offset = tiny - self.tiny

    def captured(self, call) -> torch.cuda.CUDAGraph:
        with torch.cuda.stream(self.stream):
            call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                call()
        return graph

    def replayed(self, graph: torch.cuda.CUDAGraph) -> float:
        times = []
        for _ in range(self.samples + 2):
            self.flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(30_000)  # so that the replay's launch is not in the time
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) * 1e3)
        return statistics.median(times[2:]) - self.offset

    def device(self, call) -> float:
        return self.replayed(self.captured(call))

    def device_by_events(self, call) -> float:
        """For calls that cannot be captured: all of it, from an idle GPU."""
        times = []
        for _ in range(self.samples + 2):
            self.flush.zero_()
            torch.cuda.synchronize()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) * 1e3)
        return statistics.median(times[2:])

    def call(self, call) -> float:
        times = []
        for _ in range(self.samples + 2):
            self.flush.zero_()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) * 1e6)
        return statistics.median(times[2:])

    def host(self, call, calls: int = 300) -> float:
        best = []
        for _ in range(7):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            best.append((time.perf_counter() - begin) * 1e6 / calls)
        torch.cuda.synchronize()
        return statistics.median(best)


def moved_value(outputs) -> torch.Tensor:
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return next(x for x in outputs if x.is_floating_point())


def check(op: str, model, new, inputs, extra: dict) -> str:
    """ "right", or what is wrong: values against the reference, gradients too."""
    inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    values = next(x for x in inputs if x.is_floating_point())
    want, got = model(*inputs), new(*inputs, **extra)
    want, got = (x if isinstance(x, tuple) else (x,) for x in (want, got))
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-6, atol=0)
    grad = torch.randn_like(moved_value(want))
    grads = [torch.autograd.grad(moved_value(x), values, grad)[0] for x in (want, got)]
    assert torch.equal(*grads), f"{op}: gradients differ"


def backward_call(clock: Clock, module, inputs, extra: dict):
    """A call of the backward alone, through autograd, on one kept graph.

    Autograd runs it on the stream of its forward, so that must be the one that captures.
    """
    inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    values = next(x for x in inputs if x.is_floating_point())
    torch.cuda.synchronize()
    with torch.cuda.stream(clock.stream):
        moved = moved_value(module(*inputs, **extra))
        grad = torch.randn_like(moved)
    torch.cuda.synchronize()
    return lambda: torch.autograd.grad(moved, values, grad, retain_graph=True)


def seed_module(op: str, model, inputs):
    """The seed's ModelNew, or None where there is none for these types."""
    if op == "multihot_to_indices":
        return None
    if op == "pack_tokens" and (inputs[0].dtype, inputs[1].dtype) != (torch.float32, torch.int32):
        return None
    arguments = [model.experts] if op == "indices_to_multihot" else []
    return importlib.import_module(f"bench.seeds.{op}").ModelNew(*arguments)


def measure(clock: Clock, op: str, name: str, sizes: dict, bandwidth: float) -> dict:
    reference = importlib.import_module(f"reference.{op}")
    torch.manual_seed(1)
    arguments = {k: sizes[k] for k in INIT.get(op, ()) if k in sizes}
    model = reference.Model(**arguments)
    new = importlib.import_module(f"solutions.{op}").ModelNew(**arguments)
    on_cpu = reference.get_inputs(**sizes)
    work = reference.work(model, *on_cpu)["bytes"]
    back = reference.work_backward(model, *on_cpu)["bytes"]
    inputs = [x.cuda() for x in on_cpu]
    extra = {"num_rows": int(on_cpu[-1][-1])} if op == "pack_tokens" else {}
    check(op, model, new, inputs, extra)
    row = dict(op=op, case=name, bytes=work, floor=work / bandwidth)
    row["copy"] = copied(clock, work)
    row["device"] = clock.device(lambda: new(*inputs, **extra))
    row["call"] = clock.call(lambda: new(*inputs))
    row["host"] = clock.host(lambda: new(*inputs, **extra))
    row["bwd floor"] = back / bandwidth
    backward = backward_call(clock, new, inputs, extra)
    row["bwd device"] = clock.device(backward)
    row["bwd host"] = clock.host(backward)
    row["eager"] = clock.device_by_events(lambda: model(*inputs))
    row["eager call"] = clock.call(lambda: model(*inputs))
    seed = seed_module(op, model, inputs)
    if seed is not None:
        if op != "pack_tokens":  # it waits for the row count and cannot be captured
            row["seed device"] = clock.device(lambda: seed(*inputs))
        row["seed events"] = clock.device_by_events(lambda: seed(*inputs))
        row["seed call"] = clock.call(lambda: seed(*inputs))
        row["seed host"] = clock.host(lambda: seed(*inputs), 100)
    if seed is not None and op == "indices_to_multihot":
        backward = backward_call(clock, seed, inputs, {})
        row["seed bwd device"] = clock.device(backward)
        row["seed bwd host"] = clock.host(backward, 100)
    return row


def add_compiled(clock: Clock, row: dict, sizes: dict) -> None:
    reference = importlib.import_module(f"reference.{row['op']}")
    arguments = {k: sizes[k] for k in INIT.get(row["op"], ()) if k in sizes}
    torch.manual_seed(1)
    inputs = [x.cuda() for x in reference.get_inputs(**sizes)]
    torch._dynamo.reset()
    compiled = torch.compile(reference.Model(**arguments), dynamic=False)
    with torch.no_grad():
        compiled(*inputs)
        row["compile"] = clock.device_by_events(lambda: compiled(*inputs))


def copied(clock: Clock, moved: int) -> float:
    """Time to read and write `moved` bytes in all, by a kernel.

    copy_ becomes a copy node of the graph, which was seen to take 1.5 times as long.
    """
    source = torch.randint(2**31, (max(moved // 8, 1),), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    return clock.device(lambda: torch.bitwise_not(source, out=target))


COLUMNS = (
    ("floor", "floor"),
    ("copy", "copy"),
    ("device", "ours"),
    ("seed device", "seed"),
    ("seed events", "seed ev"),
    ("eager", "eager"),
    ("compile", "compile"),
    ("call", "call"),
    ("seed call", "s.call"),
    ("host", "host"),
    ("bwd floor", "b.floor"),
    ("bwd device", "bwd"),
    ("seed bwd device", "s.bwd"),
    ("bwd host", "b.host"),
    ("seed bwd host", "s.bhost"),
)


def show(rows: list[dict]) -> None:
    print(f"{'us':52s}" + "".join(f"{short:>8s}" for _, short in COLUMNS) + "   /copy /floor")
    for row in rows:
        cells = (row.get(key) for key, _ in COLUMNS)
        text = "".join(f"{x:8.2f}" if x is not None else f"{'-':>8s}" for x in cells)
        ratios = f"  {row['device'] / row['copy']:6.3f} {row['device'] / row['floor']:6.2f}"
        print(f"{row['op'][:14]:15s}{row['case'][:36]:37s}{text}{ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="no torch.compile, fewer samples")
    parser.add_argument("--op", choices=CASES)
    options = parser.parse_args()
    clock = Clock(9 if options.quick else 25)
    bandwidth = (1 << 30) / copied(clock, 1 << 30)
    print(f"copy {bandwidth / 1e6:.3f} TB/s, empty kernel {clock.tiny:.2f} us", flush=True)
    rows = []
    for op, cases in CASES.items():
        if options.op not in (None, op):
            continue
        for name, sizes in cases.items():
            row = measure(clock, op, name, sizes, bandwidth)
            if not options.quick and ("32 experts" in name or "256 experts" in name):
                add_compiled(clock, row, sizes)
            rows.append({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})
            torch.cuda.empty_cache()
    show(rows)
    if options.json:
        properties = torch.cuda.get_device_properties(0)
        facts = dict(gpu=properties.name, torch=torch.__version__, date=time.strftime("%Y-%m-%d"))
        facts.update(copy_tb_per_s=bandwidth / 1e6, empty_kernel_us=clock.tiny)
        options.json.write_text(json.dumps(dict(facts=facts, rows=rows), indent=1) + "\n")


if __name__ == "__main__":
    main()
