"""The exercise programs give the right answers on the CPU, plain and checked, without findings."""

from __future__ import annotations

from pathlib import Path

import pytest
from apart import execute

FOLDER = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
# Those without torch's headers build fast in checked mode.
LEAN = [name for name in NAMES if "torch/extension.h" not in (FOLDER / f"{name}.py").read_text()]
CASES = Path(__file__).parent / "program_cases.py"


@pytest.fixture(scope="module", params=["plain", "checked"])
def lines(request) -> dict[str, dict]:
    names = NAMES if request.param == "plain" else LEAN
    wanted = [f'{CASES}:check:["{name}"]' for name in names] + [f"{CASES}:spin_for_ever"]
    return execute(request.param, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_program_is_right_and_clean(name, lines):
    line = lines.get(f'{CASES}:check:["{name}"]')
    if line is None:
        assert name not in LEAN
        pytest.skip("full headers: executed in plain mode only, to keep this file fast")
    assert "fault" not in line, line["fault"]
    assert "error" not in line, line["error"]
    assert line["value"] == []
    assert [f for f in line["findings"] if f["severity"] == "error"] == []


@pytest.mark.slow
def test_blocks_that_wait_for_ever_end_with_a_message(lines):
    fault = lines[f"{CASES}:spin_for_ever"]["fault"]
    spinning = (FOLDER / "spin_on_block.py").read_text().splitlines()
    assert fault["kind"] == "spin"
    assert "SPIN" in spinning[fault["line"] - 1]
    assert "9000 blocks" in fault["message"]


def test_every_program_has_a_case():
    import ast

    tree = ast.parse(CASES.read_text())
    table = next(
        n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "CASES"
    )
    assert sorted(key.value for key in table.keys) == NAMES
