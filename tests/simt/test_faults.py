"""Each broken kernel gets the finding that its docstring names; its honest twin gets none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from apart import execute

FOLDER = Path(__file__).parent / "faults"
FILES = sorted(FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def lines() -> dict[str, dict]:
    wanted = [f"{path}:{name}" for path in FILES for name in ("broken", "honest")]
    return execute("checked", wanted)


def _expected(path: Path) -> str:
    return re.search(r"^finding: (.+)$", ast.get_docstring(ast.parse(path.read_text())), re.M)[1]


def _marked(path: Path) -> set[int]:
    """Lines of the file that carry FAULT or OTHER."""
    text = path.read_text().splitlines()
    return {n for n, line in enumerate(text, 1) if re.search(r"// (FAULT|OTHER)", line)}


def _seen(line: dict) -> list[dict]:
    """The fault and the findings that count, worst first; notes are advice."""
    assert "build_error" not in line, line["build_error"]
    fault = [line["fault"] | {"severity": "error"}] if "fault" in line else []
    return fault + [f for f in line["findings"] if f["severity"] != "note"]


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_broken_kernel_gets_its_named_finding(path, lines):
    line = lines[f"{path}:broken"]
    kind = _expected(path)
    seen = _seen(line) + [f for f in line["findings"] if f["severity"] == "note"]
    matching = [f for f in seen if f["kind"] == kind]
    assert matching, f"want {kind}, got {seen}"
    marked = _marked(path)
    if marked:
        at = {f["line"] for f in matching} | {f.get("other_line", 0) for f in matching} - {0}
        assert at <= marked, f"at lines {at}, marked {marked}"


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_error_of_a_broken_kernel_is_the_named_one(path, lines):
    others = [f for f in _seen(lines[f"{path}:broken"]) if f["severity"] == "error"]
    assert {f["kind"] for f in others} <= {_expected(path)}, others


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_honest_twin_is_clean(path, lines):
    line = lines[f"{path}:honest"]
    assert _seen(line) == []
    assert "error" not in line


def test_every_fault_names_a_finding_and_a_marked_line():
    for path in FILES:
        assert _expected(path)
        text = path.read_text()
        assert "// FAULT" in text or "line: any" in text, path.name
