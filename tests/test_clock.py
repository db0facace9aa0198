"""On the CPU the clock times nothing of use; the GPU tests are the ones of docs/methodology.md."""

import threading
import time

import pytest

from harness.clock import ACTIVITY_RECORDS, GRAPH_REPLAY, Clock
from harness.intervals import stat


def test_a_call_is_timed_to_its_end_and_its_result_is_kept_at_once():
    kept = []
    raw = Clock("cpu").sample_call(lambda: time.sleep(0.002) or "out", kept.append)
    assert kept == ["out"]
    assert 2000 <= raw.call_us < 50_000
    assert raw.host_us <= raw.call_us


def test_functions_assigned_after_construction_do_not_reach_the_clock(monkeypatch):
    clock = Clock("cpu")
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    assert clock.sample_call(lambda: time.sleep(0.001)).call_us >= 1000


def test_threads_left_behind_are_counted():
    gate = threading.Event()
    threads = []

    def leave_one():
        threads.append(threading.Thread(target=gate.wait))
        threads[-1].start()

    try:
        assert Clock("cpu").sample_call(leave_one).threads == 1
    finally:
        gate.set()
        threads[-1].join()


def test_an_exception_of_the_call_passes_through():
    with pytest.raises(ZeroDivisionError):
        Clock("cpu").sample_call(lambda: 1 / 0)


def test_without_a_device_there_is_a_reason_and_no_number():
    clock = Clock("cpu")
    assert clock.capture(lambda: None) == "no CUDA device"
    assert clock.sample_activity(lambda: None) == "no CUDA device"
    assert clock.launch_overhead(3).replay_us is None


# On the GPU ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clock():
    return Clock("cuda:0")


def device_times(clock, fn, count=15):
    """Medians in µs by graph replay and by activity records."""
    replay = clock.capture(fn)
    assert not isinstance(replay, str), replay
    replays = [t for t in (clock.sample_replay(replay) for _ in range(count)) if t is not None]
    records = [clock.sample_activity(fn) for _ in range(count)]
    assert not isinstance(records[0], str), records[0]
    return {GRAPH_REPLAY: stat(replays), ACTIVITY_RECORDS: stat(records)}


@pytest.fixture(scope="module")
def cycles_per_us(clock):
    """The card's SM clock, from a spin of 20 million cycles (about 10 ms)."""
    import torch

    replay = clock.capture(lambda: torch.cuda._sleep(20_000_000))
    return 20_000_000 / stat([clock.sample_replay(replay) for _ in range(5)]).median_us


@pytest.mark.gpu
@pytest.mark.parametrize("us", [2, 5, 20, 100, 1000, 10_000, 100_000])
def test_a_spin_of_known_cycles_reads_right(clock, cycles_per_us, us):
    import torch

    cycles = int(us * cycles_per_us)
    count = 5 if us > 1000 else 15
    empty = device_times(clock, lambda: torch.cuda._sleep(0), count)
    found = device_times(clock, lambda: torch.cuda._sleep(cycles), count)
    for method, time_ in found.items():
        spun = time_.median_us - empty[method].median_us
        assert spun == pytest.approx(us, rel=0.02, abs=0.3), method
    calls = stat([clock.sample_call(lambda: torch.cuda._sleep(cycles)).call_us for _ in range(7)])
    assert us < calls.median_us < 1.02 * us + 60


@pytest.mark.gpu
def test_side_streams_are_inside_the_call(clock, cycles_per_us):
    import torch

    side = torch.cuda.Stream()

    def aside():
        with torch.cuda.stream(side):
            torch.cuda._sleep(int(500 * cycles_per_us))

    assert 500 <= min(clock.sample_call(aside).call_us for _ in range(5)) < 560


@pytest.mark.gpu
def test_work_that_a_thread_starts_after_the_call_is_seen(clock, cycles_per_us):
    import torch

    torch.cuda._sleep(1)
    started = threading.Event()
    threads = []

    def later():
        started.wait()
        end = time.perf_counter() + 40e-6
        while time.perf_counter() < end:
            pass
        torch.cuda._sleep(int(200 * cycles_per_us))

    def call():
        started.clear()
        threads.append(threading.Thread(target=later))
        threads[-1].start()
        return started

    def keep(event):
        event.set()

    raws = []
    for _ in range(5):
        raws.append(clock.sample_call(call, keep))
        threads[-1].join()
    assert sorted(raw.late_us for raw in raws)[2] > 50


@pytest.mark.gpu
def test_a_host_synchronisation_is_not_capturable_and_leaves_the_device_usable(clock):
    import torch

    x = torch.ones(1000, device="cuda")
    why = clock.capture(lambda: float(x.sum()))
    assert isinstance(why, str)
    assert why.startswith("not capturable: ")
    assert torch.ones(1 << 20, device="cuda").sum().item() == 1 << 20
    assert torch.rand(3, device="cuda").shape == (3,)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert 1 < clock.sample_activity(lambda: float(x.sum())) < 100
    replay = clock.capture(lambda: x + 1)
    assert clock.sample_replay(replay) is not None


@pytest.mark.gpu
def test_a_call_without_device_work_has_no_replay(clock):
    assert clock.capture(lambda: None) == "the captured call put no work on the device"


@pytest.mark.gpu
def test_a_copy_is_left_to_activity_records(clock):
    import torch

    x = torch.ones(1 << 28, dtype=torch.int32, device="cuda")
    y = torch.empty_like(x)
    assert "copies memory" in clock.capture(lambda: y.copy_(x))
    copied = stat([clock.sample_activity(lambda: y.copy_(x)) for _ in range(7)]).median_us
    replay = clock.capture(lambda: torch.bitwise_not(x, out=y))
    by_kernel = stat([clock.sample_replay(replay) for _ in range(7)]).median_us
    assert copied == pytest.approx(by_kernel, rel=0.1)


@pytest.mark.gpu
def test_a_replay_reads_refreshed_inputs(clock):
    import torch

    x = torch.ones(1000, device="cuda")
    replay = clock.capture(lambda: x * 2)
    x.fill_(21)
    clock.sample_replay(replay)
    assert replay.output.eq(42).all()


@pytest.mark.gpu
def test_the_l2_is_cold_in_every_sample(clock):
    """A read of 20 MB takes what the memory needs, not what the L2 needs."""
    import torch

    x = torch.ones(5 << 20, dtype=torch.int32, device="cuda")
    out = torch.empty((), dtype=torch.int32, device="cuda")
    replay = clock.capture(lambda: torch.amax(x, 0, out=out))
    cold = stat([clock.sample_replay(replay) for _ in range(9)]).median_us
    warm_clock = Clock("cuda:0")
    warm_clock._gpu.flush = warm_clock._gpu.runtime.synchronize
    replay = warm_clock.capture(lambda: torch.amax(x, 0, out=out))
    warm = stat([warm_clock.sample_replay(replay) for _ in range(9)]).median_us
    assert cold > 1.15 * warm


@pytest.mark.gpu
def test_half_the_card_is_left_to_the_solution(clock):
    import torch

    free, total = torch.cuda.mem_get_info()
    if free < 0.6 * total:
        pytest.skip("somebody else holds the card's memory")
    big = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
    raw = clock.sample_call(lambda: big.fill_(1))
    assert raw.call_us > 1000
    replay = clock.capture(lambda: big.fill_(2))
    assert clock.sample_replay(replay) > 1000
