"""The solutions around the routing on the CPU execution: cases, repeatability, refusals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parent / "layer_on_cpu.py"


@pytest.mark.slow
def test_the_solutions_are_right_on_the_cpu():
    done = subprocess.run([sys.executable, str(RUNNER)], capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(lines) == 49
    assert [line for line in lines if line["problem"]] == []
