"""Exit codes and what a person sees: bad requests, tables at several widths, JSON."""

import io
import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from rich.console import Console

from harness import plan
from harness.commands import exit_codes
from harness.records import (
    Case,
    CaseReport,
    Check,
    Environment,
    Failure,
    Outcome,
    Ratio,
    Report,
    Speed,
    Stat,
    Timing,
)
from harness.report import json_file, markdown, rows, terminal

RIGHT = CaseReport(Case("headline"), Check(True, 5, 0.5, 1e-6))
WRONG = CaseReport(Case("odd"), Check(False, 5, 3.0, 1.0, "copy/odd: out[3] = 1, want 2"))
NEEDS = CaseReport(
    Case("headline"), failure=Failure(Outcome.NEEDS_GPU, "check", "needs a GPU: wgmma at line 3")
)


def stat(us):
    return Stat(us, us, us, 0.01, 30)


TIMED = CaseReport(
    Case("headline"),
    Check(True, 5, 0.0, 0.0),
    Speed(
        Timing("solution", call=stat(9.0), device=stat(5.25)),
        (Timing("eager", device=stat(20.0)), Timing("compile", device=stat(10.5))),
        (Ratio("eager", 3.8, 3.7, 3.9, "faster"), Ratio("compile", 2.0, 1.9, 2.1, "faster")),
    ),
)


def report(*cases, failure=None, op="copy", solution="solutions/copy.py"):
    environment = Environment(device="cpu", torch="2")
    return Report(op, f"reference/{op}.py", solution, environment, cases=cases, failure=failure)


CRASHED = report(failure=Failure(Outcome.CRASHED, "check", "copy: signal 11"))


def run(*words, **kwargs):
    return subprocess.run(
        [sys.executable, str(plan.ROOT / "run_eval.py"), *words],
        capture_output=True,
        text=True,
        **kwargs,
    )


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        ((report(RIGHT),), 0),
        ((report(RIGHT), report(WRONG)), 1),
        ((report(RIGHT), CRASHED), 1),
        ((report(),), 1),
        ((), 1),
        ((report(RIGHT), report(NEEDS)), 4),
        ((report(WRONG), report(NEEDS)), 1),
        ((report(failure=Failure(Outcome.ENVIRONMENT, "build", "no nvcc")),), 3),
    ],
)
def test_exit_code(reports, code):
    assert exit_codes.of(reports) == code


def printed(reports, width=160) -> str:
    out = Console(width=width, record=True, file=io.StringIO())
    terminal.show(reports, out)
    return out.export_text()


def test_table_says_what_is_wrong_and_what_to_do_next():
    text = printed((report(RIGHT, WRONG), CRASHED))
    assert "out[3] = 1, want 2" in text
    assert "signal 11" in text
    last = text.strip().splitlines()[-1]
    assert "python run_eval.py copy --case odd" in last


def test_what_to_run_next_names_the_files_that_were_judged():
    odd = replace(WRONG, case=Case("not even"))
    assert terminal.closing((report(odd, solution="/my work/copy.py"),)).endswith(
        "python run_eval.py copy --solution '/my work/copy.py' --case 'not even'"
    )
    foreign = replace(CRASHED, reference="/a/copy.py", solution="/b/copy.py")
    assert terminal.closing((foreign,)) == (
        "No case was judged, 1 of 1 solutions not right: fix copy, then run: "
        "python run_eval.py --reference /a/copy.py --solution /b/copy.py"
    )


def test_table_of_times():
    text = printed((report(TIMED),))
    assert "5.25" in text
    assert "2.00x" in text
    assert "exact" in text


@pytest.mark.parametrize("width", [160, 80, 40])
def test_a_narrow_terminal_loses_columns_not_rows(width):
    text = printed((report(TIMED, WRONG),), width)
    assert "headline" in text
    assert "odd" in text
    assert "verdict" in text
    assert ("worst error" in text) == (width > 80)


def test_nothing_timed_is_said_plainly():
    assert "nothing was timed (no GPU" in printed((report(RIGHT),))


def test_json_round_trip(tmp_path):
    path = tmp_path / "r.json"
    json_file.write((report(TIMED), CRASHED), str(path))
    assert json_file.read(str(path)) == (report(TIMED), CRASHED)
    assert json.loads(path.read_text())["format"] == json_file.FORMAT


def test_json_names_files_of_this_checkout_from_its_root(tmp_path):
    ours = Report("copy", str(json_file.ROOT / "reference" / "copy.py"), "/elsewhere/copy.py")
    json_file.write((ours,), str(tmp_path / "r.json"))
    (read,) = json_file.read(str(tmp_path / "r.json"))
    assert (read.reference, read.solution) == ("reference/copy.py", "/elsewhere/copy.py")


