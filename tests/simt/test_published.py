"""Constructs as published extensions use them: ModelNew of each file agrees with its Model."""

from __future__ import annotations

from pathlib import Path

import pytest
from apart import execute

FILES = sorted((Path(__file__).parent / "published").glob("*.py"))
CASES = Path(__file__).parent / "published_cases.py"
# Those without torch's headers build fast enough to be executed in checked mode.
LEAN = [path for path in FILES if "torch/extension.h" not in path.read_text()]


def _wanted(path: Path) -> str:
    return f'{CASES}:check:["{path}"]'


@pytest.fixture(scope="module")
def plain() -> dict[str, dict]:
    return execute("plain", [_wanted(path) for path in FILES])


@pytest.fixture(scope="module")
def checked() -> dict[str, dict]:
    return execute("checked", [_wanted(path) for path in LEAN])


def _assert_right(line: dict) -> None:
    assert "fault" not in line, line["fault"]
    assert "error" not in line, line["error"]
    assert line["value"] == []
    assert [f for f in line["findings"] if f["severity"] != "note"] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_agrees_with_the_reference(path, plain):
    _assert_right(plain[_wanted(path)])


@pytest.mark.slow
@pytest.mark.parametrize("path", LEAN, ids=lambda p: p.stem)
def test_agrees_in_checked_mode_without_findings(path, checked):
    _assert_right(checked[_wanted(path)])
