"""Measures one call inside the candidate's process: whole call, host share, device time alone.

Create the Clock before the solution is imported: it keeps its own references to every function
it uses, so that nothing the solution assigns later changes what is measured. The judge decides
what a sample is worth; here no number is reduced.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from harness import activity, cudart
from harness.records import ACTIVITY_RECORDS, GRAPH_REPLAY, Overhead, Raw

__all__ = ["ACTIVITY_RECORDS", "GRAPH_REPLAY", "Clock", "Overhead", "Raw", "Replay"]

FLUSH_OVER_L2 = 3  # bytes read between samples, as a multiple of the L2 cache
WATCH_US = 120  # how long after a call the device is watched for work that outlived it
THREAD_WATCH_US = 1000  # the same, after a call that left a thread behind
BLOCK_CYCLES = 200_000  # about 100 µs: the host queues events and graph meanwhile
LONGEST_BLOCK = 64 * BLOCK_CYCLES

Keep = Callable[[Any], None]


@dataclass
class Replay:
    """One captured call. `output` is what the call returned: static tensors, rewritten by replays.

    `nodes`: kernels, copies and fills of the graph.
    """

    graph: Any
    output: Any
    nodes: int
    block: int = BLOCK_CYCLES


class Clock:
    """Times calls on `device`, "cuda:N", or "cpu" for tests of the harness.

    Each sample begins with `cold()`. `keep(result)` is called at once when the window has closed:
    copy the output there, before work that outlived the call can still change it.
    """

    def __init__(self, device: str):
        self.device = device
        self._now = time.perf_counter_ns
        self._gpu = _Gpu(device) if device.startswith("cuda") else None
        self._idle_us = self._idle_wait()

    def cold(self) -> None:
        """Idle device, cold L2: persisting lines reset, then FLUSH_OVER_L2 times its size read."""
        if self._gpu is not None:
            self._gpu.flush()

    def sample_call(self, fn: Callable[[], Any], keep: Keep | None = None) -> Raw:
        """One whole call: from idle device to idle device, every stream and thread included."""
        self.cold()
        threads = _threads()
        wait, now = self._wait, self._now
        with _no_collection():
            start = now()
            result = fn()
            returned = now()
            wait()
            end = now()
        if keep is not None:
            keep(result)
            wait()  # the copy is ours and not late work
        left = _threads() - threads
        late = self._watch(THREAD_WATCH_US if left > 0 else WATCH_US)
        return Raw((end - start) / 1e3, (returned - start) / 1e3, late, left)

    def capture(self, fn: Callable[[], Any]) -> Replay | str:
        """A CUDA graph of one call, or the reason why there is none. Calls fn three times.

        The inputs that fn reads must stay where they are; refresh their contents before a replay.
        """
        return "no CUDA device" if self._gpu is None else self._gpu.capture(fn)

    def sample_replay(self, replay: Replay) -> float | None:
        """Device time of one replay, net of the events' own time, in microseconds.

        None when the host was too slow to queue the replay before the device reached it: that
        sample would hold a gap; take another.
        """
        self.cold()
        return self._gpu.time_replay(replay)

    def sample_activity(self, fn: Callable[[], Any], keep: Keep | None = None) -> float | str:
        """Device time of one call by activity records, or the reason why there is none.

        The time in which a kernel, copy or fill ran; gaps between them are the host's. Once used,
        CUPTI stays attached and every later launch of this process takes some microseconds longer.
        """
        records = self.activities(fn, keep)
        if isinstance(records, str):
            return records
        if any(r.start_ns == 0 or r.end_ns == 0 for r in records):
            return "CUPTI gave a record without a time"
        return activity.busy_us(records)

    def activities(self, fn, keep: Keep | None = None) -> list[activity.Activity] | str:
        """What the device did during one call, kernels by name, or why that is not known."""
        if self._gpu is None:
            return "no CUDA device"
        try:
            recorder = self._gpu.recorder()
            with recorder.on():
                self.cold()
                recorder.take()
                result = fn()
                self._wait()
                records = recorder.take()
            if keep is not None:
                keep(result)
            return records
        except RuntimeError as error:
            if "CUDA error" in str(error):
                raise
            return f"no activity records: {error}"

    def launch_overhead(self, samples: int = 21) -> Overhead:
        """Medians for an empty kernel, launched through torch's own binding."""
        empty = self._gpu.empty if self._gpu else _nothing
        for _ in range(3):
            self.sample_call(empty)
        calls = [self.sample_call(empty) for _ in range(samples)]
        call, host = median(c.call_us for c in calls), median(c.host_us for c in calls)
        replay = self.capture(empty)
        if isinstance(replay, str):
            return Overhead(call, host)
        times = [t for t in (self.sample_replay(replay) for _ in range(samples)) if t is not None]
        return Overhead(call, host, median(times) if times else None, self._gpu.events_us())

    def _wait(self) -> None:
        if self._gpu is not None:
            self._gpu.runtime.synchronize()

    def _idle_wait(self) -> float:
        """What a device-wide wait costs when nothing runs, microseconds."""
        self._wait()
        return median(self._timed_wait() for _ in range(15))

    def _timed_wait(self) -> float:
        start = self._now()
        self._wait()
        return (self._now() - start) / 1e3

    def _watch(self, us: int) -> float:
        """Longest device-wide wait in the next `us`, less the wait on an idle device."""
        if self._gpu is None:
            return 0.0
        longest, end = 0.0, self._now() + us * 1000
        while self._now() < end:
            longest = max(longest, self._timed_wait())
        return max(0.0, longest - self._idle_us)


