"""The table, the kernels' resources and the closing sentence, for a terminal or a plain stream."""

from __future__ import annotations

import math
import os
import shlex

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import plan
from harness.history import Change, Run
from harness.records import Outcome, Report
from harness.report.rows import COLUMNS, Row, microseconds, rows

# Least useful first: what a narrow terminal loses.
DROP_ORDER = ("compile µs", "worst error", "eager µs", "of floor", "speed-up", "kernel µs")
PLAIN_WIDTH = 160
CHANGED = {"faster": "green", "slower": "red"}
VERDICTS = {
    "faster": "faster than",
    "slower": "slower than",
    "same": "the same as",
    "cannot tell": "cannot tell from",
}
STYLES = {"correct": "green", "skipped": "dim", "needs a GPU": "yellow", "environment": "yellow"}


def console(stderr: bool = False) -> Console:
    """Plain text with NO_COLOR or where the stream is no terminal; there the width is fixed."""
    plain = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    made = Console(stderr=stderr, highlight=False, soft_wrap=False, **plain)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PLAIN_WIDTH
    return made


def show(
    reports: tuple[Report, ...], out: Console, changes: dict[str, tuple[Change, ...]] | None = None
) -> None:
    """Everything a person reads after a run; the last line says what to do next."""
    lines = rows(reports)
    show_table(reports, out)
    _messages(reports, lines, out)
    _peers(reports, out)
    show_changes(changes or {}, out)
    _resources(reports, out)
    _notes(reports, out)
    out.print(closing(reports))


def show_table(reports: tuple[Report, ...], out: Console) -> None:
    """Where it was measured, and one row for each case."""
    heading = _heading(reports)
    if heading:
        out.print(Text(heading, overflow="fold"))
    out.print(_table(rows(reports), out.width))


def closing(reports: tuple[Report, ...]) -> str:
    """One sentence: how it stands and what to do next."""
    cases = [c for r in reports for c in r.cases]
    right = sum(c.outcome is Outcome.CORRECT for c in cases)
    bad = [r for r in reports if not r.ok]
    if bad:
        op = bad[0].op
        first = next((c for c in bad[0].cases if c.outcome is not Outcome.CORRECT), None)
        case = f" --case {shlex.quote(first.case.name)}" if first else ""
        again = plan.words(op, bad[0].reference, bad[0].solution)
        what = bad[0].failure.outcome if bad[0].failure else first.outcome if first else None
        if what is Outcome.NEEDS_GPU:
            return f"{right} cases right; {op} needs a GPU: run the same command where one is."
        stands = f"{right} of {len(cases)} cases right" if cases else "no case was judged"
        return (
            f"{stands[0].upper()}{stands[1:]}, {len(bad)} of {len(reports)} solutions not right: "
            f"fix {op}, then run: python run_eval.py {again}{case}"
        )
    if any(c.speed for c in cases):
        return f"All {right} cases of {len(reports)} solutions right and timed."
    return (
        f"All {right} cases of {len(reports)} solutions right; nothing was timed"
        f"{_why_untimed(reports)}."
    )


def _why_untimed(reports: tuple[Report, ...]) -> str:
    if all(r.environment.device == "cpu" for r in reports):
        return " (no GPU: the kernels' logic ran on the CPU, which is no proof for a GPU)"
    return ""


def _heading(reports: tuple[Report, ...]) -> str:
    known = next((r.environment for r in reports if r.environment.torch), None)
    if known is None:
        return ""
    parts = [known.gpu or known.device, known.driver and f"driver {known.driver}"]
    parts += [f"torch {known.torch}", known.commit and f"commit {known.commit}"]
    return " · ".join(p for p in parts if p)


