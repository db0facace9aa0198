"""The experiments of docs/methodology.md: prints its tables, and writes them as JSON.

Needs a CUDA device. python bench/methodology.py [--json FILE] [--no-ncu] [experiment ...]
"""

import argparse
import csv
import ctypes
import io
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import other_clocks
from harness import device, roofline, timing
from harness.clock import ACTIVITY_RECORDS, Clock
from harness.records import Failed

MB = 1 << 20
SPINS_US = (0, 2, 5, 10, 50, 200, 1000, 10_000, 100_000)
SIZES_MB = (1, 8, 40, 160, 640, 2560)  # bytes read plus written
NCU_RUNS = 5
TABLES = {}


def table(title, header, rows):
    """Print a Markdown table and keep it for the JSON file."""
    TABLES[title] = [dict(zip(header, row, strict=True)) for row in rows]
    print(f"\n### {title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print("| " + " | ".join(_cell(c) for c in row) + " |", flush=True)


def _cell(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}" if value < 1000 else f"{value:.0f}"
    return str(value)


class Local:
    """A contestant in this process, without judge: the same call again and again."""

    def __init__(self, who, clock, fn):
        self.who, self._clock, self._fn = who, clock, fn
        self._replay = None

    def sample_call(self):
        return self._clock.sample_call(self._fn)

    def sample_device(self, method):
        if method == ACTIVITY_RECORDS:
            return self._clock.sample_activity(self._fn)
        if self._replay is None:
            self._replay = self._clock.capture(self._fn)
        if isinstance(self._replay, str):
            return self._replay
        return self._clock.sample_replay(self._replay)


def spin(cycles):
    return lambda: torch.cuda._sleep(cycles)


def add_one(moved):
    """y = x + 1 over float32, `moved` bytes read plus written, one kernel."""
    x = torch.rand(moved // 8, device="cuda")
    y = torch.empty_like(x)
    return lambda: torch.add(x, 1, out=y)


def graph_us(clock, fn, count=11):
    replay = clock.capture(fn)
    if isinstance(replay, str):
        return replay
    return median(t for t in (clock.sample_replay(replay) for _ in range(count)) if t is not None)


def activity_us(clock, fn, count=11):
    times = [clock.sample_activity(fn) for _ in range(count)]
    return times[0] if isinstance(times[0], str) else median(times)


def call_us(clock, fn, count=11):
    for _ in range(2):
        clock.sample_call(fn)
    return median(clock.sample_call(fn).call_us for _ in range(count))


def cycles_per_us(clock):
    return 2e7 / graph_us(clock, spin(20_000_000), 5)


def ncu_items(rate):
    """What is run under Nsight Compute, in order: name and a call of exactly one kernel."""
    for us in SPINS_US[:-2]:
        yield f"spin {us}", lambda us=us: spin(int(us * rate))
    for size in SIZES_MB:
        yield f"add {size}", lambda size=size: add_one(size * MB)


def under_ncu(rate):
    """The child that ncu watches."""
    runtime = torch.cuda.cudart()
    torch.cuda._sleep(100_000_000)
    for _, make in ncu_items(rate):
        fn = make()
        fn()
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        for _ in range(NCU_RUNS):
            fn()
        torch.cuda.synchronize()
        runtime.cudaProfilerStop()


def ncu_times(rate):
    """Median gpu__time_duration of each item in µs, {} without ncu."""
    if shutil.which("ncu") is None:
        return {}
    command = ["ncu", "--csv", "--clock-control", "none", "--cache-control", "all",
               "--profile-from-start", "off", "--print-units", "base",
               "--metrics", "gpu__time_duration.sum",
               sys.executable, __file__, "--under-ncu", str(rate)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    values = [
        float(row["Metric Value"].replace(",", "")) / 1e3
        for row in csv.DictReader(io.StringIO("\n".join(lines)))
        if row["Metric Name"] == "gpu__time_duration.sum"
    ]
    names = [name for name, _ in ncu_items(rate)]
    if len(values) != NCU_RUNS * len(names):
        print(f"ncu gave {len(values)} values for {len(names)} items", done.stderr[-800:])
        return {}
    groups = (values[i : i + NCU_RUNS] for i in range(0, len(values), NCU_RUNS))
    return {name: median(group) for name, group in zip(names, groups, strict=True)}


def overheads(clock, context):
    found = clock.launch_overhead(51)
    rows = [
        ("whole call of an empty kernel", found.call_us),
        ("of it until the launch returned", found.host_us),
        ("device-wide wait on an idle device", clock._idle_us),
        ("two neighbouring events (subtracted)", found.events_us),
        ("graph replay of an empty kernel, net", found.replay_us),
        ("ncu, empty kernel", context["ncu"].get("spin 0")),
        ("KernelBench's events, empty kernel", other_clocks.kernelbench(spin(0))),
        ("do_bench, empty kernel", other_clocks.do_bench(spin(0))),
    ]
    table("What an empty launch costs", ("what", "µs"), rows)


def spins(clock, context):
    rows = []
    for us in SPINS_US:
        fn = spin(int(us * context["rate"]))
        count = 3 if us > 5000 else 15
        rows.append(
            (
                us,
                graph_us(clock, fn, count),
                context["ncu"].get(f"spin {us}"),
                call_us(clock, fn, count),
                other_clocks.kernelbench(fn, count),
                other_clocks.do_bench(fn),
            )
        )
    header = ("spin µs", "graph replay", "ncu", "whole call", "KernelBench", "do_bench")
    table("A spin of known length", header, rows)


def traffic(clock, context):
    rows = []
    for size in SIZES_MB:
        fn = add_one(size * MB)
        graph = graph_us(clock, fn, 21)
        ncu = context["ncu"].get(f"add {size}")
        rows.append(
            (
                size,
                graph,
                ncu,
                f"{graph / ncu - 1:+.1%}" if ncu else None,
                f"{size * MB / graph / 1e3:.0f}",
                call_us(clock, fn),
                other_clocks.kernelbench(fn),
                other_clocks.do_bench(fn),
                other_clocks.nvbench(clock, fn),
                other_clocks.hot_loop(fn),
            )
        )
    header = ("MB moved", "graph replay", "ncu", "graph/ncu", "GB/s", "whole call",
              "KernelBench", "do_bench", "nvbench-like", "hot loop")  # fmt: skip
    table("y = x + 1, known traffic (µs)", header, rows)


def flushes(clock, context):
    """What the choice of the flush does to a read, a write and a copy of 24 MB."""
    gpu, l2 = clock._gpu, torch.cuda.get_device_properties(0).L2_cache_size
    x = torch.ones(6 * MB, dtype=torch.int32, device="cuda")
    y, out = torch.empty_like(x), torch.empty((), dtype=torch.int32, device="cuda")
    ops = [
        lambda: torch.amax(x, 0, out=out),
        lambda: y.fill_(3),
        lambda: torch.add(x, 1, out=y),
    ]
    scratch = torch.ones(4 * l2 // 8, dtype=torch.int64, device="cuda")

    def read(times):
        part = scratch[: times * l2 // 8]
        return lambda: torch.sum(part, 0, out=gpu._total)

    kinds = {"none": lambda: None, "fill of 3 x L2": lambda: scratch[: 3 * l2 // 8].fill_(1)}
    kinds |= {f"read of {n} x L2": read(n) for n in (1, 2, 3, 4)}
    rows = []
    for name, flush in kinds.items():
        row = [name]
        for op in ops:
            op()
            times = []
            for _ in range(15):
                op()
                torch.cuda.synchronize()
                flush()
                torch.cuda.synchronize()
                times.append(gpu._between_events(op, 300_000))
            row.append(median(t for t in times if t is not None))
        rows.append(row)
    table("Flush between samples, 24 MB tensors (µs)", ("flush", "read", "write", "x + 1"), rows)


class Window(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t),
                ("ratio", ctypes.c_float), ("hit", ctypes.c_int), ("miss", ctypes.c_int),
                ("padding", ctypes.c_uint8 * 32)]  # fmt: skip


def persistence(clock, context):
    """A solution that pins its input in L2: with and without the reset of persisting lines."""
    from harness import cudart

    library = ctypes.CDLL(cudart.loaded_library("libcudart"))
    x = torch.ones(4 * MB, dtype=torch.int32, device="cuda")
    out = torch.empty((), dtype=torch.int32, device="cuda")
    gpu = clock._gpu
    limit = library.cudaDeviceSetLimit(6, ctypes.c_size_t(32 * MB))
    window = Window(x.data_ptr(), 16 * MB, 1.0, 2, 0)
    stream = ctypes.c_void_p(gpu._stream.cuda_stream)

    def timed(reset):
        times = []
        for _ in range(15):
            with torch.cuda.stream(gpu._stream):
                torch.amax(x, 0, out=out)
                torch.amax(x, 0, out=out)
            torch.cuda.synchronize()
            if reset:
                gpu.runtime.reset_persisting()
            torch.sum(gpu._buffer, 0, out=gpu._total)
            torch.cuda.synchronize()
            times.append(gpu._between_events(lambda: torch.amax(x, 0, out=out), 300_000))
        return median(t for t in times if t is not None)

    honest = timed(True)
    code = library.cudaStreamSetAttribute(stream, 1, ctypes.byref(window))
    rows = [
        ("no window", honest),
        ("pinned, flush only", timed(False)),
        ("pinned, persisting lines reset", timed(True)),
    ]
    library.cudaStreamSetAttribute(stream, 1, ctypes.byref(Window()))
    library.cudaDeviceSetLimit(6, ctypes.c_size_t(0))
    table(f"16 MB read, pinned in L2 (codes {limit}, {code})", ("state", "µs"), rows)


def same_code(clock, context):
    """ModelNew = Model: the speed-up must be 1.00 within the stated noise, five times."""
    rows = []
    launch = clock.launch_overhead()
    watch, why = device.watch(context["facts"].uuid)
    print(why)
    for name, fn in [("spin 2 µs", spin(4000))] + [
        (f"{s} MB", add_one(s * MB)) for s in (1, 40, 640)
    ]:
        for repeat in range(5):
            pair = [Local("solution", clock, fn), Local("eager", clock, fn)]
            conditions = timing.Conditions(launch=launch, watch=watch)
            speed = timing.measure(pair, None, 0.6, random.Random(repeat), conditions)
            for ratio in (speed.ratios[0], speed.call_ratios[0]):
                rows.append((name, repeat + 1, ratio.basis, *_interval(ratio),
                             f"{speed.noise:.2%}", speed.solution.call.count,
                             ratio.verdict))  # fmt: skip
    header = ("kernel", "run", "basis", "speed-up", "interval", "noise", "rounds", "verdict")
    table("The same code against itself", header, rows)
    if watch is not None:
        print(watch._seen[-1], *watch.warnings(), sep="\n")


def repeats(clock, context):
    """One speed-up measured five times: do the runs differ by less than the stated interval?"""
    moved = 160 * MB
    x = torch.rand(moved // 8, device="cuda")
    y = torch.empty_like(x)

    def fused():
        return torch.add(x, 1, out=y)

    def two_kernels():
        torch.mul(x, 1, out=y)
        return y.add_(1)

    rows = []
    for repeat in range(5):
        pair = [Local("solution", clock, fused), Local("eager", clock, two_kernels)]
        speed = timing.measure(pair, None, 0.6, random.Random(repeat))
        (ratio,) = speed.ratios
        rows.append((repeat + 1, *_interval(ratio), speed.solution.device.median_us,
                     speed.rivals[0].device.median_us))  # fmt: skip
    header = ("run", "speed-up", "interval", "ours", "theirs")
    table("Five repeats of one comparison", header, rows)


def _interval(ratio):
    return f"{ratio.median:.4f}", f"{ratio.low:.4f} to {ratio.high:.4f}"


def hidden_work(clock, context):
    side = torch.cuda.Stream()
    fn = spin(int(500 * context["rate"]))

    def aside():
        with torch.cuda.stream(side):
            fn()

    def thread():
        worker = threading.Thread(target=lambda: (time.sleep(20e-6), fn()))
        worker.start()

    rows = []
    for name, call in (("current stream", fn), ("side stream", aside), ("a thread, later", thread)):
        raws = [clock.sample_call(call) for _ in range(7)]
        late = median(r.late_us for r in raws)
        rows.append((name, median(r.call_us for r in raws), late, other_clocks.kernelbench(call)))
        torch.cuda.synchronize()
    table("500 µs of work, three ways (µs)", ("where", "whole call", "late", "KernelBench"), rows)


def by_records(clock, context):
    """Activity records beside graph replay, and what attached CUPTI does to later calls."""
    copy_from = torch.ones(1 << 28, dtype=torch.int32, device="cuda")
    copy_to = torch.empty_like(copy_from)
    calls = {f"spin {us}": spin(int(us * context["rate"])) for us in (0, 2, 50, 1000)}
    calls |= {f"x + 1, {size} MB": add_one(size * MB) for size in (1, 40, 640)}
    calls["copy_ of 1 GiB"] = lambda: copy_to.copy_(copy_from)
    calls["zero_ of 1 GiB"] = lambda: copy_to.zero_()
    before = {name: call_us(clock, fn, 21) for name, fn in calls.items()}
    events = {name: other_clocks.nvbench(clock, fn) for name, fn in calls.items()}
    rows = [
        (name, graph_us(clock, fn, 21), activity_us(clock, fn, 21), events[name], before[name],
         call_us(clock, fn, 21))
        for name, fn in calls.items()
    ]  # fmt: skip
    header = ("call", "graph replay", "activity", "nvbench-like", "whole call",
              "whole call, CUPTI attached")  # fmt: skip
    table("Activity records (µs)", header, rows)


def detached(clock, context):
    """Does cuptiFinalize give later launches their speed back? Must run last."""
    from harness import cudart

    attached = call_us(clock, spin(0), 51)
    code = ctypes.CDLL(cudart.loaded_library("libcupti")).cuptiFinalize()
    rows = [("CUPTI attached", attached), (f"detached (code {code})", call_us(clock, spin(0), 51))]
    table("Whole call of an empty kernel", ("state", "µs"), rows)


def not_capturable(clock, context):
    x = torch.rand(10 * MB, device="cuda")
    rows = []
    for name, fn in (("x.sum().item()", lambda: x.sum().item()), ("x.sum()", lambda: x.sum())):
        pair = [Local("solution", clock, fn), Local("eager", clock, fn)]
        begin = time.perf_counter()
        speed = timing.measure(pair, None, 0.6, random.Random(1))
        took, ours = time.perf_counter() - begin, speed.solution
        rows.append((name, ours.device_method, ours.device and ours.device.median_us,
                     ours.call.median_us, ours.call.count, f"{took:.2f}"))  # fmt: skip
    print("capture of item():", clock.capture(lambda: x.sum().item()))
    header = ("call", "method", "device µs", "call µs", "rounds", "seconds")
    table("A call that synchronises", header, rows)


def half_card(clock, context):
    total = torch.cuda.get_device_properties(0).total_memory
    x = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
    us = graph_us(clock, lambda: x.fill_(1), 3)
    rows = [(f"{total / 2e9:.1f}", us, f"{total / 2 / us / 1e3:.0f}",
             f"{clock._gpu._buffer.nbytes / 1e6:.0f}")]  # fmt: skip
    table("Half the card", ("GB written", "µs", "GB/s", "harness's own MB"), rows)


EXPERIMENTS = (overheads, spins, traffic, flushes, persistence, hidden_work, same_code, repeats,
               half_card, by_records, not_capturable, detached)  # records last  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiments", nargs="*")
    parser.add_argument("--json")
    parser.add_argument("--no-ncu", action="store_true")
    parser.add_argument("--under-ncu", type=float)
    options = parser.parse_args()
    if options.under_ncu:
        under_ncu(options.under_ncu)
        return
    clock = Clock("cuda:0")
    facts = roofline.measure("cuda:0")
    rate = cycles_per_us(clock)
    print(roofline.describe(facts), f"\nSM clock {rate:.0f} MHz, torch {torch.__version__}")
    context = {"facts": facts, "rate": rate, "ncu": {} if options.no_ncu else ncu_times(rate)}
    for experiment in EXPERIMENTS:
        if options.experiments and experiment.__name__ not in options.experiments:
            continue
        begin = time.perf_counter()
        try:
            experiment(clock, context)
        except (RuntimeError, Failed, ValueError, TypeError, AttributeError) as error:
            print(f"\n### {experiment.__name__} failed: {type(error).__name__}: {error}")
        torch.cuda.empty_cache()
        print(f"({experiment.__name__}: {time.perf_counter() - begin:.1f} s)")
    if options.json:
        Path(options.json).write_text(json.dumps({**vars(facts), "tables": TABLES}, default=str))


if __name__ == "__main__":
    main()
