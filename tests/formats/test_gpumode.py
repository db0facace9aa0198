"""A GPU MODE problem folder, judged as it is, on a machine that may have no GPU."""

import json
import subprocess
import sys

import pytest

from harness import plan, problem
from harness.formats import gpumode
from harness.records import Failed

TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: utils.py, source: ../utils.py}
  - {name: reference.py, source: reference.py}
  - {name: eval.py, source: ../eval.py}
lang: py
description: |
  y = 2 x into a given output
tests:
  - {size: 7, seed: 4242}
  - {size: 128, seed: 1}
benchmarks:
  - {size: 4096, seed: 3}
ranking_by: geom
"""
REFERENCE = """
import torch
from task import input_t
from utils import close


def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x = torch.randn(size, device="cuda", generator=gen)
    return x, torch.empty(size, device="cuda")


def ref_kernel(data):
    x, out = data
    out[...] = 2 * x
    return out


def check_implementation(data, output):
    expected = ref_kernel(data)
    return close(output, expected), "mismatch found"
"""
UTILS = (
    "import torch\n\n\ndef close(a, b):\n    return torch.allclose(a, b, rtol=1e-2, atol=1e-2)\n"
)
HEAD = "#!POPCORN leaderboard double\nfrom task import input_t, output_t\n\n\n"
RIGHT = HEAD + (
    "def custom_kernel(data: input_t) -> output_t:\n    x, out = data\n"
    "    out.copy_(x + x)\n    return out\n"
)


@pytest.fixture
def folder(write):
    write("double_py/task.yml", TASK)
    write("double_py/task.py", "input_t = tuple\noutput_t = object\n")
    write("utils.py", UTILS)
    return write("double_py/reference.py", REFERENCE).parent


def judged(folder, write, text, *words):
    solution = write("sub/submission.py", text)
    out = folder.parent / "out.json"
    words = (
        "--reference",
        folder,
        "--solution",
        solution,
        "--device",
        "cpu",
        "--json",
        out,
        *words,
    )
    done = subprocess.run(
        [sys.executable, str(plan.ROOT / "run_eval.py"), *map(str, words)],
        capture_output=True,
        text=True,
    )
    if not out.exists():
        return done, None
    return done, json.loads(out.read_text())["reports"][0]


def test_specs_become_cases(folder):
    stated = problem.declared(folder)
    assert [case.name for case in stated.cases] == ["test-0", "test-1", "benchmark-0"]
    assert stated.cases[0].sizes == {"size": 7, "seed": 4242}
    assert stated.gpu_only == {"benchmark-0"}


def test_a_submission_finds_task_and_utils_and_not_the_reference(folder):
    names = {path.name for path in map(type(folder), [gpumode.beside(folder)]) for path in
             path.iterdir()}  # fmt: skip
    assert names == {"task.py", "utils.py"}


def test_right_submission(folder, write):
    done, report = judged(folder, write, RIGHT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [c["case"]["name"] for c in report["cases"]] == ["test-0", "test-1"]
    assert all(c["check"]["ok"] for c in report["cases"])


# what it returns, what the message says
WRONG = [
    ("x * 2.5", "the problem's own check refuses the result: mismatch found"),
    ("(2 * x)[1:]", "has shape"),
    ("2 * x.double()", "is float64, want float32"),
]


@pytest.mark.parametrize(("value", "says"), WRONG, ids=[w[0] for w in WRONG])
def test_wrong_submission(folder, write, value, says):
    text = HEAD + f"def custom_kernel(data):\n    x, _ = data\n    return {value}\n"
    done, report = judged(folder, write, text, "--case", "test-0")
    assert done.returncode == 1
    assert says in report["cases"][0]["check"]["message"]


def test_what_their_check_lets_pass_and_ours_would_not_is_noted(folder, write):
    text = RIGHT.replace("x + x", "x + x * 1.002")
    done, report = judged(folder, write, text, "--case", "test-0")
    assert done.returncode == 0, done.stdout
    assert "not by ours" in " ".join(report["cases"][0]["check"]["notes"])


def test_redefining_what_the_judge_uses_changes_nothing(folder, write):
    text = HEAD + (
        "import task\ndef check_implementation(data, output):\n    return True, ''\n"
        "def ref_kernel(data):\n    return data[0]\n"
        "def custom_kernel(data):\n    return data[0].clone()\n"
    )
    done, report = judged(folder, write, text, "--case", "test-0")
    assert done.returncode == 1
    assert "own check refuses" in report["cases"][0]["check"]["message"]


def test_the_seed_of_the_spec_is_not_the_one_that_is_used(folder):
    import torch

    sizes = dict(size=7, seed=4242)
    reference = problem.load(folder)
    torch.manual_seed(1)
    first = reference.get_inputs(**sizes)[0][0]
    second = reference.get_inputs(**sizes)[0][0]
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(first, reference.get_inputs(**sizes)[0][0])


def test_no_custom_kernel_is_said_before_any_build(folder, write):
    done, report = judged(folder, write, "def kernel(data):\n    return data\n")
    assert done.returncode == 1
    assert ":1:1: no function custom_kernel" in report["failure"]["message"]


BROKEN = [
    ("tests: [1]\n", "tests must be a list of mappings"),
    ("lang: cu\ntests: [{size: 1}]\n", "lang is 'cu'"),
    ("multi_gpu: true\ntests: [{size: 1}]\n", "multi_gpu problems are not read"),
    ("description: a\n", "neither tests nor benchmarks"),
    ("a: [\n", "not valid YAML"),
    ("tests: [{size: 1}]\nfiles: [{name: a.py, source: a.py}]\n", "file a.py does not exist"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN, ids=[b[1] for b in BROKEN])
def test_broken_task_file_is_named(write, text, says):
    folder = write("p/task.yml", text).parent
    with pytest.raises(Failed) as caught:
        gpumode.read(folder)
    assert says in caught.value.failure.message
    assert "task.yml" in caught.value.failure.message
