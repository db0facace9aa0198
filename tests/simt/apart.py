"""Starts `execute.py` for many files, in two processes, as the builds take most of the time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXECUTE = Path(__file__).parent / "execute.py"
PROCESSES = 2


def execute(mode: str, wanted: list[str], timeout_s: float = 600) -> dict[str, dict]:
    """What each of `wanted` (FILE:FUNCTION[:ARGUMENTS]) gave, by that text."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    files = sorted({item.split(":", 1)[0] for item in wanted})
    of_file = {f: [w for w in wanted if w.split(":", 1)[0] == f] for f in files}
    groups = [[w] for w in wanted] if len(files) == 1 else list(of_file.values())
    shares = [[w for g in groups[i::PROCESSES] for w in g] for i in range(PROCESSES)]
    running = [
        subprocess.Popen(
            [sys.executable, str(EXECUTE), mode, *share],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for share in shares
        if share
    ]
    lines: dict[str, dict] = {}
    for process in running:
        out, err = process.communicate(timeout=timeout_s)
        assert process.returncode == 0, err[-3000:]
        lines |= {line["where"]: line for line in map(json.loads, out.splitlines())}
    return lines
