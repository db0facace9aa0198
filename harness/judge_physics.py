"""What the judge can tell by its own clock and by the kernels that ran, whatever is claimed."""

from __future__ import annotations

import math
import re
import time
from statistics import median

from harness.formats import flashinfer_solution
from harness.judge_contest import Contest, Contestant, Sample
from harness.judge_session import Session
from harness.records import Failed, Outcome, Speed

BATCH = 16  # calls back to back
BATCH_BYTES = 2 << 30
SLACK_US = 20.0  # per call, for the interpreter between calls
FACTOR = 3.0
ATTEMPTS = 3
START = 10_000  # number of the batches' first sample: none that was timed before
KERNEL = re.compile(r"__global__[^;{}]*?\b(\w+)\s*\(", re.S)
BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")
LIBRARY = re.compile(
    r"at::native|at::cuda|at_cuda_detail|\bcub::|cublas|cutlass|cudnn|nvjet|gemm|gemv|sgemm|"
    r"^ampere_|^sm\d+_|^hopper_|nccl|Memcpy|Memset|elementwise_kernel|reduce_kernel|"
    r"distribution_|pytorch_flash|flash_fwd|fmha",
    re.I,
)


def contradict(session: Session, contest: Contest, speed: Speed) -> None:
    """Refuse a claimed time that the judge's own clock over a verified batch contradicts.

    The batch runs back to back over inputs of its own and its results are verified, so its share
    per call can only be less than what one call alone, from idle to idle, takes. Before anything
    is refused, single calls are sampled again: a machine that has become busy slows both.
    """
    stat = speed.solution.call
    if stat is None:
        return
    solution = Contestant("solution", contest.solution, "plain", contest)
    claim, shares = stat.high_us if stat.high_us < math.inf else stat.median_us, []
    for attempt in range(ATTEMPTS):
        solution.number = START + attempt * 3 * BATCH
        shares.append(_batch(session, contest, solution.number))
        if shares[-1] <= FACTOR * claim + SLACK_US:
            return
        solution.number += 2 * BATCH
        claim = max(claim, median(solution.sample_call().call_us for _ in range(5)))
    raise Failed(
        Outcome.REFUSED,
        "timing",
        f"it claims {stat.median_us:.1f} µs for a call, but by the judge's clock {BATCH} verified "
        f"calls in a row took {min(shares):.1f} µs each, {len(shares)} times over",
    )


def _batch(session: Session, contest: Contest, start: int) -> float:
    """Wall time per call, microseconds, less what a request costs that does nothing."""
    remote = contest.solution
    first = contest.supply.take(start)
    count = int(max(2, min(BATCH, BATCH_BYTES // max(1, first.nbytes))))
    _step(contest, "clear", first)
    for index in range(count):  # the first run fills the allocator; its inputs are used up
        _step(contest, "put", contest.supply.take(start + index), index=index)
    remote.request("timing", session.left(), do="batch", step="run")
    samples = [contest.supply.take(start + count + index) for index in range(count)]
    for index, sample in enumerate(samples):
        _step(contest, "put", sample, index=index)
    idle = min(_clocked(session, remote, "none") for _ in range(5))
    took = _clocked(session, remote, "run")
    for index, sample in enumerate(samples):
        reply = remote.request("timing", session.left(), do="batch", step="take", index=index)
        problem = contest.problem(remote, reply, sample)
        if problem and index == count - 1:  # one static buffer holds the last result only
            raise Failed(Outcome.WRONG, "timing", f"{problem} (in a batch of {count} calls)")
    _step(contest, "clear", first)
    return max(0.0, took - idle) / count


def _step(contest: Contest, step: str, sample: Sample, **fields) -> None:
    if step == "clear":
        contest.solution.request("timing", 30, do="batch", step="clear")
        return
    contest.ask(contest.solution, sample, 30, do="batch", step=step, **fields)


def _clocked(session: Session, remote, step: str) -> float:
    started = time.perf_counter_ns()
    if step == "run":
        remote.request("timing", session.left(), do="batch", step="run")
    else:
        remote.request("timing", session.left(), do="ping")
    return (time.perf_counter_ns() - started) / 1e3


def labels(session: Session, contest: Contest) -> tuple[str, ...]:
    """Whose kernels one call runs, by what the device itself recorded."""
    sample = contest.supply.take(20_000)
    reply = contest.ask(contest.solution, sample, 60, how="names", which="plain")
    if "ran" not in reply:
        session.note(f"kernels were not observed: {str(reply.get('why'))[:120]}")
        return ()
    try:
        ran = [(str(name), float(ns)) for name, ns in reply["ran"]]
    except (TypeError, ValueError):
        return ()
    return attribute(ran, flashinfer_solution.text_of(session.plan.solution))


def attribute(ran: list[tuple[str, float]], source: str) -> tuple[str, ...]:
    """Labels for a call whose kernels are mostly or wholly not the solution's own."""
    own_names = set(KERNEL.findall(BOUNDS.sub("", source)))
    if not ran:
        return ("no kernel of yours ran: the call put no kernel on the device",)
    total = sum(ns for _, ns in ran)
    own = sum(ns for name, ns in ran if _is_own(name, own_names))
    if not any(_is_own(name, own_names) for name, _ in ran):
        return (f"no kernel of yours ran: library calls only ({_short(ran[0][0])})",)
    if total > 0 and own / total < 0.5:
        return (f"own kernels take {own / total:.0%} of the device time, libraries the rest",)
    return ()


def _is_own(name: str, own_names: set[str]) -> bool:
    if own_names:
        return any(re.search(rf"(?<![a-z]){re.escape(own)}(?![a-z])", name) for own in own_names)
    return LIBRARY.search(name) is None


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."
