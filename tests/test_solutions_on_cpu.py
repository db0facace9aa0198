"""GPU tests of the solutions on the CPU execution: cases, repeatability, refusals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parent / "solutions_on_cpu.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"), [("test_routing_solutions", 31), ("test_layer_solutions", 49)]
)
def test_the_solutions_are_right_on_the_cpu(name, count):
    done = subprocess.run([sys.executable, str(RUNNER), name], capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(lines) == count
    assert [line for line in lines if line["problem"]] == []