def test_markdown_between_markers(tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{markdown.BEGIN}\nold\n{markdown.END}\nafter\n", encoding="utf-8")
    markdown.renew(page, (report(TIMED),))
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| copy | headline | correct | 5.25 | 20.00 | 10.50 | 2.00x |" in text


def test_markdown_has_a_column_for_peers_where_one_was_timed():
    peer, absent = Timing("peer:triton", device=stat(7.5)), Timing("peer:megatron")
    speed = replace(TIMED.speed, rivals=(*TIMED.speed.rivals, peer, absent))
    with_peer = replace(TIMED, speed=speed)
    text = markdown.table((report(with_peer, replace(TIMED, case=Case("other"))),))
    assert "| worst error | peers µs |" in text
    assert "| exact | triton 7.50 |" in text
    assert "| exact | – |" in text
    assert "peers" not in markdown.table((report(TIMED),))


def test_markdown_names_checked_cases_below_what_was_timed():
    checked = CaseReport(Case("odd"), Check(True, 1, 0, 0))
    text = markdown.table((report(TIMED, checked),))
    assert "| odd |" not in text
    assert text.endswith("\ncopy, checked and correct, not timed: odd.")
    assert "| copy | odd | correct | not timed |" in markdown.table((report(checked),))


def test_rows_show_the_faster_rival_and_mark_no_difference():
    same = Ratio("eager", 1.0, 0.98, 1.02, "same")
    speed = Speed(Timing("solution", device=stat(5)), ratios=(same,))
    case = CaseReport(Case("a"), Check(True, 1, 0, 0), speed)
    assert rows.rows((report(case),))[0].speedup == "1.00x ="


# words, exit code, what standard error says
BAD = [
    (["nope"], 2, "no op 'nope'"),
    (["--case", "nope"], 2, "no case nope"),
    (["--solution", "absent.py"], 2, "needs an op or --reference"),
    (["--device", "cuda:99"], 3, "--device cuda:99: this machine has"),
    (["--device", "tpu"], 3, "want cpu, cuda or cuda:N"),
    (["--sed", "1"], 2, "No such option"),
    (["table", "absent.json"], 2, "absent.json: cannot be read"),
]


@pytest.mark.parametrize(("words", "code", "says"), BAD, ids=[" ".join(b[0]) for b in BAD])
def test_bad_requests_are_one_sentence(words, code, says):
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_help_is_quick():
    started = time.monotonic()
    done = run("--help")
    assert done.returncode == 0
    assert "doctor" in done.stdout
    assert time.monotonic() - started < 2  # 0.2 s on an idle machine; CI machines are not idle


def test_neither_the_command_line_nor_a_report_imports_torch():
    code = (
        "import sys\n"
        "from harness import cli, ncu, run, sanitizer, sass, versions, watch\n"
        "from harness.report import charts, html, json_file, markdown, progress, rows, screen\n"
        "assert 'torch' not in sys.modules\n"
        "for heavy in ('matplotlib', 'watchfiles', 'jinja2'):\n"
        "    assert heavy not in sys.modules, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=plan.ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_no_color_is_plain_text(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = terminal.console()
    out.file = io.StringIO()
    terminal.show((report(TIMED, WRONG), CRASHED), out)
    assert "\x1b" not in out.file.getvalue()


def test_one_document_at_most_goes_to_standard_output():
    done = run("pack_tokens", "--device", "cpu", "--json", "-", "--html", "-")
    assert done.returncode == 2
    assert "only one of --json, --html and --traces may be -" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--watch"], "watches one op, not"),
        (["pack_tokens", "--watch", "--json", "-"], "goes without --json, --html and --traces"),
    ],
)
def test_watch_says_what_it_does_not_take(words, says):
    done = run(*words, "--device", "cpu")
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_json_on_standard_output_is_all_there_is(write):
    text = TOY
    done = run(
        *("--reference", str(write("toy.py", text))),
        *("--solution", str(write("sol.py", text.replace("class Model", "class ModelNew")))),
        *("--device", "cpu", "--json", "-"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reports"][0]["op"] == "toy"
    assert "correct" in done.stderr
    assert "s in all" in done.stderr


TOY = """import torch, torch.nn as nn
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


def test_list_names_ops_and_cases_without_a_gpu():
    done = run("--list")
    assert done.returncode == 0
    assert set(plan.ops()) <= set(done.stdout.split())
    assert "  headline: the defaults" in done.stdout
