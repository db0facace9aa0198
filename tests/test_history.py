"""Runs are kept, survive being killed, and tell faster from slower."""

import dataclasses
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness import plan, versions
from harness.history import Change, History
from harness.records import (
    Case,
    CaseReport,
    Check,
    Environment,
    Failed,
    Report,
    Speed,
    Stat,
    Timing,
)


def stat(us, half=0.01):
    return Stat(us, us * (1 - half), us * (1 + half), half, 50)


def report(write, us, text="kernel", gpu="NVIDIA H200", ok=True, name="s.py"):
    reference, solution = write("r.py", "reference"), write(name, text)
    speed = Speed(Timing("solution", device=stat(us)), noise=0.01) if ok else None
    case = CaseReport(Case("headline"), Check(ok, 3, 0.1, 0.1), speed)
    environment = Environment(device="cuda:0", gpu=gpu)
    return Report("copy", str(reference), str(solution), environment, cases=(case,))


@pytest.fixture
def history(tmp_path):
    return History(tmp_path / "cache" / "history.sqlite")


def test_a_run_comes_back_whole(history, write):
    kept = report(write, 5.0)
    history.add(kept)
    assert history.runs("copy")[0].report == kept
    assert history.runs("other") == ()


def test_change_against_the_last_run_of_the_same_place(history, write):
    history.add(report(write, 10.0))
    history.add(report(write, 8.0, gpu="another"))
    history.add(report(write, 0, ok=False))
    (change,) = history.changes(report(write, 5.0))
    assert change.ratio.median == pytest.approx(2.0)
    assert change.ratio.verdict == "faster"
    assert change.ratio.low < 2 < change.ratio.high


def test_another_reference_is_another_problem(history, write):
    history.add(report(write, 10.0))
    now = report(write, 5.0)
    write("r.py", "changed reference")
    assert history.changes(now) == ()


@pytest.mark.parametrize(
    ("before", "now", "half", "verdict"),
    [
        (10.0, 5.0, 0.01, "faster"),
        (5.0, 10.0, 0.01, "slower"),
        (50.0, 50.2, 0.01, "same"),
        (5.0, 5.1, 0.001, "same"),
        (5.0, 5.5, 0.2, "cannot tell"),
    ],
)
def test_verdict(before, now, half, verdict):
    assert Change("a", stat(before, half), stat(now, half), 0.01).ratio.verdict == verdict


def test_best_gives_back_the_fastest_right_source(history, write):
    history.add(report(write, 10.0, "slow"))
    history.add(report(write, 3.0, "fast", name="t.py"))
    history.add(report(write, 0, "wrong", ok=False, name="u.py"))
    write("t.py", "edited since")
    run, text = history.best("copy")
    assert text == "fast"
    assert run.report.cases[0].speed.solution.device.median_us == 3.0
    assert history.best("other") is None


def test_best_does_not_ask_for_times_of_cases_that_are_checked_only(history, write):
    kept = report(write, 5.0, "kernel")
    edge = CaseReport(Case("empty"), Check(True, 3, 0.0, 0.0))
    history.add(dataclasses.replace(kept, cases=(*kept.cases, edge)))
    assert history.best("copy")[1] == "kernel"


def test_best_is_of_one_gpu(history, write):
    history.add(report(write, 1.0, "elsewhere", gpu="another"))
    history.add(report(write, 5.0, "here", name="t.py"))
    assert history.best("copy")[1] == "here"


def test_a_version_is_a_file_a_run_or_a_commit(history, write, tmp_path):
    number = history.add(report(write, 5.0, "of the run"))
    path = write("own.py", "own")
    assert versions.resolve(str(path), "copy", history, tmp_path) == str(path)
    kept = versions.resolve(str(number), "copy", history, tmp_path)
    assert Path(kept).read_text() == "of the run"
    for word in ("99999", "--output=x", "no_such_branch"):
        with pytest.raises(Failed, match="no file, no kept run"):
            versions.resolve(word, "copy", history, tmp_path)


def test_a_version_of_a_commit(history, tmp_path, monkeypatch):
    folder = tmp_path / "checkout"
    (folder / "solutions").mkdir(parents=True)
    (folder / "solutions" / "copy.py").write_text("committed")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["tag", "v1"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(plan, "ROOT", folder)
    found = versions.resolve("v1", "copy", history, tmp_path)
    assert Path(found).read_text() == "committed"


def test_two_writers_at_once_lose_nothing(history, write):
    kept = report(write, 5.0)

    def many():
        for _ in range(20):
            history.add(dataclasses.replace(kept))

    threads = [threading.Thread(target=many) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(history.runs("copy", 1000)) == 80


def test_killed_while_writing(history, write):
    history.add(report(write, 5.0))
    code = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1])\n"
        "db.execute('insert into sources values (1, 2)')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(history.path)], check=False, cwd=plan.ROOT)
    history.add(report(write, 6.0))
    assert len(history.runs("copy")) == 2
