"""Builds once into one cache folder for all of these tests, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def simt_cache(tmp_path_factory):
    if "STEELYARD_CACHE" not in os.environ:
        os.environ["STEELYARD_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return Path(os.environ["STEELYARD_CACHE"])


@pytest.fixture(scope="session")
def device():
    """What device_runner.py prints, its JSON lines as one record."""
    runner = Path(__file__).with_name("device_runner.py")
    # With a CUDA_HOME and no device torch warns, unless install() comes before it.
    environment = os.environ | {"CUDA_HOME": "/usr/local/cuda"}
    done = subprocess.run([sys.executable, runner], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    merged = {"stderr": done.stderr}
    for line in done.stdout.splitlines():
        merged |= json.loads(line)
    return merged
