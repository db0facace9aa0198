"""Every known way to fool a harness gets the verdict that its first line states, as does its twin.

One run judges all files of tests/bad_solutions, two at a time; each test looks at one of them.
"""

import ast
import concurrent.futures
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("bad_solutions")
STATED = re.compile(
    r'Verdict: (?P<outcomes>[a-zA-Z |]+?)(?:, (?P<where>labelled|noted) "(?P<text>[^"]+)")?\.'
)


@dataclass(frozen=True)
class Stated:
    """What a file says of itself: the verdict it must get, and what it needs to be judged."""

    name: str
    outcomes: tuple[str, ...]
    where: str
    text: str
    reference: str
    device: str
    limit_s: float


def stated(path: Path) -> Stated:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    first = ast.get_docstring(tree).splitlines()[0]
    match = STATED.match(first)
    assert match, f"{path.name}: the first line must state a verdict, got {first!r}"
    values = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    return Stated(
        name=path.stem,
        outcomes=tuple(o.strip() for o in match["outcomes"].split("|")),
        where=match["where"] or "",
        text=match["text"] or "",
        reference=values["REFERENCE"],
        device=values.get("DEVICE", "cpu"),
        limit_s=values.get("LIMIT_S", 120.0),
    )


ALL = [stated(path) for path in sorted(FOLDER.glob("*.py")) if "reference_" not in path.name]
ON_CPU = [s for s in ALL if s.device == "cpu"]
ON_GPU = [s for s in ALL if s.device == "cuda"]


def judge(one: Stated, folder: str) -> dict:
    """Judge one file in this process, against a copy of its reference."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from harness import judge, problem
    from harness.records import Plan, to_dict

    home = Path(folder) / one.name
    home.mkdir()
    reference = Path(shutil.copy(FOLDER / f"reference_{one.reference}.py", home))
    device = "cuda:0" if one.device == "cuda" else "cpu"
    plan = Plan(
        op=one.reference,
        reference=str(reference),
        solution=str(FOLDER / f"{one.name}.py"),
        cases=problem.declared(reference).cases,
        device=device,
        rivals=("eager",) if device != "cpu" else (),
        time_limit_s=one.limit_s,
    )
    plan_file, report_file = home / "plan.json", home / "report.json"
    plan_file.write_text(json.dumps(to_dict(plan)), encoding="utf-8")
    assert judge.main([str(plan_file), str(report_file)]) == 0
    return json.loads(report_file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def reports(request, tmp_path_factory):
    """The report of each selected file, by name."""
    return _judge_all(_selected(request, "cpu"), str(tmp_path_factory.mktemp("cpu")), 2)


@pytest.fixture(scope="module")
def gpu_reports(request, tmp_path_factory):
    """One at a time: they share one GPU."""
    return _judge_all(_selected(request, "cuda"), str(tmp_path_factory.mktemp("gpu")), 1)


def _selected(request, device: str) -> list[Stated]:
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    found = [call.params.get("one") for call in calls if call is not None]
    return [one for one in found if isinstance(one, Stated) and one.device == device]


def _judge_all(chosen, folder: str, workers: int) -> dict:
    _build(chosen)
    _build(chosen)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        jobs = {one.name: pool.submit(judge, one, folder) for one in chosen}
        return {name: job.result() for name, job in jobs.items()}


def _build(chosen: list[Stated]) -> None:
    """As a run does: what a candidate loads was built before it started."""
    paths = [FOLDER / f"{one.name}.py" for one in chosen]
    paths = [str(path) for path in paths if "load_inline" in path.read_text(encoding="utf-8")]
    if paths and chosen[0].device == "cuda":
        from harness import build

        built = build.build_all(paths, "cuda:0", lambda event: None)
        assert not [result for result in built.values() if hasattr(result, "outcome")], built
    elif paths:
        for path in paths:
            command = [sys.executable, "-m", "harness.build_worker", path, "cpu", "cpu", "1"]
            subprocess.run(command, cwd=FOLDER.parent.parent, capture_output=True, timeout=300)


def verdict(report: dict) -> tuple[str, str]:
    """The worst row's outcome and everything the report says about it."""
    from harness.records import Report, from_dict

    record = from_dict(Report, report)
    said = [*record.notes, *record.environment.notes]
    if record.failure is not None:
        return record.failure.outcome.value, f"{record.failure} {said}"
    for case in record.cases:
        said += [*case.labels, *(case.check.notes if case.check else ())]
    bad = [case for case in record.cases if case.outcome.value != "correct"]
    if not bad:
        return "correct", " ; ".join(said)
    return bad[0].outcome.value, f"{bad[0].check} {bad[0].failure} {said}"


def examine(one: Stated, report: dict) -> None:
    outcome, said = verdict(report)
    assert outcome in one.outcomes, said
    if one.text:
        assert one.text in said
    if one.name.endswith("__honest"):
        accusing = ["replaced", "ignores the current"]
        accusing += (
            ["no kernel of yours", "own kernels take"]
            if one.name.startswith(("gpu", "cpu"))
            else []
        )
        assert not [words for words in accusing if words in said], said


@pytest.mark.parametrize("one", ON_CPU, ids=lambda one: one.name)
def test_verdict(one, reports):
    examine(one, reports[one.name])


@pytest.mark.gpu
@pytest.mark.parametrize("one", ON_GPU, ids=lambda one: one.name)
def test_verdict_on_the_gpu(one, gpu_reports):
    examine(one, gpu_reports[one.name])


def test_every_sin_has_an_honest_twin_or_a_neighbour():
    """A sin without a twin of its own shares its reference with at least one honest file."""
    honest = {one.reference for one in ALL if one.outcomes == ("correct",)}
    assert {one.reference for one in ALL} <= honest


def test_nothing_is_left_running(reports):
    """The sleeps that left_processes starts are gone with it."""
    if "left_processes" not in reports:
        pytest.skip("left_processes was not selected")
    lines = [Path(p, "cmdline") for p in Path("/proc").glob("[0-9]*")]
    running = [line.read_bytes() for line in lines if line.exists()]
    assert not [line for line in running if line.startswith(b"sleep\x00313")]


def test_printing_is_bounded(reports):
    if "floods_output" not in reports:
        pytest.skip("floods_output was not selected")
    assert 1000 < len(reports["floods_output"]["stdout"]) < 100_000
    assert "not kept" in reports["floods_output"]["stdout"]
