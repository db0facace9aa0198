"""Solutions of flashinfer-bench judged whole: a batch on the CPU execution, kernels and all."""

import json
import subprocess
import sys

import pytest
from flashinfer_set import CUDA, HALF, KERNEL, RETURNS, DataSet, workload

from harness import plan
from harness.batch_rows import Rows
from harness.records import Outcome

HELPER = "def scaled(x, s, eps):\n    return x * s[:, None] + eps\n"
INTO = (
    "from {where} import scaled\n\n"
    "def run(x, s, eps, y, m):\n    y.copy_(scaled(x, s, eps))\n    m.copy_(y.amax(1))\n"
)
BY_NAME = "def run(x, s, eps):\n    y = x * s[:, None] + eps\n    return {'m': y.amax(1), 'y': y}\n"
LATE = "from .helper import scaled\n\ndef run(x, s, eps):\n    return scaled(x, s, eps)\n"
PEEKS = (
    "import sys, glob\n\ndef run(x, s, eps):\n"
    "    loaded = [n for n, m in sys.modules.items() if 'get_inputs' in vars(m)]\n"
    "    loaded += sys.modules.keys() & {'harness.problem', 'harness.formats.flashinfer'}\n"
    "    here = [p for p in sys.path if glob.glob(p + '/scale_rows.json')]\n"
    "    assert not loaded and not here, (loaded, here)\n"
    "    y = x * s[:, None] + eps\n    return y, y.amax(1)\n"
)
VALUES = {"destination_passing_style": False}
BUILT = {"language": "cuda", "binding": "torch"}
MAIN = {"entry": "main.cpp::run", **BUILT}

# sources, other fields; the verdict, a part of its sentence
SOLUTIONS = {
    "values": ({"main.py": RETURNS}, VALUES, Outcome.CORRECT, ""),
    "dict": ({"main.py": BY_NAME}, VALUES, Outcome.CORRECT, ""),
    "into": (
        {"main.py": INTO.format(where=".helper"), "helper.py": HELPER},
        {},
        Outcome.CORRECT,
        "",
    ),
    "absolute": (
        {"src/main.py": INTO.format(where="src.helper"), "src/helper.py": HELPER},
        {"entry": "src/main.py::run"},
        Outcome.CORRECT,
        "",
    ),
    "peeks": ({"main.py": PEEKS}, VALUES, Outcome.CORRECT, ""),
    "scalar_ignored": (
        {"main.py": RETURNS.replace(" + eps", "")},
        VALUES,
        Outcome.WRONG,
        "out 0[0, 0] = ",
    ),
    "shape": (
        {"main.py": RETURNS.replace("return y,", "return y[1:],")},
        VALUES,
        Outcome.WRONG,
        "out 0 has shape [4, 16], want [5, 16]",
    ),
    "dtype": (
        {"main.py": RETURNS.replace("return y,", "return y.half(),")},
        VALUES,
        Outcome.WRONG,
        "out 0 is float16, want float32",
    ),
    "one": (
        {"main.py": RETURNS.replace("return y, y.max(1).values", "return y")},
        VALUES,
        Outcome.WRONG,
        "the result",
    ),
    "unwritten": (
        {"main.py": "def run(x, s, eps, y, m):\n    y.copy_(x * s[:, None] + eps)\n"},
        {},
        Outcome.WRONG,
        "out 1[0] = ",
    ),
    "raises": (
        {"main.py": LATE, "helper.py": "def scaled(x, s, eps):\n    return x / nothing\n"},
        VALUES,
        Outcome.CRASHED,
        "helper.py:2: NameError",
    ),
    "no_function": (
        {"main.py": RETURNS.replace("def run", "def ran")},
        VALUES,
        Outcome.DOES_NOT_LOAD,
        "has no attribute 'run'",
    ),
    "triton": ({"main.py": "import triton\n" + RETURNS}, VALUES, Outcome.NEEDS_GPU, "Triton"),
    "kernel": (CUDA, MAIN, Outcome.CORRECT, ""),
    "kernel_wrong": (
        {**CUDA, "kernel.cu": KERNEL.replace("* s[row]", "* s[0]")},
        MAIN,
        Outcome.WRONG,
        "out 0[1, 0] = ",
    ),
    "kernel_broken": (
        {**CUDA, "kernel.cu": KERNEL.replace("float most =", "float mist =")},
        MAIN,
        Outcome.DOES_NOT_BUILD,
        'kernel_broken.json: kernel.cu:16: identifier "most" is undefined',
    ),
}


