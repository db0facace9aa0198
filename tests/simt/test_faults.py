"""Every kind of fault is named, on its line, and its honest twin is left in peace."""

from pathlib import Path

import pytest

FAULTS = Path(__file__).resolve().parent / "faults"
NAMES = sorted(path.stem for path in FAULTS.glob("*.py"))


def line_of(name: str, mark: str) -> int:
    """Line number of the comment `// mark`, 0 without one."""
    lines = (FAULTS / f"{name}.py").read_text().splitlines()
    return next((i for i, line in enumerate(lines, 1) if f"// {mark}" in line), 0)


@pytest.mark.parametrize("name", NAMES)
def test_is_named_on_its_line(faults, name):
    result = faults[name]
    found = [o for o in result["broken"] if o["kind"] == result["kind"]]
    assert found, result["broken"]
    assert line_of(name, "FAULT") in {o["line"] for o in found}


@pytest.mark.parametrize("name", NAMES)
def test_honest_twin_is_silent(faults, name):
    assert faults[name]["honest"] == []


def test_race_names_both_lines(faults):
    pairs = {(o["line"], o.get("other_line")) for o in faults["race_shared"]["broken"]}
    assert (line_of("race_shared", "FAULT"), line_of("race_shared", "OTHER")) in pairs


def test_fault_names_block_and_thread(faults):
    fault = faults["out_of_bounds_global"]["broken"][0]
    assert (fault["block"], fault["thread"]) == ("(1, 0, 0)", "(36, 0, 0)")
