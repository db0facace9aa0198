"""Watch mode: a save runs again, a broken file keeps the last good result, nothing is left."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from harness import plan, run, watch
from harness.records import Case, CaseReport, Check, Environment, Failure, Outcome, Report
from harness.report import progress, screen

REFERENCE = """import torch, torch.nn as nn
CASES = {"headline": {}}
TOLERANCE = dict(rtol=1e-5, atol=1e-6)
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(8, 8)]
def get_init_inputs():
    return []
"""
SOLUTION = """import torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def test_files_that_concern_a_solution(tmp_path):
    files = watch.Files(tmp_path / "s" / "a.py", tmp_path / "r" / "a.py")
    assert files.concern(str(tmp_path / "s" / "a.py"))
    assert files.concern(str(tmp_path / "r" / "a.py"))
    assert files.concern(str(tmp_path / "s" / "tile.cuh"))
    assert not files.concern(str(tmp_path / "s" / "other.py"))
    assert not files.concern(str(tmp_path / "r" / "tile.cuh"))
    assert not files.concern(str(tmp_path / "s" / ".a.py.swp"))


@pytest.mark.parametrize("how", ["in place", "by renaming"])
def test_a_save_is_seen(tmp_path, how):
    target = tmp_path / "a.py"
    target.write_text("one")
    with watch.saves(watch.Files(target, target)) as saved:
        time.sleep(0.3)
        if how == "in place":
            target.write_text("two")
        else:
            (tmp_path / "new").write_text("two")
            os.replace(tmp_path / "new", target)
        assert saved.happened.wait(5)
        with pytest.raises(watch.Superseded):
            saved.check()


def right(op="toy"):
    case = CaseReport(Case("headline"), Check(True, 3, 0.0, 0.0))
    return Report(op, "r.py", "s.py", Environment(device="cpu", torch="2"), cases=(case,))


def test_a_build_error_keeps_the_last_good_result_in_view():
    out = Console(width=100, file=io.StringIO(), force_terminal=True)
    shown = screen.Screen(out)
    shown.show(right(), ())
    failure = Failure(Outcome.DOES_NOT_BUILD, "build", "s.py:7: identifier is undefined")
    before = out.file.tell()
    shown.show(Report("toy", "r.py", "s.py", failure=failure), ())
    text = out.file.getvalue()[before:]
    assert "\x1b[2J" in text  # in place of the table before
    assert "s.py:7: identifier is undefined" in text
    assert text.index("identifier is undefined") < text.index("The last good result")
    assert "correct" in text[text.index("The last good result") :]


def test_remaining_time():
    assert progress.remaining_s(10, 0, 4) is None
    assert progress.remaining_s(10, 2, 4) == 10
    assert progress.remaining_s(10, 4, 4) == 0


class Session:
    """`run_eval.py --watch` on copies of two files, with what it printed so far."""

    def __init__(self, folder: Path):
        self.solution, reference = folder / "sol.py", folder / "toy.py"
        self.solution.write_text(SOLUTION)
        reference.write_text(REFERENCE)
        command = [sys.executable, str(plan.ROOT / "run_eval.py"), "--reference", str(reference)]
        command += ["--solution", str(self.solution), "--device", "cpu", "--watch"]
        environment = {**os.environ, "STEELYARD_CACHE": str(folder / "cache")}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.text = ""
        self.marker = str(folder)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.text += line

    def until(self, words: str, times: int = 1, limit_s: float = 90):
        deadline = time.monotonic() + limit_s
        while self.text.count(words) < times:
            assert time.monotonic() < deadline, self.text
            assert self.process.poll() is None, self.text
            time.sleep(0.1)

    def left_behind(self) -> list[str]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environment = (entry / "environ").read_bytes()
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if self.marker.encode() in environment + words and words:
                found.append(words.decode().replace("\0", " "))
        return found


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "TERM"])
def test_two_edits_then_an_end_that_leaves_nothing(tmp_path, ending):
    session = Session(tmp_path)
    try:
        session.until(screen.WAITING)
        session.solution.write_text(SOLUTION.replace("torch.relu(x)", "torch.relu(x) + 1"))
        session.until(screen.WAITING, 2)
        assert "wrong" in session.text, session.text
        session.solution.write_text(SOLUTION + "oops(\n")
        session.until("The last good result", 1)
        session.until(screen.WAITING, 3)
        session.solution.write_text(SOLUTION)
        session.until(screen.WAITING, 4)
        assert session.left_behind()
        session.process.send_signal(ending)
        assert session.process.wait(20) == 130
        for _ in range(100):
            if not session.left_behind():
                break
            time.sleep(0.1)
        assert session.left_behind() == []
        assert "Traceback" not in session.text
    finally:
        session.process.kill()
        session.process.wait()
        session.process.stdout.close()


def test_the_estimate_is_of_the_cases_and_leaves_the_builds_out(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    line = progress._Line()
    now[0] = 100.0
    line.note(run.Progress("copy", "building", 0, 1))
    assert "left" not in line.text()
    line.note(run.Progress("copy", "headline", 0, 1, 0, 10))
    now[0] = 110.0
    line.note(run.Progress("copy", "odd", 0, 1, 5, 10))
    assert "110 s in all, about 10 s left" in line.text()
