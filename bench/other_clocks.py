"""How other tools time a call, written down as they do it, to be run on the same kernels.

Sources: KernelBench src/kernelbench/timing.py (423217d), triton.testing.do_bench, nvbench's cold
measurement (66212f1). All answer in microseconds.
"""

import statistics

import torch


def kernelbench(fn, trials=20):
    """Three warm-ups, then a 256 MB fill, event, call, event, synchronise; mean, three digits."""
    for _ in range(3):
        fn()
        torch.cuda.synchronize()
    cache = torch.empty((32, 1024, 1024), dtype=torch.int64, device="cuda")
    times = []
    for trial in range(trials + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cache.fill_(42)
        start.record()
        fn()
        end.record()
        torch.cuda.synchronize()
        if trial:
            times.append(start.elapsed_time(end))
    return float(f"{statistics.mean(times):.3g}") * 1e3


def do_bench(fn):
    """Triton's do_bench with its defaults, median."""
    import triton.testing

    return triton.testing.do_bench(fn, return_mode="median") * 1e3


def nvbench(clock, fn, trials=20):
    """Fill of one L2, then a blocked stream, event, call, event; mean."""
    gpu = clock._gpu
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    buffer = torch.empty(l2, dtype=torch.uint8, device="cuda")
    fn()
    times = []
    for _ in range(trials):
        with torch.cuda.stream(gpu._stream):
            buffer.zero_()
        times.append(gpu._between_events(fn, 400_000))
    return statistics.mean(t for t in times if t is not None)


def hot_loop(fn, trials=100):
    """No flush, no synchronisation between calls: what a loop with one event pair shows; mean."""
    for _ in range(10):
        fn()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(trials):
        fn()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / trials
