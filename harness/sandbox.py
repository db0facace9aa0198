"""Start an untrusted process so that nothing it leaves behind outlives it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from harness.wire import Channel

ROOT = Path(__file__).resolve().parent.parent
KEEPER = Path(__file__).with_name("sandbox_keeper.py")
KEPT_BYTES = 16 << 10  # of each end of what a process prints
# What a process needs to find its tools and libraries; everything else stays with the judge.
PASSED_ON = (
    *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LANG", "LC_ALL", "TZ", "CC", "CXX", "NVCC_CCBIN"),
    *("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
    *("CUDA_MODULE_LOADING", "NVIDIA_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "VIRTUAL_ENV", "CONDA_PREFIX", "STEELYARD_SANDBOX"),
)


class Output:
    """The head and the tail of what a process printed, drained by a thread; memory is bounded."""

    def __init__(self, stream):
        self._stream = stream
        self._head, self._tail, self._count = bytearray(), bytearray(), 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := self._stream.read1(1 << 16):
                with self._lock:
                    room = KEPT_BYTES - len(self._head)
                    self._head += chunk[:room]
                    self._tail = (self._tail + chunk[max(room, 0) :])[-KEPT_BYTES:]
                    self._count += len(chunk)

    def close(self) -> None:
        """Let go of the stream once its writers are gone; what was kept stays."""
        self._thread.join(1)
        if not self._thread.is_alive():
            self._stream.close()

    def text(self, wait_s: float = 0.2) -> str:
        """What was kept, with the size of the gap between its two ends."""
        self._thread.join(wait_s)
        with self._lock:
            dropped = self._count - len(self._head) - len(self._tail)
            gap = f"\n[… {dropped} bytes not kept …]\n".encode() if dropped else b""
            return bytes(self._head + gap + self._tail).decode("utf-8", "replace")


class Child:
    """One untrusted process below its keeper: a channel to it, what it prints, its end."""

    def __init__(self, role: str, device: str, extra: dict[str, str] | None = None):
        self.scratch = Path(tempfile.mkdtemp(prefix="steelyard-"))
        mine, theirs = socket.socketpair()
        command = [sys.executable, "-u", "-m", "harness.candidate", role, device]
        environment = _environment(self.scratch, device, role)
        environment.update(extra or {}, STEELYARD_CHANNEL=str(theirs.fileno()))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), str(os.getpid()), *command],
            cwd=self.scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        self.channel = Channel(mine)
        self.output = Output(self._process.stdout)

    def ended(self, wait_s: float = 0.0) -> int | None:
        """Exit code, minus the signal's number, or None while it runs."""
        try:
            return self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it with all its descendants and remove its folder; twice does no harm."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            if self.ended(10) is None:
                kill_descendants(self._process.pid)
                self._process.kill()
                self._process.wait()
        self.channel.close()
        self.output.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def kill_descendants(root: int, rounds: int = 50) -> None:
    """SIGKILL everything below process `root`, until nothing is left."""
    for _ in range(rounds):
        living = descendants(root)
        if not living:
            return
        for pid in living:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Every living process below `root`, zombies left out."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            stat = Path(f"/proc/{entry}/stat").read_text()
            state, parent = stat.rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry))
    found, queue = [], [root]
    while queue:
        below = parents.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _environment(scratch: Path, device: str, role: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    binaries = str(Path(sys.executable).parent)
    kept["PATH"] = os.pathsep.join(dict.fromkeys([binaries, *kept.get("PATH", "").split(":")]))
    kept["PYTHONPATH"] = str(ROOT)
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    kept["TMPDIR"] = kept["HOME"] = str(scratch)
    kept["PYTHONUSERBASE"] = os.environ.get("PYTHONUSERBASE") or str(Path("~/.local").expanduser())
    kept["CUDA_CACHE_PATH"] = str(scratch / "nv")
    kept["TRITON_CACHE_DIR"] = str(scratch / "triton")
    kept["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "inductor")
    kept["STEELYARD_CACHE"] = os.environ.get("STEELYARD_CACHE") or str(
        Path("~/.cache/steelyard").expanduser()
    )
    if role == "baseline":
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
            folder = Path(kept["STEELYARD_CACHE"]) / "baseline" / name.split("_")[0].lower()
            kept[name] = os.environ.get(name) or str(folder)
    elif not device.startswith("cuda"):
        kept.setdefault("OMP_NUM_THREADS", "1")  # rounding does not depend on the machine
        # glibc fills new memory with the complement: torch.empty then holds 0xFE, never an answer.
        kept["MALLOC_PERTURB_"] = "1"
    return kept
