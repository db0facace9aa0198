"""Build all solutions of a run side by side, each in its own process, before anything is timed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from harness import build_cache, build_ledger, toolchain, unpacked
from harness.records import Build, Failure, Outcome, from_dict
from harness.toolchain import Toolchain

TIME_LIMIT_S = 600.0
TICK_S = 0.5
MEMORY_PER_BUILD = 2_500_000_000  # bytes: nvcc on torch's full headers
BUILDS = re.compile(r"\bload_inline\b|\bcpp_extension\b")


@dataclass(frozen=True)
class BuildEvent:
    """A step of one solution's build, at least every 2 s; `done` once per solution."""

    solution: str
    text: str
    done: bool = False
    elapsed_s: float = 0.0


@dataclass
class Job:
    """One worker process: a solution in one mode, "cuda" (nvcc) or "cpu" (simt)."""

    solution: str
    mode: str
    device: str
    beside: str = ""
    started: float = 0.0
    text: str = "waiting"
    process: subprocess.Popen | None = None
    message: dict = field(default_factory=dict)


def build_all(
    solutions: Sequence[str],
    device: str,
    on_event: Callable[[BuildEvent], None],
    time_limit_s: float = TIME_LIMIT_S,
    beside: Mapping[str, str] | None = None,
) -> dict[str, Build | Failure]:
    """A Build or a Failure for each solution path; `on_event` runs in the calling thread.

    beside: for a solution path, a folder whose modules it may import.
    device "cpu": nvcc compiles for the default architecture and simt for the CPU. Raises
    Failed(ENVIRONMENT) when nothing could be built on this machine.
    """
    tools = toolchain.find(device)
    build_cache.sweep()
    results: dict[str, Build | Failure] = {}
    todo = []
    for solution in dict.fromkeys(solutions):
        known = _known(solution, device, tools)
        if known is None:
            todo.append(solution)
        else:
            results[solution] = known
            text = "cached" if known.cached else "nothing to build"
            on_event(BuildEvent(solution, text, done=True))
    jobs = [
        Job(solution, mode, device, (beside or {}).get(solution, ""))
        for solution in todo
        for mode in modes(device)
    ]
    if jobs:
        _run_all(jobs, on_event, time_limit_s)
    for solution in todo:
        own = [job for job in jobs if job.solution == solution]
        results[solution] = _result(own, device, tools)
    return {solution: results[solution] for solution in dict.fromkeys(solutions)}


def modes(device: str) -> tuple[str, ...]:
    """Without a GPU each solution is compiled for the GPU and built for the CPU."""
    return ("cuda",) if device.startswith("cuda") else ("cuda", "cpu")


def notices(device: str) -> tuple[str, ...]:
    """What a user should know once per run about tools and cache. Raises as build_all does."""
    return tuple(filter(None, (*toolchain.find(device).notes, build_cache.notice())))


