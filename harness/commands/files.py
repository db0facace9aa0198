"""Batch, repair and submit: solutions that come from elsewhere, and those that go there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness import driver, plan
from harness.commands import exit_codes
from harness.records import Failed, Outcome


def batch(
    solutions: Annotated[list[str], typer.Argument(help="solution files or folders of them")],
    problems: Annotated[str, typer.Option(help="the problem, or the folder of problems")],
    into: Annotated[str, typer.Option(help="JSON lines, one row each; an old file is continued")],
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N")] = None,
    timing: Annotated[
        bool, typer.Option("--timing/--check-only", help="time what is right")
    ] = True,
) -> int:
    """Judge many files, one row each; run the same command again to go on where it stopped."""
    from harness import batch as many
    from harness.batch_rows import Rows
    from harness.report import batch as summary
    from harness.report import progress

    files = many.solutions([Path(path) for path in solutions])
    request = plan.Request(device=driver.choose(device), timing=timing)
    tasks = tuple(many.tasks(files, Path(problems), request))
    rows = Rows(Path(into))
    try:
        with progress.shown() as listen:
            many.judge_all(tasks, rows, listen)
    finally:
        rows.close()
    reports = many.latest(rows.rows, tasks)
    print("\n".join(summary.lines(reports)))
    for path in (Path(into), *many.write_kernelbench(reports, Path(into))):
        print(f"written: {path}")
    for line in many.write_traces(tasks, rows.rows, Path(into)):
        print(line)
    return exit_codes.of(reports)


def repair(
    files: Annotated[list[str], typer.Argument(help="damaged solution files")],
    into: Annotated[str | None, typer.Option(help="folder for the repaired copies")] = None,
) -> int:
    """Show what of damaged files can be repaired safely, and write repaired copies if asked to."""
    from harness.report import repairs

    return (
        exit_codes.BAD
        if repairs.show([Path(file) for file in files], into and Path(into))
        else exit_codes.OK
    )


def submit(
    op: Annotated[str | None, typer.Argument(help="op whose solution is sent")] = None,
    to: Annotated[str, typer.Option(help="kernelbench, gpumode or flashinfer")] = "",
    out: Annotated[str | None, typer.Option(help="file or folder to write")] = None,
    reference: Annotated[str | None, typer.Option(help="any reference file")] = None,
    solution: Annotated[str | None, typer.Option(help="any solution file")] = None,
) -> int:
    """Write a solution in a receiver's format, after trying it there in a clean process."""
    from harness import submit as sending
    from harness.report import submission

    words = (op,) if op else ()
    if not (words or (reference and solution)):
        raise Failed(Outcome.DOES_NOT_LOAD, "plan", "submit needs an op: run_eval.py submit OP")
    device = driver.choose(None)
    request = plan.Request(words, reference=reference, solution=solution, device=device)
    (one,) = plan.plans(request)
    place = Path(out) if out else None
    written = sending.submit(Path(one.reference), Path(one.solution), to, place, device)
    for line in submission.lines(written):
        print(line)
    if written.path is None:
        return exit_codes.BAD
    return exit_codes.OK if written.ran else exit_codes.NEEDS_GPU
