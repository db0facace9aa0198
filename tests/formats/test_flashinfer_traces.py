"""Reports as Traces that flashinfer-bench would load: statuses, errors, milliseconds, gaps."""

import json
import math

import pytest
from flashinfer_set import RETURNS, DataSet, workload

from harness import plan
from harness.formats.flashinfer_traces import STATUSES, traces
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
)
from harness.report import traces as trace_file

CHECK = Check(True, 5, 0.25, 1e-6, worst_rel=2e-6)


def stat(microseconds: float) -> Stat:
    return Stat(microseconds, microseconds, microseconds, 0.0, 10)


SPEED = Speed(
    Timing("solution", call=stat(30.0), device=stat(12.5)),
    (Timing("eager", call=stat(90.0), device=stat(50.0)), Timing("compile", device=stat(1.0))),
)


@pytest.fixture
def one(write):
    """A plan of two workloads and a Solution named "mine"."""
    data = DataSet(write)
    definition, path = data.definition(), data.solution("mine", {"main.py": RETURNS})
    request = plan.Request(reference=str(definition), solution=str(path))
    (made,) = plan.plans(request)
    return made


def report(one, *cases: CaseReport, failure: Failure | None = None) -> Report:
    where = Environment(device="cuda:0", gpu="NVIDIA H200", torch="2.14.1", cuda="13.0")
    return Report(
        one.op,
        one.reference,
        one.solution,
        where,
        cases=cases,
        failure=failure,
        started="2026-12-01T05:00:00+00:00",
    )


def only(one, case: CaseReport) -> dict:
    """The evaluation of the one trace of a report with one case."""
    (line,) = traces(one, report(one, case)).lines
    return line["evaluation"]


def test_a_right_and_timed_case_passed(one):
    (line,) = traces(one, report(one, CaseReport(one.cases[1], CHECK, SPEED))).lines
    assert line == {
        "definition": "scale_rows",
        "workload": workload(1, 33)["workload"],
        "solution": "mine",
        "evaluation": {
            "status": "PASSED",
            "environment": {
                "hardware": "NVIDIA H200",
                "libs": {"torch": "2.14.1", "cuda": "13.0"},
            },
            "timestamp": "2026-12-01T05:00:00+00:00",
            "log": "",
            "correctness": {"max_relative_error": 2e-6, "max_absolute_error": 1e-6},
            "performance": {
                "latency_ms": 0.0125,
                "reference_latency_ms": 0.05,
                "speedup_factor": 4.0,
            },
        },
    }


def test_whole_calls_are_compared_where_one_side_has_no_device_time(one):
    speed = Speed(SPEED.solution, (Timing("eager", call=stat(90.0)),))
    found = only(one, CaseReport(one.cases[0], CHECK, speed))["performance"]
    assert found["latency_ms"] == pytest.approx(0.03)
    assert found["speedup_factor"] == pytest.approx(3.0)


WRONG = [
    ("values", "INCORRECT_NUMERICAL"),
    ("shape", "INCORRECT_SHAPE"),
    ("dtype", "INCORRECT_DTYPE"),
    ("", "RUNTIME_ERROR"),
]


@pytest.mark.parametrize(("mismatch", "status"), WRONG)
def test_what_is_wrong_decides_the_status(one, mismatch, status):
    check = Check(False, 5, math.inf, math.inf, "op: m", worst_rel=math.inf, mismatch=mismatch)
    found = only(one, CaseReport(one.cases[0], check, labels=("a label",)))
    assert (found["status"], found["log"]) == (status, "op: m\na label")
    errors = {"max_relative_error": "Infinity", "max_absolute_error": "Infinity"}
    assert found["correctness"] == (errors if mismatch == "values" else None)
    assert found["performance"] is None


@pytest.mark.parametrize("outcome", STATUSES, ids=lambda outcome: outcome.value)
def test_a_failure_has_neither_errors_nor_times(one, outcome):
    failure = Failure(outcome, "check", f"{one.solution}: stopped", ("line 3",))
    found = only(one, CaseReport(one.cases[0], failure=failure))
    assert found["status"] == STATUSES[outcome]
    assert found["log"] == "mine.json: stopped\nline 3"
    assert found["correctness"] is None
    assert found["performance"] is None


def test_a_failure_of_the_whole_file_is_one_of_each_workload(one):
    failure = Failure(Outcome.DOES_NOT_BUILD, "build", "no")
    found = traces(one, report(one, failure=failure))
    assert [line["workload"]["axes"]["rows"] for line in found.lines] == [5, 33]
    assert {line["evaluation"]["status"] for line in found.lines} == {"COMPILE_ERROR"}


def test_what_the_format_cannot_say_is_left_out_and_told(one):
    untimed = CaseReport(one.cases[0], CHECK, not_timed="no GPU")
    failure = Failure(Outcome.REFERENCE_FAILED, "reference", "no")
    found = traces(one, report(one, untimed, CaseReport(one.cases[1], failure=failure)))
    assert found.lines == ()
    assert found.left_out == (
        "00000000: correct, not timed (no GPU)",
        "00000001: reference failed",
    )


@pytest.mark.parametrize("outcome", [Outcome.NEEDS_GPU, Outcome.ENVIRONMENT, Outcome.SKIPPED])
def test_no_verdict_is_no_trace(one, outcome):
    failure = Failure(outcome, "judge", "no")
    assert traces(one, report(one, failure=failure)).lines == ()


def test_sol_execbench_has_two_statuses_more(write):
    data = DataSet(write)
    definition, path = data.definition(), data.solution("mine", {"main.py": RETURNS})
    data.workloads(workload(0, 5)["workload"])  # bare, as SOL-ExecBench's
    (one,) = plan.plans(plan.Request(reference=str(definition), solution=str(path)))
    for outcome, status in (("refused", "REWARD_HACK"), ("reference failed", "INVALID_REFERENCE")):
        failure = Failure(Outcome(outcome), "check", "no")
        assert only(one, CaseReport(one.cases[0], failure=failure))["status"] == status


def test_the_file_has_one_object_a_line_and_says_what_is_missing(one, tmp_path):
    right = CaseReport(one.cases[0], CHECK, SPEED)
    untimed = CaseReport(one.cases[1], CHECK, not_timed="no GPU")
    target = tmp_path / "t.jsonl"
    said = trace_file.write([(one, report(one, right, untimed))], str(target))
    (line,) = target.read_text().splitlines()
    assert json.loads(line)["evaluation"]["status"] == "PASSED"
    assert said == (
        f"written: {target} (1 traces)",
        "without a trace: 00000001: correct, not timed (no GPU)",
    )


def test_traces_of_something_else_are_refused_before_it_is_judged(write):
    model = write("model.py", "class Model:\n    pass\n")
    other = plan.Plan("model", str(model), "x.py", (Case("headline"),), "cpu")
    with pytest.raises(Failed) as caught:
        trace_file.refuse_others([other])
    assert "is no Definition in JSON" in caught.value.failure.message
