"""Repairs: only safe ones, only in a copy, and never by chance."""

import subprocess
import sys

import pytest

from harness import plan, repair, source

GOOD = (
    "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
)
ENTRIES = ("ModelNew",)
CUDA = 'CUDA = r"""\n// “quoted” × here\n"""\n'

# damage, file, steps
REPAIRABLE = [
    ("byte order mark", "\ufeff" + GOOD, 1),
    ("CRLF", GOOD.replace("\n", "\r\n"), 1),
    ("both", "\ufeff" + GOOD.replace("\n", "\r\n"), 2),
    ("fence", f"```python\n{GOOD}```\n", 1),
    ("fence with prose", f"Here is it:\n\n```python\n{GOOD}```\nIt is fast because of this.\n", 1),
    ("opening fence lost", f"{GOOD}```\nThat is all there is to say.\n", 1),
    ("closing fence lost", f"Sure, this is it:\n```\n{GOOD}", 1),
    ("a second block", f"```bash\npip install torch\n```\n```python\n{GOOD}```\n", 1),
    ("prose before", f"Here is the kernel.\n\n{GOOD}", 1),
    ("prose after", f"{GOOD}\nThis version fuses both of the loops.\n", 1),
    ("no-break spaces", GOOD.replace("        return", "\u00a0\u00a0      return"), 2),
    ("zero width space", GOOD.replace("import", "import\u200b"), 1),
]


@pytest.mark.parametrize(
    ("text", "steps"), [r[1:] for r in REPAIRABLE], ids=[r[0] for r in REPAIRABLE]
)
def test_repaired_text_is_the_undamaged_one(tmp_path, text, steps):
    path = tmp_path / "s.py"
    path.write_bytes(text.encode())
    made = repair.repair(path, ENTRIES)
    assert made.text.strip() == GOOD.strip()
    assert len(made.steps) == steps
    assert all(step.startswith(f"{path}:") for step in made.steps)
    assert path.read_bytes() == text.encode()


def test_smart_quotes_go_where_python_minds_and_stay_in_strings(write):
    path = write("s.py", f"name = “kernel”\n{CUDA}{GOOD}")
    made = repair.repair(path, ENTRIES)
    assert made.text == f'name = "kernel"\n{CUDA}{GOOD}'


def test_an_undamaged_file_needs_no_steps(write):
    assert repair.repair(write("s.py", CUDA + GOOD), ENTRIES).steps == ()


HOPELESS = [
    ("lost indentation", GOOD.replace("    ", "")),
    ("cut off", GOOD + 'CUDA = r"""\n__global__ void k() {'),
    ("nothing generated", "None\n"),
    ("two answers", f"```python\n{GOOD}```\nor\n```python\n{GOOD}```\n"),
    ("two classes", GOOD + GOOD),
    ("no solution in it", "```python\nx = 1\n```\n"),
    ("quote inside quotes", f"name = ‘it’s’\n{GOOD}"),
]


@pytest.mark.parametrize("text", [h[1] for h in HOPELESS], ids=[h[0] for h in HOPELESS])
def test_what_cannot_be_repaired_safely_is_not(write, text):
    assert repair.repair(write("s.py", text), ENTRIES) is None


def command(*words):
    return subprocess.run(
        [sys.executable, str(plan.ROOT / "run_eval.py"), "repair", *map(str, words)],
        capture_output=True,
        text=True,
    )


def test_command_shows_first_and_writes_a_copy_when_asked(write, tmp_path):
    path = write("s.py", f"```python\n{GOOD}```\n")
    shown = command(path)
    assert shown.returncode == 0
    assert "-```python" in shown.stdout
    assert "--into FOLDER" in shown.stdout
    done = command(path, "--into", tmp_path / "new")
    assert done.returncode == 0
    assert source.read(tmp_path / "new" / "s.py").forward.names == ("x",)
    assert path.read_text().startswith("```python")
    again = command(path, "--into", tmp_path / "new")
    assert again.returncode == 2
    assert "is there already" in again.stderr


def test_command_says_what_is_beyond_repair(write):
    done = command(write("s.py", "None\n"))
    assert done.returncode == 1
    assert "s.py:1:1: holds the word 'None'" in done.stdout
    assert "cannot be repaired safely" in done.stdout


def test_a_damaged_solution_is_refused_with_the_command_that_repairs_it(write):
    path = write("my kernel.py", f"```python\n{GOOD}```\n")
    done = subprocess.run(
        [sys.executable, str(plan.ROOT / "run_eval.py"), plan.ops()[0], "--solution", str(path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "is Markdown" in done.stdout
    assert f"repair '{path}'" in done.stdout.replace("\n", "")
