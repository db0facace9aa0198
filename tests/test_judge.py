"""One process judges one solution and always leaves exactly one Report."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import judge, problem
from harness.records import Case, Outcome, Plan, Report, from_dict, to_dict

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = """
import torch
CASES = {"headline": {}, "small": dict(rows=2), "empty": dict(rows=0)}
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs(rows=9):
    return [torch.randn(rows, 5)]
def get_init_inputs():
    return []
"""
RIGHT = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        "


@pytest.fixture
def run(write, tmp_path, capsys):
    """Judge a forward's text, or a whole file's; returns the Report."""

    def make(body: str, reference: str = REFERENCE, **fields) -> Report:
        reference_file = write("ref.py", reference)
        solution = write("sol.py", body if "class ModelNew" in body else RIGHT + body)
        cases = fields.pop("cases", None) or problem.declared(reference_file).cases
        plan = Plan("toy", str(reference_file), str(solution), cases, "cpu", **fields)
        write("plan.json", json.dumps(to_dict(plan)))
        report = tmp_path / "report.json"
        assert judge.main([str(tmp_path / "plan.json"), str(report)]) == 0
        return from_dict(Report, json.loads(report.read_text()))

    return make


def outcomes(report: Report) -> list[str]:
    return [case.outcome.value for case in report.cases]


def test_a_right_solution(run, capsys):
    report = run("return x.clamp(min=0)")
    assert outcomes(report) == ["correct"] * 3
    assert report.ok
    assert report.cases[0].check.trials >= 6
    assert report.cases[0].not_timed == "no GPU"
    progress = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert "small (2 of 3)" in progress


def test_a_wrong_one_says_where_and_how_to_run_it_again(run):
    report = run("return torch.relu(x) + (x.shape[0] == 2)", seed=1234)
    assert outcomes(report) == ["correct", "wrong", "correct"]
    message = report.cases[1].check.message
    assert message.startswith("toy/small: out[")
    files = f"--reference {report.reference} --solution {report.solution}"
    assert message.endswith(f"Rerun: python run_eval.py {files} --case small --seed 1234")


def test_equal_seeds_give_equal_sentences(run):
    first, again = (run("return x", seed=7).cases[0].check.message for _ in range(2))
    assert first == again


def test_without_a_seed_each_run_draws_another(run):
    assert run("return torch.relu(x)").seed != run("return torch.relu(x)").seed


def test_the_seed_is_not_in_the_file_while_a_candidate_lives(run):
    body = (
        "import json, pathlib\n        "
        "report = pathlib.Path(__file__).with_name('report.json').read_text()\n        "
        "assert json.loads(report)['seed'] is None\n        "
        "return torch.relu(x)"
    )
    report = run(body, seed=424242)
    assert outcomes(report) == ["correct"] * 3
    assert report.seed == 424242


def test_a_crash_costs_one_case(run):
    report = run("import os\n        return torch.relu(x) if x.shape[0] != 2 else os._exit(0)")
    assert outcomes(report) == ["correct", "crashed", "correct"]
    assert "exit code 0 during call" in report.cases[1].failure.message


def test_a_file_that_does_not_load_is_one_row(run):
    report = run("class ModelNew:\n    pass\nraise ValueError('no such thing')")
    assert report.failure.outcome is Outcome.DOES_NOT_LOAD
    assert "sol.py:3: ValueError: no such thing" in report.failure.message
    assert report.cases == ()


def test_a_syntax_error_is_told_with_its_line(run):
    report = run("class ModelNew(:\n    pass")
    assert report.failure.outcome is Outcome.DOES_NOT_LOAD
    assert "sol.py:1" in report.failure.message


def test_a_reference_that_fails_is_not_the_solutions_fault(run):
    broken = REFERENCE.replace("torch.relu(x)", "x.view(3, 7, 11)")
    report = run("return torch.relu(x)", reference=broken)
    assert outcomes(report)[0] == "reference failed"
    assert "the reference's forward stops with RuntimeError" in report.cases[0].failure.message


def test_a_reference_that_does_not_load(run):
    report = run("return x", reference=REFERENCE + "\nraise OSError('gone')", cases=(Case("a"),))
    assert report.failure.outcome is Outcome.REFERENCE_FAILED


def test_hopeless_solutions_do_not_use_up_the_time(run):
    started = time.monotonic()
    report = run("while True: pass", time_limit_s=12.0)
    assert outcomes(report) == ["timed out", "timed out", "skipped"]
    assert time.monotonic() - started < 30


def test_a_loose_tolerance_is_warned_about_and_zeros_are_still_wrong(run):
    loose = REFERENCE + "\nTOLERANCE = dict(rtol=1, atol=9)\n"
    report = run("return torch.zeros_like(x)", reference=loose)
    assert report.cases[0].outcome is Outcome.WRONG
    assert "out is zeros; the reference's result is not" in report.cases[0].check.message
    right = run("return torch.relu(x)", reference=loose)
    assert any("would pass zeros" in note for note in right.cases[0].check.notes)


def test_a_reference_that_ignores_its_input_is_warned_about(run):
    constant = REFERENCE.replace("torch.relu(x)", "torch.ones_like(x)")
    report = run("return torch.ones_like(x)", reference=constant)
    assert any("the same for different inputs" in note for note in report.cases[0].check.notes)


def test_random_references_are_compared_under_equal_seeds(run):
    drawn = REFERENCE.replace("torch.relu(x)", "torch.nn.functional.dropout(x, 0.5)")
    report = run("return torch.nn.functional.dropout(x, 0.5, True)", reference=drawn)
    assert report.cases[0].outcome is Outcome.CORRECT
    assert any("draws random numbers" in note for note in report.cases[0].check.notes)


def test_prints_are_kept_apart(run):
    report = run("print('hello from inside')\n        return torch.relu(x)")
    assert "hello from inside" in report.stdout


def test_killing_the_judge_ends_its_candidate_and_leaves_what_was_finished(write, tmp_path):
    reference, solution = write("ref.py", REFERENCE), write("sol.py", RIGHT + HANGS)
    cases = problem.declared(reference).cases
    plan = Plan("toy", str(reference), str(solution), cases, "cpu")
    plan_file = write("plan.json", json.dumps(to_dict(plan)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "harness.judge", str(plan_file), str(tmp_path / "r.json")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        report = _wait_for_first_case(tmp_path / "r.json")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [case.outcome for case in report.cases] == [Outcome.CORRECT]
    assert _soon(lambda: not _mentions("sleep\x007171"))


def test_killing_the_run_ends_its_judge_and_leaves_nothing_behind(write, tmp_path):
    """SIGKILL of run_eval.py: no process and no scratch folder stays."""
    reference, solution = write("ref.py", REFERENCE), write("sol.py", RIGHT + HANGS)
    command = [sys.executable, str(ROOT / "run_eval.py"), "--check-only", "--device", "cpu"]
    command += ["--reference", str(reference), "--solution", str(solution)]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "STEELYARD_CACHE": str(tmp_path)}
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with subprocess.Popen(command, env=environment, **quiet) as process:
        assert _soon(lambda: _mentions("sleep\x007171"), 60)
        assert _mentions(f"harness.judge\x00{tmp_path}")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert _soon(lambda: not _mentions("sleep\x007171"))
    assert _soon(lambda: not _mentions(f"harness.judge\x00{tmp_path}"))
    assert _soon(lambda: not list(temporary.glob("steelyard-*")))


def _soon(done, seconds: float = 5) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not done():
        time.sleep(0.05)
    return done()


HANGS = (
    "import subprocess\n        if x.shape[0] == 2: subprocess.run(['sleep', '7171'])"
    "\n        return torch.relu(x)"
)


def _wait_for_first_case(path: Path) -> Report:
    for _ in range(600):
        if path.exists():
            report = from_dict(Report, json.loads(path.read_text()))
            if report.cases and _mentions("sleep\x007171"):
                return report
        time.sleep(0.1)
    raise AssertionError("no case was finished within 60 s")


def _mentions(words: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if words.encode() in (entry / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def test_a_backward_that_uses_up_its_graph_is_right(run):
    """As that of torch.compile, which reuses saved buffers and refuses to run on a kept graph."""
    solution = """
import torch
class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)
    @staticmethod
    def backward(ctx, grad):
        assert not torch._C._autograd._get_current_graph_task_keep_graph()
        (x,) = ctx.saved_tensors
        return grad * (x > 0)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Relu.apply(x)
"""
    cases = (Case("headline"), Case("headline", backward=True))
    report = run(solution, cases=cases)
    assert outcomes(report) == ["correct"] * 2, report.failure