def _table(lines: tuple[Row, ...], width: int) -> Table:
    shown = _columns_that_fit(lines, width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        left = name in ("op", "case", "verdict")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    previous = None
    for row in lines:
        cells = dict(zip(COLUMNS, row.cells(), strict=True))
        style = STYLES.get(row.verdict.split(",")[0], "red")
        if row.op == previous:
            cells["op"] = ""
        previous = row.op
        table.add_row(*(Text(cells[n], style=style if n == "verdict" else "") for n in shown))
    return table


def _columns_that_fit(lines: tuple[Row, ...], width: int) -> list[str]:
    widths = {
        name: max([len(name), *(len(row.cells()[i]) for row in lines)])
        for i, name in enumerate(COLUMNS)
    }
    shown = list(COLUMNS)
    if all(row.eager in ("–", "") and row.compile in ("–", "") for row in lines):
        shown = [n for n in shown if n not in ("eager µs", "compile µs", "speed-up", "of floor")]
    for name in DROP_ORDER:
        if sum(widths[n] + 2 for n in shown) <= width:
            break
        if name in shown:
            shown.remove(name)
    return shown


def _messages(reports: tuple[Report, ...], lines: tuple[Row, ...], out: Console) -> None:
    for row in lines:
        if row.message and not row.ok:
            out.print(Text(f"{row.verdict.split(',')[0]}: {row.message}", style="red"))
    for report in reports:
        failures = [report.failure, *(c.failure for c in report.cases)]
        for failure in failures:
            if failure is None:
                continue
            for detail in failure.details[:12]:
                out.print(Text(f"    {detail}"))
            if failure.log:
                out.print(Text(f"    full log: {failure.log}"))
        if report.stdout and not report.ok:
            out.print(Text(f"{report.op} printed: {report.stdout[:500].strip()}", style="dim"))


def _peers(reports: tuple[Report, ...], out: Console) -> None:
    """One line for each peer of each case: its time, and how the solution compares."""
    for report in reports:
        for case in report.cases:
            for timing in case.speed.rivals if case.speed else ():
                if timing.who in ("eager", "compile"):
                    continue
                where = f"{report.op}/{case.case.label}: {timing.who}"
                ratio = next((r for r in case.speed.ratios if r.rival == timing.who), None)
                if ratio is None:
                    out.print(Text(f"{where} not timed: {timing.not_timed}", style="dim"))
                    continue
                out.print(
                    f"{where} {microseconds(timing)} µs, solution {ratio.median:.2f}x "
                    f"[{ratio.low:.2f}, {ratio.high:.2f}] {ratio.verdict}"
                )


def show_changes(changes: dict[str, tuple[Change, ...]], out: Console) -> None:
    """Each case against the last run of the same case on the same device, with the interval."""
    for op, moved in changes.items():
        for change in moved:
            ratio = change.ratio
            out.print(
                Text(
                    f"{op}/{change.label}: {VERDICTS[ratio.verdict]} the run before: "
                    f"{change.before.median_us:.2f} to {change.now.median_us:.2f} µs, "
                    f"{ratio.median:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]",
                    style=CHANGED.get(ratio.verdict, "dim"),
                )
            )


def show_history(runs: tuple[Run, ...], out: Console) -> None:
    """Past runs, newest first: number, when, verdict, geometric mean of the kernel's times."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "started", "device", "right", "kernel µs (geomean)", "source"):
        table.add_column(name, justify="right" if name in ("run", "right") else "left")
    for run in runs:
        cases = run.report.cases
        right = sum(c.outcome is Outcome.CORRECT for c in cases)
        stats = [c.speed.solution.device or c.speed.solution.call for c in cases if c.speed]
        mean = math.exp(sum(math.log(s.median_us) for s in stats) / len(stats)) if stats else None
        place = run.report.environment.gpu or run.report.environment.device
        cells = (str(run.id), run.started, place, f"{right}/{len(cases)}")
        table.add_row(*cells, f"{mean:.2f}" if mean else "–", run.source_hash[:10])
    out.print(table)


def _resources(reports: tuple[Report, ...], out: Console) -> None:
    built = [(r.op, k) for r in reports if r.build for k in r.build.kernels]
    spilled = [(op, k) for op, k in built if k.spills]
    for op, k in spilled:
        out.print(
            Text(
                f"{op}: {k.kernel} spills {k.spill_store_bytes + k.spill_load_bytes} bytes of "
                f"registers to local memory ({k.registers} registers, {k.arch})",
                style="yellow",
            )
        )
    if not built or any(c.speed for r in reports for c in r.cases):
        return
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    for name in ("op", "kernel", "arch", "registers", "shared B", "local B", "spills B"):
        left = name in ("op", "kernel", "arch")
        table.add_column(
            name, justify="left" if left else "right", no_wrap=True, overflow="ellipsis"
        )
    for op, k in built:
        spills = k.spill_store_bytes + k.spill_load_bytes
        numbers = (k.registers, k.shared_bytes, k.local_bytes, spills)
        table.add_row(op, Text(k.kernel[:70]), k.arch, *map(str, numbers))
    out.print(table)


def _notes(reports: tuple[Report, ...], out: Console) -> None:
    for report in reports:
        warnings = [w for c in report.cases if c.speed for w in c.speed.warnings]
        build_notes = report.build.notes if report.build else ()
        for note in dict.fromkeys(
            (*report.environment.notes, *build_notes, *report.notes, *warnings)
        ):
            out.print(Text(f"{report.op}: {note}", style="dim"))