class _Gpu:
    """What the clock needs of the CUDA device; every function bound at construction."""

    def __init__(self, device: str):
        import torch

        torch.cuda.init()
        torch.cuda.set_device(device)
        self._index = torch.device(device).index or 0
        self._stream = torch.cuda.Stream(device)
        self._use = torch.cuda.stream
        self._graph, self._capturing = torch.cuda.CUDAGraph, torch.cuda.graph
        self._sleep, self._sum = torch._C._cuda_sleep, torch.sum
        self._random = torch.cuda.default_generators[self._index]
        self._new_generator = torch.Generator
        self._new_pool = torch.cuda.graph_pool_handle
        self._end_pool = getattr(torch._C, "_cuda_endAllocateToPool", None)
        self.runtime = cudart.Runtime()
        l2 = self.runtime.attribute(cudart.L2_BYTES, self._index)
        words = FLUSH_OVER_L2 * max(l2, 1 << 20) // 8
        self._buffer = torch.ones(words, dtype=torch.int64, device=device)
        self._total = torch.zeros((), dtype=torch.int64, device=device)
        self._events = (self.runtime.event(), self.runtime.event())
        self._recorder: activity.Recorder | None = None
        self._events_us: float | None = None
        self.flush()

    def flush(self) -> None:
        self.runtime.synchronize()
        self.runtime.reset_persisting()
        # Reading leaves clean lines: a flush by writing would leave the timed call to write back
        # up to a whole L2 of somebody else's dirty lines.
        self._sum(self._buffer, dim=0, out=self._total)
        self.runtime.synchronize()

    def empty(self) -> None:
        self._sleep(0)

    def recorder(self) -> activity.Recorder:
        if self._recorder is None:
            self._recorder = activity.Recorder()
        return self._recorder

    def capture(self, fn) -> Replay | str:
        with self._use(self._stream):
            fn()
            fn()
        self.runtime.synchronize()
        graph, pool = self._graph(keep_graph=True), self._new_pool()
        seed = self._random.initial_seed(), self._random.get_offset()
        try:
            # The outer `use` restores the stream that a failed capture leaves current.
            with warnings.catch_warnings(), self._use(self._stream):
                warnings.simplefilter("ignore")
                with self._capturing(graph, pool=pool, stream=self._stream):
                    output = fn()
            kinds = self.runtime.node_kinds(graph.raw_cuda_graph())
            if not kinds:
                return "the captured call put no work on the device"
            if cudart.COPY in kinds:
                # 1 GiB on an H200: 2780 GB/s by a graph's copy node, 4300 by a kernel.
                return "the call copies memory, which a graph does by a slower path"
            graph.instantiate()
        except RuntimeError as error:
            return self._not_captured(error, pool, seed)
        replay = Replay(graph, output, len(kinds))
        replay.block = self._block_for(replay)
        return replay

    def _not_captured(self, error: RuntimeError, pool, seed: tuple[int, int]) -> str:
        """The reason of a failed capture; an error that outlives it is raised by the wait.

        torch leaves its allocator and its generator as if the capture went on: both are ended.
        """
        self.runtime.clear_error()
        if self._end_pool is not None:
            with contextlib.suppress(RuntimeError):  # already ended, where torch did it
                self._end_pool(self._index, pool)
        generator = self._new_generator(f"cuda:{self._index}")
        generator.manual_seed(seed[0])
        generator.set_offset(seed[1])
        self._random.graphsafe_set_state(generator.graphsafe_get_state())
        cause = error.__context__ or error
        self.runtime.synchronize()
        return f"not capturable: {str(cause).strip().splitlines()[0]}"

    def _block_for(self, replay: Replay) -> int:
        """Cycles for which to hold the stream so that the host can queue this graph; warms up."""
        took_ns = 0
        for _ in range(4):  # the first uploads the graph; the last counts
            start = time.perf_counter_ns()
            with self._use(self._stream):
                replay.graph.replay()
            took_ns = time.perf_counter_ns() - start
            self.runtime.synchronize()
        return min(max(BLOCK_CYCLES, 6 * took_ns), LONGEST_BLOCK)

    def time_replay(self, replay: Replay) -> float | None:
        gross = self._between_events(replay.graph.replay, replay.block)
        if gross is None:
            replay.block = min(2 * replay.block, LONGEST_BLOCK)
            return None
        return max(gross - self.events_us(), 0.0)

    def events_us(self) -> float:
        """What two neighbouring events measure with nothing between them."""
        if self._events_us is None:
            gaps = [self._between_events(_nothing, BLOCK_CYCLES) for _ in range(21)]
            self._events_us = median([g for g in gaps if g is not None] or [0.0])
        return self._events_us

    def _between_events(self, work: Callable[[], Any], block: int) -> float | None:
        """Device time of `work`, queued behind a spinning kernel; None if that ended too early."""
        start, end = self._events
        stream = self._stream.cuda_stream
        with self._use(self._stream), _no_collection():
            self._sleep(block)
            self.runtime.record(start, stream)
            work()
            self.runtime.record(end, stream)
            early = self.runtime.done(start)
        self.runtime.synchronize()
        return None if early else self.runtime.elapsed_us(start, end)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection inside a window."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _nothing() -> None:
    return None