def slots() -> int:
    """How many builds fit at once: cores and memory that this process may use."""
    memory = min(_available_memory(), _group_memory())
    return max(1, min(_cores(), int(memory // MEMORY_PER_BUILD)))


def _known(solution: str, device: str, tools: Toolchain) -> Build | None:
    if not BUILDS.search(unpacked.python_of(solution)):
        return Build(solution, 0.0, cached=False)
    return build_ledger.recall(os.path.abspath(solution), device, tools)


def _run_all(jobs: list[Job], on_event, time_limit_s: float) -> None:
    """Run the jobs in threads, and report from this one."""
    events: queue.Queue[BuildEvent] = queue.Queue()
    left = {job.solution: sum(1 for j in jobs if j.solution == job.solution) for job in jobs}
    with ThreadPoolExecutor(max_workers=min(slots(), len(jobs))) as pool:
        futures = [pool.submit(_run, job, events.put, time_limit_s) for job in jobs]
        try:
            while any(left.values()):
                try:
                    event = events.get(timeout=TICK_S)
                except queue.Empty:
                    _tick(jobs, on_event)
                    continue
                if event.done:
                    left[event.solution] -= 1
                    event = dataclasses.replace(event, done=left[event.solution] == 0)
                on_event(event)
        finally:
            for future in futures:
                future.cancel()
            while not all(future.done() for future in futures):  # one may just be starting
                for job in jobs:
                    _end_group(job.process)
                wait(futures, timeout=TICK_S)
    for future in futures:
        if not future.cancelled():
            future.result()


def _tick(jobs: list[Job], on_event) -> None:
    running = [j for j in jobs if j.process is not None and j.process.returncode is None]
    if running:
        job = min(running, key=lambda j: j.started)
        elapsed = time.monotonic() - job.started
        on_event(BuildEvent(job.solution, f"{job.text}, {elapsed:.0f} s", elapsed_s=elapsed))


def _run(job: Job, emit: Callable[[BuildEvent], None], time_limit_s: float) -> None:
    job.started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="steelyard-build-") as scratch:
            _follow(job, emit, Path(scratch), time_limit_s)
    except OSError as error:
        failure = Failure(Outcome.ENVIRONMENT, "build", f"{job.solution}: {error}")
        job.message = {"failure": dataclasses.asdict(failure)}
    finally:
        elapsed = time.monotonic() - job.started
        text = "failed" if "failure" in job.message else "built"
        emit(BuildEvent(job.solution, f"{text}, {elapsed:.1f} s", done=True, elapsed_s=elapsed))


def _follow(job: Job, emit, scratch: Path, time_limit_s: float) -> None:
    """Start the worker and take its messages until it ends or its time is over."""
    reader, writer = os.pipe()
    solution = os.path.abspath(job.solution)
    command = [sys.executable, "-m", "harness.build_worker", solution, job.mode, job.device]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(Path(__file__).parent.parent), job.beside))
        ),
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with open(scratch / "output.txt", "w+b") as output, os.fdopen(reader, "rb") as messages:
        job.process = subprocess.Popen(
            [*command, str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env=environment,
            pass_fds=(writer,),
            start_new_session=True,
        )
        os.close(writer)
        in_time = _listen(job, messages, emit, job.started + time_limit_s)
        if in_time and not job.message:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(timeout=10)  # its own exit code says why it ended
        _end_group(job.process)
        if not in_time:
            text = f"{job.solution}: not built within {time_limit_s:.0f} s; ended"
            job.message = _failure(Outcome.TIMED_OUT, text)
        elif not job.message:
            output.seek(0)
            job.message = _died(job, output.read().decode("utf-8", "replace"))


def _listen(job: Job, messages, emit, deadline: float) -> bool:
    """Read JSON lines until the pipe closes (True) or the deadline passes (False)."""
    os.set_blocking(messages.fileno(), False)
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(messages, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(timeout=left):
                continue
            block = os.read(messages.fileno(), 65536)
            if not block:
                return True
            *lines, pending = (pending + block).split(b"\n")
            for line in lines:
                _take(job, line, emit)
            if job.message:
                return True
    return False


def _take(job: Job, line: bytes, emit) -> None:
    try:
        message = json.loads(line)
    except ValueError:
        return
    if "text" in message:
        job.text = str(message["text"])[:80]
        emit(BuildEvent(job.solution, job.text, elapsed_s=time.monotonic() - job.started))
    elif "build" in message or "failure" in message:
        job.message = message


def _died(job: Job, output: str) -> dict:
    code = job.process.returncode
    last = tuple(output.strip().splitlines()[-5:])
    if code == -signal.SIGKILL:
        text = f"{job.solution}: the build was killed, perhaps for memory"
        return _failure(Outcome.OUT_OF_MEMORY, text, last)
    text = f"{job.solution}: importing it ended the build process (exit {code})"
    return _failure(Outcome.CRASHED, text, last)


def _failure(outcome: Outcome, message: str, details: tuple[str, ...] = ()) -> dict:
    return {"failure": dataclasses.asdict(Failure(outcome, "build", message, details))}


def _end_group(process: subprocess.Popen | None) -> None:
    """End the worker and every compiler it started."""
    if process is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _result(jobs: list[Job], device: str, tools: Toolchain) -> Build | Failure:
    """One answer from the nvcc job and, without a GPU, the simt job beside it."""
    main, *others = jobs
    if "build" not in main.message:
        return from_dict(Failure, main.message["failure"])
    build = from_dict(Build, main.message["build"])
    keys, files = main.message.get("keys", []), main.message.get("files", [])
    complete = bool(keys)
    for other in others:
        part = other.message.get("build")
        notes = tuple(part["notes"]) if part else (other.message["failure"]["message"],)
        complete = complete and part is not None
        seconds = max(build.seconds, part["seconds"] if part else 0.0)
        build = dataclasses.replace(build, notes=(*build.notes, *notes), seconds=seconds)
    if complete:
        build_ledger.remember(build, device, tools, keys, files)
    return dataclasses.replace(build, solution=main.solution)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _available_memory() -> float:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return float("inf")
    match = re.search(r"MemAvailable:\s+(\d+) kB", text)
    return int(match.group(1)) * 1024 if match else float("inf")


def _group_memory() -> float:
    """What a container's limit leaves."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return float("inf") if limit == "max" else float(int(limit) - int(used))
    except (OSError, ValueError):
        return float("inf")
