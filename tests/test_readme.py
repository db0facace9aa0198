"""What README shows is what works."""

import re
import subprocess
import sys

import pytest

from harness import cli, plan, problem, source

README = (plan.ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE, SOLUTION = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def files(write):
    return write("reference/scale_rows.py", REFERENCE), write("solutions/scale_rows.py", SOLUTION)


def evaluate(files, *words):
    reference, solution = map(str, files)
    return subprocess.run(
        [
            *(sys.executable, plan.ROOT / "run_eval.py", "--device", "cpu"),
            *("--reference", reference, "--solution", solution, *words),
        ],
        capture_output=True,
        text=True,
    )


def test_first_kernel_files_are_valid(files):
    reference, solution = files
    assert [c.name for c in problem.load(reference).cases] == ["headline", "odd", "empty"]
    source.compare(source.read(solution), source.read(reference, "Model"))


@pytest.mark.slow
def test_first_kernel_is_right(files):
    done = evaluate(files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("correct") == 3


@pytest.mark.slow
def test_first_kernel_broken_as_README_says_is_wrong(files, write):
    reference, _ = files
    broken = write("broken.py", SOLUTION.replace("i / cols", "i % cols"))
    done = evaluate((reference, broken), "--case", "odd")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "wrong" in done.stdout


def test_commands_of_the_table_exist():
    named = set(re.findall(r"^\| `run_eval.py (\w+) ", README, re.MULTILINE)) - {"OP"}
    assert named <= set(cli.COMMANDS)
    assert named >= {"lint", "compare", "history", "doctor"} - {"doctor"}


def test_every_op_is_in_the_table_of_operations():
    table = README.split("## Operations")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|.*\| (yes|–) \|$", table, re.MULTILINE)
    named = {op: backward for cell, backward in rows for op in re.findall(r"`(\w+)`", cell)}
    assert set(named) == set(plan.ops(plan.ROOT))
    for op, backward in named.items():
        gradients = problem.declared(plan.ROOT / "reference" / f"{op}.py").cases
        assert (backward == "yes") == any(case.backward for case in gradients), op


def test_every_document_that_is_named_exists():
    for path in set(re.findall(r"`(docs/[\w.-]+)`", README)):
        assert (plan.ROOT / path).is_file(), path
