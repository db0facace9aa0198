"""KernelBench's file names and result file."""

import pytest

from harness.formats import kernelbench
from harness.records import (
    Case,
    CaseReport,
    Check,
    Environment,
    Failed,
    Failure,
    Outcome,
    Report,
    Speed,
    Stat,
    Timing,
)  # fmt: skip


def stat(us):
    return Stat(us, us, us, 0.0, 30)


def report(name, solution_us=None, eager_us=None, failure=None):
    speed = None
    if solution_us:
        rival = Timing("eager", call=stat(eager_us))
        speed = Speed(Timing("solution", call=stat(solution_us)), (rival,))
    case = CaseReport(Case("headline"), Check(True, 5, 0.1, 0.1), speed)
    where = Environment(device="cuda:0", gpu="NVIDIA H200")
    return Report("op", "r.py", name, where, cases=() if failure else (case,), failure=failure)


def test_names_of_a_run_folder():
    found = kernelbench.sample_of("runs/a b/level_3_problem_28_sample_11_kernel.py")
    assert found == kernelbench.Sample(3, 28, 11)
    assert kernelbench.sample_of("19_ReLU.py") is None


def test_problem_by_number_by_name_and_alone(write, tmp_path):
    first = write("KB/level1/1_Square matrix.py", "")
    write("KB/level1/11_Other.py", "")
    write("KB/level2/1_Conv.py", "")
    run_file = tmp_path / "level_1_problem_1_sample_0_kernel.py"
    assert kernelbench.problem_for(run_file, tmp_path / "KB") == first
    assert kernelbench.problem_for(run_file, tmp_path / "KB" / "level1") == first
    assert kernelbench.problem_for(tmp_path / "x" / "1_Square matrix.py", tmp_path / "KB") == first
    assert kernelbench.problem_for(tmp_path / "any.py", first) == first
    with pytest.raises(Failed, match="no problem level2/1_"):
        kernelbench.problem_for(run_file, tmp_path / "KB" / "level2")
    with pytest.raises(Failed, match=r"no problem any.py below"):
        kernelbench.problem_for(tmp_path / "any.py", tmp_path / "KB")


def test_eval_results_has_their_keys_in_milliseconds():
    failure = Failure(Outcome.DOES_NOT_BUILD, "build", "expected ';'")
    levels = kernelbench.eval_results(
        [
            report("level_1_problem_2_sample_0_kernel.py", 500.0, 1000.0),
            report("level_1_problem_2_sample_1_kernel.py", failure=failure),
            report("level_2_problem_2_sample_0_kernel.py"),
            report("mine.py"),
        ]
    )
    assert sorted(levels) == [1, 2]
    right, broken = levels[1]["2"]
    assert (right["runtime"], right["ref_runtime"]) == (0.5, 1.0)
    assert right["metadata"]["hardware"] == "NVIDIA H200"
    assert (broken["compiled"], broken["correctness"], broken["runtime"]) == (False, False, -1.0)
    assert broken["metadata"]["error"] == "expected ';'"
    assert levels[2]["2"][0]["correctness"] is True


def test_fast_p_counts_every_file_and_is_strict():
    failure = Failure(Outcome.CRASHED, "check", "signal 11")
    reports = [
        report("a", 500.0, 1000.0), report("b", 1000.0, 1000.0), report("c"),
        report("d", failure=failure),
    ]  # fmt: skip
    shares = {score.p: score.share for score in kernelbench.fast_p(reports)}
    assert shares == {0.0: 0.75, 0.5: 0.5, 0.8: 0.5, 1.0: 0.25, 1.5: 0.25, 2.0: 0.0}
