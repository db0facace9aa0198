"""Exercise programs give what torch gives; the checked mode holds nothing against right ones."""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
NAMES = sorted(path.stem for path in (HERE / "programs").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_is_right(plain, name):
    assert plain[name]["right"]
    assert plain[name]["kernels"] > 0


def test_checked_mode_finds_no_error(checked):
    assert checked
    assert {name: r["errors"] for name, r in checked.items() if r["errors"]} == {}
    assert all(r["right"] for r in checked.values())
