"""Exports loaded as their receivers load them; what a receiver would refuse is said before sending.

The clean process of each test runs the probe that `run_eval.py submit` runs, with the CPU execution
in the place of a GPU: so custom_kernel, run and ModelNew are called, and their results compared.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cli, submit, submit_scan
from harness.commands import exit_codes
from harness.receivers import FLASHINFER, GPUMODE, KERNELBENCH, RECEIVERS, Level
from harness.records import Failed
from harness.submit_preflight import PROBE, Preflight

ROOT = Path(__file__).parent.parent

PROBLEM = '''"""out = x * weight + offset, rows of 8."""

import torch
import torch.nn as nn

width = 8
CASES = {"headline": {}, "odd": dict(rows=3), "empty": dict(rows=0)}


class Model(nn.Module):
    def __init__(self, width, offset):
        super().__init__()
        self.part = nn.Module()
        self.part.weight = nn.Parameter(torch.randn(width))
        self.offset = offset

    def forward(self, x, scale):
        return x * self.part.weight * scale + self.offset


def get_inputs(rows=5):
    return [torch.randn(rows, width), 2.0]


def get_init_inputs():
    return [width, 0.5]
'''

SOLUTION = '''"""One thread per element."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>

__global__ void affine_kernel(const float* x, const float* weight, float* out, int width, int total,
                              float scale, float offset) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < total) out[i] = x[i] * weight[i % width] * scale + offset;
}

void affine(uintptr_t x, uintptr_t weight, uintptr_t out, int width, int total, float scale,
            float offset) {
  if (total > 0)
    affine_kernel<<<(total + 63) / 64, 64>>>((const float*)x, (const float*)weight, (float*)out,
                                             width, total, scale, offset);
  if (cudaGetLastError() != cudaSuccess) __builtin_abort();
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>
#include <cstdint>
void affine(uintptr_t x, uintptr_t weight, uintptr_t out, int width, int total, float scale,
            float offset);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("affine", &affine); }
"""

ext = load_inline("affine", CPP_SOURCE, CUDA_SOURCE, with_cuda=True, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, columns, offset):
        super().__init__()
        self.part = nn.Module()
        self.part.weight = nn.Parameter(torch.randn(columns))
        self.offset = offset

    def forward(self, x, scale):
        x, out = x.contiguous(), torch.empty_like(x)
        pointers = (t.data_ptr() for t in (x, self.part.weight, out))
        ext.affine(*pointers, x.shape[1], x.numel(), scale, self.offset)
        return out
'''

AS_RECEIVER = """
import runpy, sys
sys.path.insert(0, {root!r})
from harness import inline
inline.install("cpu")
sys.path.remove({root!r})
probe = runpy.run_path({probe!r})
probe["main"]({receiver!r}, "package")
"""


def receive(receiver: str, folder: Path, work: Path) -> dict:
    """The probe's report on what lies in `folder`, the CPU execution standing in for the GPU."""
    shutil.copytree(folder, work / "package")
    script = AS_RECEIVER.format(root=str(ROOT), probe=str(PROBE), receiver=receiver)
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], cwd=work, capture_output=True, text=True, timeout=120
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def on_cpu(monkeypatch, tmp_path_factory):
    """Preflights run on the CPU execution, so that they compare results here too."""
    reports = []

    def try_out(receiver, folder, device):
        report = receive(receiver, folder, tmp_path_factory.mktemp("receiver"))
        reports.append(report)
        faults = tuple(submit.Finding(Level.REFUSED, text) for text in report["faults"])
        return Preflight(faults, report["ran"])

    monkeypatch.setattr(submit, "try_out", try_out)
    return reports


@pytest.fixture
def files(write):
    return write("affine.py", PROBLEM), write("mine/affine.py", SOLUTION)


def send(files, to: str, out: Path, old: str = "", new: str = ""):
    reference, solution = files
    text = solution.read_text()
    assert old in text
    solution.write_text(text.replace(old, new) if old else text)
    return submit.submit(reference, solution, to, out, "cpu")


def texts(written) -> str:
    return "\n".join(finding.text for finding in written.findings)


@pytest.mark.parametrize("to", RECEIVERS)
def test_an_export_runs_and_is_right_where_it_is_received(to, files, on_cpu, tmp_path):
    written = send(files, to, tmp_path / "out")
    assert written.path == tmp_path / "out", texts(written)
    (report,) = on_cpu
    assert report["faults"] == []
    assert report["built"]
    assert report["ran"]
    assert written.send.is_file()


@pytest.mark.parametrize("to", RECEIVERS)
def test_a_wrong_kernel_is_found_and_nothing_is_written(to, files, on_cpu, tmp_path):
    written = send(files, to, tmp_path / "out", "* scale + offset;", "* scale;")
    assert written.path is None
    assert not (tmp_path / "out").exists()
    assert on_cpu[0]["built"], on_cpu[0]
    assert "differ" in texts(written)


