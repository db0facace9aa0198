"""The doctor names what it found, and gives a remedy for what does not fit."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness import cache, doctor, toolchain_arch, toolchain_cuda, toolchain_host
from harness.records import Failed, Outcome


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    cache.root.cache_clear()
    yield
    cache.root.cache_clear()


def report():
    lines = []
    return doctor.show(lines.append), "\n".join(lines)


def test_a_machine_that_fits():
    code, text = report()
    assert code == 0
    assert toolchain_host.find_torch().version in text
    assert "nvcc" in text
    assert "Solutions can be built" in text


def test_the_command_line_prints_it():
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "run_eval.py", "doctor"], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "nvcc" in done.stdout


def test_trial_A6_no_nvcc_names_the_remedy_and_fails(monkeypatch):
    passed = toolchain_cuda.Rejected("/nonexistent (CUDA_HOME)", "has no bin/nvcc")
    monkeypatch.setattr(toolchain_cuda, "search", lambda wanted: (None, (passed,)))
    code, text = report()
    assert code == 1
    assert "pip install 'cuda-toolkit[nvcc,cccl]" in text
    assert "/nonexistent (CUDA_HOME): has no bin/nvcc" in text
    assert "Nothing can be built here: nvcc." in text


def test_trial_A8_a_compiler_that_nvcc_refuses(monkeypatch):
    def refuse(limit):
        raise Failed(Outcome.ENVIRONMENT, "toolchain", "g++ 99 is newer than nvcc accepts")

    monkeypatch.setattr(toolchain_host, "find_host", refuse)
    code, text = report()
    assert code == 1
    assert "g++ 99 is newer" in text


def test_trial_A9_an_arch_list_that_the_gpu_cannot_run(monkeypatch):
    monkeypatch.setattr(doctor, "_gpus", lambda: 1)
    monkeypatch.setattr(toolchain_arch, "capability", lambda device: (9, 0))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.0")
    code, text = report()
    assert code == 1
    assert "cuda:0, compute capability 9.0" in text
    assert "TORCH_CUDA_ARCH_LIST=7.0" in text


def test_a_torch_without_cuda_and_none_at_all(monkeypatch):
    cpu_only = toolchain_host.Torch("/torch", "2.14.1+cpu", None, "c++20")
    monkeypatch.setattr(toolchain_host, "find_torch", lambda: cpu_only)
    code, text = report()
    assert code == 1
    assert "without CUDA" in text

    def missing():
        raise Failed(Outcome.ENVIRONMENT, "toolchain", "torch is not installed")

    monkeypatch.setattr(toolchain_host, "find_torch", missing)
    assert report()[0] == 1
