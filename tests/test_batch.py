"""Batches: each file one row, nothing done twice, nothing lost when killed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from harness import batch, plan, run
from harness.batch_rows import Row, Rows
from harness.records import Build, Case, CaseReport, Check, Failed, Failure, Outcome, Report

PROBLEM = (
    "import torch\n"
    "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
    "def get_inputs():\n    return [torch.randn(8, 8)]\n"
    "def get_init_inputs():\n    return []\n"
)
SOLUTION = (
    "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    "        return x.clamp(min=0)\n"
)
CPU = plan.Request(device="cpu", timing=False)
RIGHT = CaseReport(Case("headline"), Check(True, 5, 0.5, 1e-6))


@pytest.fixture
def place(write, tmp_path):
    write("problems/level1/19_ReLU.py", PROBLEM)
    write("run/level_1_problem_19_sample_0_kernel.py", SOLUTION)
    write("run/level_1_problem_19_sample_1_kernel.py", SOLUTION + "# the same but for this\n")
    write("run/level_1_problem_19_sample_2_kernel.py", SOLUTION)
    write("run/level_1_problem_20_sample_0_kernel.py", SOLUTION)
    return tmp_path


@pytest.fixture
def leaderboard(write):
    """A GPU MODE problem, against which every submission is judged."""
    write("double/reference.py", "")
    write("subs/a.py", "def custom_kernel(data):\n    return data\n")
    write("subs/b.py", "def custom_kernel(data):\n    return data + 0\n")
    return write("double/task.yml", "tests: [{size: 1}]\n").parent


def test_every_submission_belongs_to_the_one_folder_of_gpumode(leaderboard, write):
    files = batch.solutions([leaderboard.parent / "subs"])
    found = tuple(batch.tasks(files, leaderboard, CPU))
    assert [task.plan.entry for task in found] == ["custom_kernel"] * 2
    write("double/reference.py", "# changed")
    changed = tuple(batch.tasks(files, leaderboard, CPU))
    assert {task.key for task in found}.isdisjoint(task.key for task in changed)


@pytest.fixture
def judged(monkeypatch):
    """Names of the files that were really judged, in order."""
    names = []

    def prepare(plans, listen):
        return tuple(run.Prepared(p, Build(p.solution, 0.0, False)) for p in plans)

    def judge(ready, step, keep):
        names.append(ready.plan.solution.rsplit("/", 1)[1][:-10])
        one = ready.plan
        return Report(one.op, one.reference, one.solution, cases=(RIGHT,))

    monkeypatch.setattr(run, "prepare", prepare)
    monkeypatch.setattr(run, "judge", judge)
    return names


def carry_out(place):
    files = batch.solutions([place / "run"])
    todo = tuple(batch.tasks(files, place / "problems", CPU))
    rows = Rows(place / "out.jsonl")
    try:
        batch.judge_all(todo, rows, lambda step: None)
    finally:
        rows.close()
    return todo, rows.rows


def test_each_file_gets_a_row_and_equal_content_is_judged_once(place, judged):
    _, rows = carry_out(place)
    assert judged == ["level_1_problem_19_sample_0", "level_1_problem_19_sample_1"]
    by_name = {row.report.solution.rsplit("/", 1)[1]: row for row in rows}
    assert len(by_name) == 4
    assert by_name["level_1_problem_19_sample_2_kernel.py"].same_as.endswith("sample_0_kernel.py")
    missing = by_name["level_1_problem_20_sample_0_kernel.py"].report.failure
    assert "no problem level1/20_*.py" in missing.message


def test_a_second_run_does_nothing_and_a_changed_file_is_judged_again(place, judged, write):
    carry_out(place)
    judged.clear()
    carry_out(place)
    assert judged == []
    write("run/level_1_problem_19_sample_1_kernel.py", SOLUTION + "# changed\n")
    todo, rows = carry_out(place)
    assert judged == ["level_1_problem_19_sample_1"]
    assert len(batch.latest(rows, todo)) == 4
    write("problems/level1/19_ReLU.py", PROBLEM + "# changed\n")
    judged.clear()
    carry_out(place)
    assert len(judged) == 2


def test_a_line_that_a_killed_run_left_unfinished_is_cut_off(place, judged):
    carry_out(place)
    path = place / "out.jsonl"
    whole = path.read_bytes()
    last = whole.splitlines(True)[-1]
    path.write_bytes(whole[: -len(last) // 2])
    judged.clear()
    _, rows = carry_out(place)
    assert len(rows) == 4
    assert all(json.loads(line)["key"] for line in path.read_text().splitlines())


def test_the_machine_s_fault_is_tried_again(tmp_path):
    rows = Rows(tmp_path / "a.jsonl")
    failure = Failure(Outcome.ENVIRONMENT, "build", "no nvcc")
    rows.add(Row("k", Report("a", "r", "s", failure=failure)))
    rows.close()
    again = Rows(tmp_path / "a.jsonl")
    again.close()
    assert [row.settled for row in again.rows] == [False]


def test_bad_files_get_a_sentence(tmp_path, write):
    write("other.jsonl", '{"a": 1}\n')
    with pytest.raises(Failed, match=r"other.jsonl:1: is not a row of a batch"):
        Rows(tmp_path / "other.jsonl")
    held = Rows(tmp_path / "a.jsonl")
    with pytest.raises(Failed, match="another batch is writing"):
        Rows(tmp_path / "a.jsonl")
    held.close()
    with pytest.raises(Failed, match="no such file or folder"):
        batch.solutions([tmp_path / "absent"])


def command(place):
    words = ["batch", "run", "--problems", "problems", "--into", "out.jsonl", "--device", "cpu"]
    return [sys.executable, str(plan.ROOT / "run_eval.py"), *words]


@pytest.mark.slow
def test_command_survives_sigkill_and_goes_on(place):
    """Killed after its first row; the second run judges only the rest."""
    out = place / "out.jsonl"
    started = subprocess.Popen(
        command(place), cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (not out.exists() or out.read_bytes().count(b"\n") < 2):
        time.sleep(0.1)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    before = out.read_bytes().splitlines()
    assert 2 <= len(before) < 4
    done = subprocess.run(command(place), cwd=place, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    lines = out.read_bytes().splitlines()
    assert lines[: len(before)] == before
    assert len(lines) == 4
    assert "3 correct" in done.stdout
    assert "p > 0    75.0%   75.0%" in done.stdout
    results = json.loads((place / "out.eval_results.json").read_text())
    assert [e["correctness"] for e in results["19"]] == [True, True, True]
    assert results["20"][0]["compiled"] is False
    assert results["19"][0]["runtime"] == -1.0
