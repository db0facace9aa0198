"""`lint` marks the slow lines of a kernel, leaves its good twin alone, and counts bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records import Case, Plan
from harness.simt import lint

FOLDER = Path(__file__).parent / "performance"
SOLUTION = FOLDER / "slow_copy.py"
CASE = Case("small", {"n": 64})
PLAN = Plan(
    op="slow_copy",
    reference=str(FOLDER / "slow_copy_reference.py"),
    solution=str(SOLUTION),
    cases=(CASE,),
    device="cpu",
)


@pytest.fixture(scope="module")
def report() -> lint.Lint:
    return lint.lint(PLAN, CASE, orders=(0, 1))


def _lines(report: lint.Lint, kernel: str, mark: str, what: str) -> list[lint.LintLine]:
    text = SOLUTION.read_text().splitlines()
    (number,) = (n for n, line in enumerate(text, 1) if f"// {mark}" in line)
    (found,) = (k for k in report.kernels if k.kernel.startswith(kernel))
    return [line for line in found.lines if line.line == number and line.what == what]


@pytest.mark.slow
def test_uncoalesced_store_is_marked_and_the_load_is_not(report):
    (store,) = _lines(report, "strided_kernel", "UNCOALESCED", "store")
    (load,) = _lines(report, "strided_kernel", "COALESCED", "load")
    assert (store.used, store.least) == (32, 4)
    assert store.remarks == ("uncoalesced",)
    assert (load.used, load.least, load.remarks) == (4, 4, ())


@pytest.mark.slow
def test_bank_conflicts_are_of_the_tile_without_padding(report):
    (bad,) = _lines(report, "conflict_kernel", "BANKS", "shared load")
    (good,) = _lines(report, "padded_kernel", "BANKS", "shared load")
    assert (bad.used, bad.remarks) == (32, ("bank conflict",))
    assert (good.used, good.remarks) == (1, ())


@pytest.mark.slow
def test_idle_lanes_are_marked(report):
    (load,) = _lines(report, "few_lanes_kernel", "LANES", "load")
    assert load.lanes == 8
    assert "few lanes" in load.remarks


@pytest.mark.slow
def test_bytes_are_counted_and_no_fault_is_seen(report):
    matrix = 64 * 64 * 4
    assert {k.distinct_bytes for k in report.kernels} == {2 * matrix}
    assert {(k.bytes_read, k.bytes_written) for k in report.kernels} == {(matrix, matrix)}
    assert report.least_bytes == 2 * matrix
    assert report.ok
    assert [f for f in report.findings if f.severity == "error"] == []


@pytest.mark.slow
def test_printed_lines_name_the_place(report):
    text = "\n".join(lint.report_lines(report, str(SOLUTION)))
    assert "<- uncoalesced" in text
    assert "smem[threadIdx.x][threadIdx.y]" in text
    assert "no fault found in 2 orders" in text