@pytest.mark.parametrize(
    ("to", "says"),
    [("gpumode", "ModelNew has no part.weight"), ("flashinfer", "ModelNew has no part.weight")],
)
def test_weights_under_other_names_are_refused(to, says, files, on_cpu, tmp_path):
    written = send(files, to, tmp_path / "out", "self.part", "self.other")
    assert written.path is None
    assert says in texts(written)


def test_kernelbench_accepts_other_names_but_not_other_draws(files, on_cpu, tmp_path):
    assert send(files, "kernelbench", tmp_path / "out.py", "self.part", "self.other").path
    reference, solution = files
    text = solution.read_text().replace("self.other = nn", "torch.randn(1); self.other = nn")
    solution.write_text(text)
    written = submit.submit(reference, solution, "kernelbench", tmp_path / "out2.py", "cpu")
    assert written.path is None
    assert "has no weights equal to Model's part.weight [8]" in texts(written)


@pytest.mark.parametrize("to", RECEIVERS)
def test_a_problem_without_weights_and_arguments(to, write, on_cpu, tmp_path):
    problem = """import torch

CASES = {"headline": dict(), "odd": dict(rows=3)}


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0 + 0.5


def get_inputs(rows=5):
    return [torch.randn(rows, 8)]
"""
    old = SOLUTION[SOLUTION.index("    def __init__") :]
    new = """    def forward(self, x):
        weight, out = torch.ones_like(x[0]), torch.empty_like(x)
        pointers = (t.data_ptr() for t in (x, weight, out))
        ext.affine(*pointers, x.shape[1], x.numel(), 2.0, 0.5)
        return out
"""
    files = write("affine.py", problem), write("mine/affine.py", SOLUTION.replace(old, new))
    written = send(files, to, tmp_path / "out")
    assert written.path, texts(written)
    assert on_cpu[0]["ran"]
    if to == "gpumode":
        assert "_model(*data)" in written.send.read_text()


def test_gpumode_files(files, on_cpu, tmp_path):
    send(files, "gpumode", tmp_path)
    sent = (tmp_path / "submission.py").read_text()
    assert sent.splitlines()[0] == "#!POPCORN leaderboard affine"
    assert "affine_kernel" in sent
    assert "harness" not in sent
    task = (tmp_path / "task.yml").read_text()
    assert '{"case": 0, "seed": 4242}' in task
    assert not (tmp_path / "case.txt").exists()
    for key, value in re.findall(r'"(\w+)": (\d+)', task):
        assert re.fullmatch(r"[a-zA-Z]+", key), "eval.py's parser of specs takes letters only"
        assert value.isdigit()


def test_gpumode_keeps_the_authors_directives(files, on_cpu, tmp_path):
    reference, solution = files
    lines = "#!POPCORN leaderboard vectoradd_v2\n#!POPCORN gpus B200\n"
    solution.write_text(lines + solution.read_text())
    submit.submit(reference, solution, "gpumode", tmp_path, "cpu")
    sent = (tmp_path / "submission.py").read_text()
    assert sent.startswith(lines)
    assert sent.count("#!POPCORN") == 2


def test_flashinfer_files(files, on_cpu, tmp_path):
    written = send(files, "flashinfer", tmp_path)
    definition = json.loads((tmp_path / "definitions/steelyard/affine.json").read_text())
    assert list(definition["inputs"]) == ["x", "scale", "part_weight"]
    assert definition["inputs"]["scale"]["shape"] is None
    assert definition["axes"]["x_0"] == {"type": "var"}
    assert definition["axes"]["x_1"] == {"type": "const", "value": 8}
    assert definition["outputs"]["out_0"]["shape"] == ["x_0", "x_1"]
    solution = json.loads(written.send.read_text())
    assert solution["spec"]["entry_point"] == "main.py::run"
    assert written.send.parts[-4:-1] == (solution["author"], "steelyard", solution["definition"])
    assert written.send.stem == solution["name"]
    lines = (tmp_path / "workloads/steelyard/affine.jsonl").read_text().splitlines()
    assert [json.loads(line)["workload"]["axes"] for line in lines] == [{"x_0": 5}, {"x_0": 3}]
    assert "left out" in texts(written)


def test_flashinfer_carries_integers_in_safetensors(write, on_cpu, tmp_path):
    problem = PROBLEM.replace("2.0]", "torch.randint(1, 9, (1,))]")
    solution = SOLUTION.replace("x.numel(), scale", "x.numel(), float(scale)")
    files = write("affine.py", problem), write("mine/affine.py", solution)
    written = send(files, "flashinfer", tmp_path / "out")
    assert written.path, texts(written)
    assert [p.stem for p in sorted(written.path.glob("blob/*/*/*/*"))] == ["headline", "odd"]
    assert on_cpu[0]["ran"]


SHORT = "import torch\nfrom torch.utils.cpp_extension import load_inline\nS = '__global__'\n"


def said(text: str, receiver) -> list[tuple[Level, str]]:
    return [(f.level, f.text) for f in submit_scan.scan("k.py", text, receiver)]


