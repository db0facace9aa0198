"""The KernelBench examples: right on the CPU, right at full size on a GPU, loadable unchanged."""

import concurrent.futures
import inspect
import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import problem, submit_scan
from harness.receivers import KERNELBENCH, Level

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "kernelbench"
KINDS = {
    "elementwise": "1_SiLU",
    "reduction": "2_MeanOverRows",
    "softmax over 16k+ columns": "3_Softmax",
    "matmul": "4_Matmul",
    "convolution": "5_Conv2d",
    "batch norm in train mode": "6_BatchNorm2d",
    "cross entropy": "7_CrossEntropy",
    "argmax": "8_Argmax",
    "scalar arguments": "9_ScaleClamp",
    "tuple output": "10_RMSNormWithScale",
    "fused chain": "11_Linear_GELU_Scale_Clamp",
    "small model": "12_MLP",
}


@dataclass(frozen=True)
class Example:
    name: str
    reference: Path
    solution: Path


def example(path: Path) -> Example:
    level, number = path.parent.name.removeprefix("level"), path.stem.split("_")[0]
    name = f"level_{level}_problem_{number}_sample_0_kernel.py"
    return Example(path.stem, path, FOLDER / "runs" / "steelyard" / name)


ALL = [example(path) for path in sorted(FOLDER.glob("level*/*.py"))]
each = pytest.mark.parametrize("one", ALL, ids=[one.name for one in ALL])


def judge(one: Example, folder: str) -> dict:
    """The report of the CPU's cases."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from harness import judge, plan
    from harness.records import to_dict

    (asked,) = plan.plans(
        plan.Request(reference=str(one.reference), solution=str(one.solution), timing=False)
    )
    plan_file, report_file = Path(folder, f"{one.name}.plan"), Path(folder, f"{one.name}.report")
    plan_file.write_text(json.dumps(to_dict(asked)), encoding="utf-8")
    assert judge.main([str(plan_file), str(report_file)]) == 0
    return json.loads(report_file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def reports(request, tmp_path_factory):
    """Built first, by name: a confined candidate finds its library and may not make one."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = {c.params["one"] for c in calls if c and isinstance(c.params.get("one"), Example)}
    folder = str(tmp_path_factory.mktemp("reports"))
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        list(pool.map(build, chosen))
        jobs = {one.name: pool.submit(judge, one, folder) for one in chosen}
        return {name: job.result() for name, job in jobs.items()}


def build(one: Example) -> None:
    """For the CPU only; the GPU's compiler is not needed to judge."""
    command = [
        sys.executable,
        "-c",
        "import sys, harness.inline as i, runpy; i.install('cpu'); runpy.run_path(sys.argv[1])",
        str(one.solution),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, check=True, capture_output=True)


@each
def test_right_on_the_cpu(one, reports):
    report = reports[one.name]
    assert report["failure"] is None, report["failure"]
    assert {case["case"]["name"] for case in report["cases"]} >= {"small"}
    for case in report["cases"]:
        assert case["failure"] is None, case["failure"]
        assert case["check"]["ok"], case["check"]["message"]


@pytest.mark.gpu
@each
def test_right_at_full_size(one, tmp_path):
    words = ["--reference", one.reference, "--solution", one.solution, "--check-only"]
    done = subprocess.run(
        [sys.executable, ROOT / "run_eval.py", *words, "--json", tmp_path / "report.json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_every_kind_is_there():
    assert sorted(KINDS.values()) == sorted(one.name for one in ALL)


@each
def test_kernelbench_loads_it_unchanged(one):
    names = {}
    text = one.reference.read_text(encoding="utf-8")
    exec(compile(text, "<string>", "exec"), names)
    for function in ("get_inputs", "get_init_inputs"):
        assert inspect.signature(names[function]).bind() is not None
    inspect.signature(names["Model"]).bind(*names["get_init_inputs"]())
    solution = one.solution.read_text(encoding="utf-8")
    said = (
        *submit_scan.scan(one.solution.name, solution, KERNELBENCH),
        *submit_scan.shared_names(one.solution.name, solution, text, KERNELBENCH),
    )
    assert [finding.text for finding in said if finding.level is not Level.NOTE] == []


@each
def test_the_large_case_is_left_to_a_gpu(one):
    declared = problem.declared(one.reference)
    assert declared.gpu_only == {"headline"}
    assert declared.cases[0].sizes == {}
