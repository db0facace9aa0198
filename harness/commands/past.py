"""History, best and table: what earlier runs found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.commands import exit_codes
from harness.records import Failed, Outcome


def history(op: Annotated[str, typer.Argument(help="op whose runs are listed")]) -> int:
    """List the past runs of an op, newest first."""
    from harness.report import terminal

    runs = kept().runs(op)
    if not runs:
        raise Failed(Outcome.DOES_NOT_LOAD, "history", f"no run of op {op!r} has been kept yet")
    terminal.show_history(runs, terminal.console())
    return exit_codes.OK


def best(op: Annotated[str, typer.Argument(help="op whose fastest right source is wanted")]) -> int:
    """Print the source of the fastest run of an op that had every case right."""
    found = kept().best(op)
    if found is None:
        raise Failed(
            Outcome.DOES_NOT_LOAD, "history", f"no run of op {op!r} was right and timed as a whole"
        )
    run, text = found
    print(f"run {run.id} of {run.started}: {run.report.solution}", file=sys.stderr)
    print(text, end="")
    return exit_codes.OK


def table(
    results: Annotated[list[str], typer.Argument(help="result files of --json")],
    into: Annotated[str | None, typer.Option(help="Markdown file whose table to renew")] = None,
    html: Annotated[str | None, typer.Option(help="write the self-contained page instead")] = None,
) -> int:
    """Print the Markdown table of result files, or renew the one between a file's markers."""
    from harness.report import json_file, markdown

    reports = tuple(report for path in results for report in json_file.read(path))
    if html is not None:
        from harness.report import html as pages

        pages.write(reports, earlier(kept(), reports), html)
    elif into is None:
        print(markdown.table(reports))
    else:
        markdown.renew(Path(into), reports)
    return exit_codes.OK


def kept():
    """The history of this checkout."""
    from harness import cache
    from harness import history as runs

    return runs.History(cache.root() / "history.sqlite")


def earlier(history, reports) -> dict:
    """Earlier runs of each op where it was judged now, oldest first."""
    return {
        report.op: tuple(
            run
            for run in reversed(history.runs(report.op, 200))
            if run.report.environment.gpu == report.environment.gpu
        )
        for report in reports
    }
