"""The results table as Markdown, and its place between two markers of a file."""

from __future__ import annotations

from pathlib import Path

from harness.records import Failed, Outcome, Report
from harness.report import output
from harness.report.rows import COLUMNS, Row, rows

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def table(reports: tuple[Report, ...]) -> str:
    """A Markdown table headed by where it was measured; one line per case.

    A last column has the times of peers, where any was timed.
    Where anything was timed, correct cases that were not are named below the table instead.
    """
    environment = next((r.environment for r in reports if r.environment.torch), None)
    lines = []
    if environment is not None:
        started = next((r.started for r in reports if r.started), "")[:10]
        parts = [environment.gpu or environment.device, f"driver {environment.driver}"]
        parts += [f"torch {environment.torch}", f"CUDA {environment.cuda}", started]
        lines += [" · ".join(p for p in parts if p and not p.endswith(" ")), ""]
    everything = rows(reports)
    peers = any(row.peers for row in everything)
    columns = (*COLUMNS, "peers µs") if peers else COLUMNS
    lines.append("| " + " | ".join(columns) + " |")
    lines.append("|" + "|".join(["---"] * 3 + ["---:"] * (len(columns) - 3)) + "|")
    timed = any(row.timed for row in everything)
    checked = [row for row in everything if timed and row.ok and not row.timed]
    for row in everything:
        if row not in checked:
            shown = (*row.cells(), row.peers or "–") if peers else row.cells()
            cells = (cell.replace("|", "\\|") for cell in shown)
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + _also_correct(checked))


def _also_correct(checked: list[Row]) -> list[str]:
    cases: dict[str, list[str]] = {}
    for row in checked:
        cases.setdefault(row.op, []).append(row.case)
    return [
        f"\n{op}, checked and correct, not timed: {', '.join(names)}."
        for op, names in cases.items()
    ]


def renew(path: Path, reports: tuple[Report, ...]) -> None:
    """Replace the text between the markers of `path`. Raises Failed when there are none."""
    text = path.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise Failed(
            Outcome.DOES_NOT_LOAD, "report", f"{path}: no {BEGIN} ... {END} to put a table between"
        )
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    output.put(f"{before}{BEGIN}\n{table(reports)}\n{END}{after}", str(path))