def run_eval(*words) -> subprocess.CompletedProcess:
    command = [sys.executable, str(plan.ROOT / "run_eval.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("flashinfer")


@pytest.fixture(scope="module")
def data(place):
    def write(name: str, text: str):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return DataSet(write)


@pytest.fixture(scope="module")
def rows(place, data):
    data.definition(rows=(5, 33))
    for name, (sources, spec, _, _) in SOLUTIONS.items():
        spec = dict(spec)
        entry = spec.pop("entry", "main.py::run")
        data.solution(name, sources, entry, **spec)
    out = place / "out.jsonl"
    words = (place / "set/solutions", "--problems", place / "set", "--into", out)
    done = run_eval("batch", *words, "--device", "cpu")
    found = Rows(out)
    found.close()
    assert len(found.rows) == len(SOLUTIONS), done.stderr
    return {row.report.solution.rsplit("/", 1)[1][:-5]: row.report for row in found.rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLUTIONS)
def test_verdict(rows, name):
    _, _, outcome, says = SOLUTIONS[name]
    report = rows[name]
    if report.failure is not None:
        assert report.failure.outcome is outcome, report.failure
        assert says in report.failure.message
        return
    assert len(report.cases) == 2
    assert {case.outcome for case in report.cases} == {outcome}, report.cases
    first = report.cases[0]
    assert says in (first.failure or first.check).message


@pytest.mark.slow
def test_the_batch_leaves_traces_beside_its_rows(rows, place):
    lines = [json.loads(line) for line in (place / "out.traces.jsonl").read_text().splitlines()]
    found = {line["solution"]: line["evaluation"]["status"] for line in lines}
    assert found == {
        "scalar_ignored": "INCORRECT_NUMERICAL",
        "shape": "INCORRECT_SHAPE",
        "dtype": "INCORRECT_DTYPE",
        "one": "RUNTIME_ERROR",
        "unwritten": "INCORRECT_NUMERICAL",
        "raises": "RUNTIME_ERROR",
        "no_function": "COMPILE_ERROR",
        "kernel_wrong": "INCORRECT_NUMERICAL",
        "kernel_broken": "COMPILE_ERROR",
    }
    assert len(lines) == 2 * len(found)
    wrong = next(line for line in lines if line["solution"] == "scalar_ignored")
    assert wrong["evaluation"]["correctness"]["max_absolute_error"] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.slow
def test_one_solution_by_the_command_line(rows, place, data):
    definition = place / "set/definitions/scale/scale_rows.json"
    path = place / "set/solutions/somebody/scale/scale_rows/scalar_ignored.json"
    words = ("--reference", definition, "--solution", path, "--device", "cpu")
    traces = place / "traces.jsonl"
    done = run_eval(*words, "--case", "00000001", "--traces", traces)
    assert done.returncode == 1
    assert f"written: {traces} (1 traces)" in done.stdout
    (line,) = traces.read_text().splitlines()
    assert json.loads(line)["workload"] == workload(1, 33, eps=HALF)["workload"]
    kernel = path.with_name("triton.json")
    assert run_eval(*words[:3], kernel, *words[4:], "--check-only").returncode == 4
    listed = run_eval("--reference", definition, "--solution", path, "--list").stdout
    assert "00000001: rows=33, uuid=00000001-aaaa" in listed


AFFINE = """
import torch
import torch.nn as nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x, picks):
        return (x * self.weight)[picks]
"""
INPUTS = """

def get_inputs(rows=5):
    return [torch.randn(rows, 8), torch.randint(rows, (3,))]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_what_submit_writes_is_read_again(place, data):
    """Weights, a scratch model on "cuda" and integers in safetensors, there and back."""
    pytest.importorskip("safetensors")
    reference = data.write("affine.py", AFFINE.format(name="Model") + INPUTS)
    path = data.write("mine/affine.py", AFFINE.format(name="ModelNew"))
    pair = ("--reference", reference, "--solution", path)
    sent = run_eval("submit", *pair, "--to", "flashinfer", "--out", place / "sent")
    (definition,) = (place / "sent").glob("definitions/*/*.json")
    (solution,) = (place / "sent").glob("solutions/*/*/*/*.json")
    pair = ("--reference", definition, "--solution", solution)
    done = run_eval(*pair, "--device", "cpu")
    assert done.returncode == 0, sent.stdout + sent.stderr + done.stdout + done.stderr
    assert "All 1 cases of 1 solutions right" in done.stdout