@pytest.mark.parametrize(
    ("line", "receiver", "level", "says"),
    [
        ("s = 'cudaStream_t'", GPUMODE, Level.WARNING, "k.py:4: 'Stream'"),
        ("x = 1  # é", GPUMODE, Level.WARNING, "k.py:4:10: 'é' is not ASCII"),
        ("y = '" + "a" * 1_000_000 + "'", GPUMODE, Level.REFUSED, "takes 1000000"),
        ("from .kernels import f", FLASHINFER, Level.REFUSED, "k.py:4: relative import"),
        ("import kernels", FLASHINFER, Level.WARNING, "k.py:4: imports kernels"),
        ("try:\n    x = 1\nfinally:\n    x = 2", KERNELBENCH, Level.REFUSED, "k.py:4: 'try:'"),
        ("'''a pass over x'''", KERNELBENCH, Level.REFUSED, "k.py:4: 'pass'"),
        ("import threading", KERNELBENCH, Level.REFUSED, "k.py:4: 'import threading'"),
        ("class T(torch.Tensor): x = 1", KERNELBENCH, Level.REFUSED, "tensor subclasses"),
        ("torch.cuda.synchronize = None", KERNELBENCH, Level.REFUSED, "timing functions"),
        ("y = torch.matmul(1, 2)", KERNELBENCH, Level.WARNING, "k.py:4: 'torch.matmul'"),
        ("y = torch.nn.Linear(1, 2)", KERNELBENCH, Level.WARNING, "k.py:4: 'torch.nn.'"),
        ("s = torch.cuda.Stream()", KERNELBENCH, Level.WARNING, "an own CUDA stream"),
    ],
)
def test_the_scan_names_the_line(line, receiver, level, says):
    found = said(SHORT + line + "\n", receiver)
    assert [x for x in found if x[0] is level and says in x[1]], found


@pytest.mark.parametrize("receiver", RECEIVERS.values(), ids=list(RECEIVERS))
def test_the_scan_has_nothing_to_say_of_an_honest_file(receiver):
    text = SHORT + "# try: pass\nx = 'bypass the passed'\nn = torch.nn.Module()\n"
    assert said(text, receiver) == []


def test_kernelbench_wants_a_kernel_and_load_inline():
    found = [text for _, text in said("import torch\n", KERNELBENCH)]
    assert any("__global__" in text for text in found)
    assert any("load_inline" in text for text in found)


def test_future_imports_cannot_follow_kernelbenchs_own_lines():
    text = "from __future__ import annotations\n" + SHORT
    assert [x for x in said(text, KERNELBENCH) if "k.py:1: KernelBench puts" in x[1]]
    assert said(text, GPUMODE) == []


def test_names_shared_with_a_kernelbench_problem_are_refused(files, on_cpu, tmp_path):
    reference, solution = files
    solution.write_text(solution.read_text() + "\nwidth = 4\n")
    written = submit.submit(reference, solution, "kernelbench", tmp_path / "out.py", "cpu")
    assert written.path is None
    line = len(solution.read_text().splitlines())
    assert f"affine.py:{line}: width is also a name of the problem" in texts(written)
    assert submit.submit(reference, solution, "gpumode", tmp_path / "out", "cpu").path


def test_no_bom_and_no_carriage_returns_leave_the_house(files, on_cpu, tmp_path):
    reference, solution = files
    solution.write_bytes(b"\xef\xbb\xbf" + SOLUTION.replace("\n", "\r\n").encode())
    written = submit.submit(reference, solution, "kernelbench", tmp_path / "out.py", "cpu")
    assert written.path, texts(written)
    assert written.send.read_bytes() == SOLUTION.encode()
    assert "byte order mark and carriage returns were taken out" in texts(written)


def test_what_cannot_be_exported_gets_a_sentence(files, tmp_path, capsys):
    reference, solution = files
    with pytest.raises(Failed, match="no receiver 'kaggle'; --to takes kernelbench"):
        submit.submit(reference, solution, "kaggle", tmp_path, "cpu")
    text = solution.read_text()
    solution.write_text(text + "\n\ndef custom_kernel(data):\n    return data\n")
    with pytest.raises(Failed, match=rf"affine.py:{len(text.splitlines()) + 3}: custom_kernel is"):
        submit.submit(reference, solution, "gpumode", tmp_path, "cpu")
    assert cli.main(["submit"]) == exit_codes.USAGE
    assert "submit needs an op" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_builds_with_nvcc_in_a_clean_process(files, tmp_path):
    reference, solution = files
    words = ["submit", "--reference", reference, "--solution", solution, "--to", "gpumode"]
    done = subprocess.run(
        [sys.executable, ROOT / "run_eval.py", *words, "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (exit_codes.OK, exit_codes.NEEDS_GPU), done.stdout + done.stderr
    assert "checked in a clean process" in done.stdout
    solution.write_text(SOLUTION.replace("if (i < total)", "if (i < totl)"))
    done = subprocess.run(
        [sys.executable, ROOT / "run_eval.py", *words, "--out", tmp_path / "other"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == exit_codes.BAD
    assert "refused" in done.stdout
    assert not (tmp_path / "other").exists()
