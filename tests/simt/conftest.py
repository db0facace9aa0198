"""CPU execution changes its whole process (`cuda` is the CPU there), so tests run it in others.

Those processes build for tens of seconds; all that the collected tests need start at once.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FAULTS = sorted(path.stem for path in (HERE / "faults").glob("*.py"))
PROGRAMS = sorted(path.stem for path in (HERE / "programs").glob("*.py"))
CHECKED = ["ballot_compaction", "block_reduction", "persistent_loop", "spin_on_block"]
HALF = len(FAULTS) // 2
RUNS = {  # fixture -> script and arguments, mode
    "faults": [
        (["fault_runner.py", *FAULTS[:HALF]], "checked"),
        (["fault_runner.py", *FAULTS[HALF:]], "checked"),
    ],
    "plain": [(["program_runner.py", *PROGRAMS], "plain")],
    "checked": [(["program_runner.py", *CHECKED], "checked")],
    "device": [(["device_runner.py"], "plain")],
}


def _start(arguments: list[str], mode: str) -> subprocess.Popen:
    command = [sys.executable, str(HERE / arguments[0]), *arguments[1:]]
    environment = os.environ | {"STEELYARD_SIMT_MODE": mode}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.fixture(scope="session")
def results(request):
    """Function: name of a run -> the JSON lines its scripts printed."""
    wanted = {name for item in request.session.items for name in item.fixturenames}
    started = {
        name: [_start(*one) for one in runs] for name, runs in RUNS.items() if name in wanted
    }

    def of(name: str) -> list[dict]:
        lines = []
        for process in started[name]:
            out, log = process.communicate()
            assert process.returncode == 0, log[-3000:]
            lines += [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return lines

    yield of
    for process in (p for processes in started.values() for p in processes):
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def faults(results):
    return {result["name"]: result for result in results("faults")}


@pytest.fixture(scope="session")
def plain(results):
    return {result["name"]: result for result in results("plain")}


@pytest.fixture(scope="session")
def checked(results):
    return {result["name"]: result for result in results("checked")}


@pytest.fixture(scope="session")
def device(results):
    merged = {}
    for line in results("device"):
        merged |= line
    return merged
