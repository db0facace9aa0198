"""Try a submission in a clean process: an empty folder, python -I, nothing of ours in reach.

The solution builds there with torch's own load_inline. On a machine with a GPU it also runs against
the problem, by the receiver's own rule for equality.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import toolchain
from harness.receivers import Finding, Level
from harness.records import Failed, Outcome

PROBE = Path(__file__).with_name("submit_probe.py")
LIMIT_S = 600.0
KEPT = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TMPDIR", "CXX")


@dataclass(frozen=True)
class Preflight:
    """`ran`: what was compared on a GPU; None where there is none."""

    findings: tuple[Finding, ...]
    ran: str | None


def try_out(receiver: str, folder: Path, device: str) -> Preflight:
    """Load what lies in `folder` as the receiver does. Raises Failed(ENVIRONMENT) without nvcc."""
    with tempfile.TemporaryDirectory(prefix="preflight-") as name:
        work = Path(name)
        shutil.copytree(folder, work / "package")
        shutil.copy(PROBE, work / "probe.py")
        report = _run([receiver, "package"], work, _environment(work, device))
    faults = list(report["faults"])
    if not report["clean"]:
        faults.append("a package named harness is installed, so this was no clean process")
    return Preflight(tuple(Finding(Level.REFUSED, text) for text in faults), report["ran"])


def _environment(work: Path, device: str) -> dict[str, str]:
    tools = toolchain.find(device)
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    kept["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), kept.get("PATH", os.defpath)))
    architecture = {} if device.startswith("cuda") else {"TORCH_CUDA_ARCH_LIST": "9.0"}
    return {
        **kept,
        **architecture,
        "CUDA_HOME": str(tools.cuda.root),
        "CPATH": os.pathsep.join(tools.includes),
        "LIBRARY_PATH": os.pathsep.join(tools.library_dirs),
        "TORCH_EXTENSIONS_DIR": str(work / "extensions"),
    }


def _run(arguments: list[str], work: Path, environment: dict[str, str]) -> dict:
    command = [sys.executable, "-I", "probe.py", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(f"no answer within {LIMIT_S:.0f} s", ()) from None
    for line in reversed(done.stdout.splitlines()):
        if line.startswith('{"clean"'):
            return json.loads(line)
    tail = tuple(done.stderr.splitlines()[-5:])
    raise _failed(f"the process ended with code {done.returncode} before an answer", tail)


def _failed(message: str, details: tuple[str, ...]) -> Failed:
    return Failed(Outcome.CRASHED, "preflight", f"preflight: {message}", details)
