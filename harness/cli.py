"""Words of the command line to calls; exit codes.

0: all right. 1: a solution is wrong or failed. 2: the request cannot be carried out as written.
3: the environment lacks something. 4: nothing wrong, but something could only be judged on a GPU.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness import driver, plan
from harness.records import Failed, Outcome, Report

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Judge and time inline CUDA solutions. Without a command: evaluate (all ops, all cases).",
)
COMMANDS = ("evaluate", "doctor", "lint", "history", "best", "compare", "table", "submit")
OK, BAD, USAGE, ENVIRONMENT, NEEDS_GPU = range(5)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; returns the exit code. STEELYARD_DEBUG=1 shows tracebacks."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or (words[0] not in COMMANDS and words[0] not in ("--help", "-h")):
        words.insert(0, "evaluate")
    try:
        code = app(words, prog_name="run_eval.py", standalone_mode=False)
        return code if isinstance(code, int) else OK
    except Failed as failed:
        if os.environ.get("STEELYARD_DEBUG"):
            raise
        _say(failed)
        return ENVIRONMENT if failed.failure.outcome is Outcome.ENVIRONMENT else USAGE
    except typer.Abort:
        return USAGE
    except KeyboardInterrupt:
        print("interrupted; the finished rows are kept", file=sys.stderr)
        return 130
    except Exception as error:
        if not hasattr(error, "exit_code"):
            raise
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        print(f"run_eval.py: {message}; see run_eval.py --help", file=sys.stderr)
        return error.exit_code


def _say(failed: Failed) -> None:
    print(f"{failed.failure.outcome.value}: {failed.failure.message}", file=sys.stderr)
    for line in failed.failure.details:
        print(f"    {line}", file=sys.stderr)


@app.command()
def evaluate(
    ops: Annotated[list[str] | None, typer.Argument(help="ops to evaluate; all by default")] = None,
    case: Annotated[list[str] | None, typer.Option(help="only this case (repeatable)")] = None,
    reference: Annotated[str | None, typer.Option(help="any reference file")] = None,
    solution: Annotated[str | None, typer.Option(help="any solution file")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N")] = None,
    seed: Annotated[int | None, typer.Option(help="repeat one seed; secret by default")] = None,
    json: Annotated[
        str | None, typer.Option(help="write the reports; - is standard output")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="list ops and cases, run nothing")] = False,
    timing: Annotated[
        bool, typer.Option("--timing/--check-only", help="time what is right")
    ] = True,
) -> int:
    """Check every case, time the right ones, print one table. Exit 0 only if all is right."""
    request = plan.Request(
        ops=tuple(ops or ()),
        cases=tuple(case or ()),
        reference=reference,
        solution=solution,
        device="cpu" if list_ and device is None else driver.choose(device),
        seed=seed,
        timing=timing,
    )
    plans = plan.plans(request)
    if list_:
        return _list(plans)
    return _carry_out(plans, json)


def _carry_out(plans, json: str | None) -> int:
    """Evaluate, keep, write, show: in that order, so that nothing shown can be lost."""
    from harness import cache, run
    from harness.report import json_file, progress, terminal

    out = terminal.console(stderr=json == "-")
    with progress.shown() as listen:
        reports = run.evaluate(plans, listen, run.run_folder(cache.root()))
    past = _history()
    changes = {report.op: past.changes(report) for report in reports}
    for report in reports:
        past.add(report)
    if json is not None:
        json_file.write(reports, json)
    terminal.show(reports, out, changes)
    return exit_code(reports)


def _history():
    from harness import cache, history

    return history.History(cache.root() / "history.sqlite")


def exit_code(reports: tuple[Report, ...]) -> int:
    """0 only if every case of every solution is right."""
    if reports and all(report.ok for report in reports):
        return OK
    outcomes = {
        outcome
        for report in reports
        for outcome in (
            [report.failure.outcome] if report.failure else [c.outcome for c in report.cases]
        )
    }
    if outcomes <= {Outcome.CORRECT, Outcome.NEEDS_GPU} and Outcome.NEEDS_GPU in outcomes:
        return NEEDS_GPU
    if outcomes <= {Outcome.CORRECT, Outcome.ENVIRONMENT} and Outcome.ENVIRONMENT in outcomes:
        return ENVIRONMENT
    return BAD


def _list(plans) -> int:
    from harness import problem

    for one in plans:
        declared = problem.declared(one.reference)
        print(one.op)
        for case in declared.cases:
            sizes = ", ".join(f"{k}={v}" for k, v in case.sizes.items()) or "the defaults"
            gpu = " (GPU only)" if case.name in declared.gpu_only else ""
            print(f"  {case.label}: {sizes}{gpu}")
    return OK


@app.command()
def doctor() -> int:
    """Show what was found of the toolchain, what fits, what does not and the remedy."""
    from harness import doctor as report

    return report.show()


@app.command()
def lint(
    op: Annotated[str, typer.Argument(help="op whose kernels are looked at")],
    case: Annotated[str, typer.Option(help="the case to run")] = "headline",
    solution: Annotated[str | None, typer.Option(help="any solution file")] = None,
) -> int:
    """Run one case on the CPU and show, by source line, what will be slow or wrong on a GPU."""
    request = plan.Request(ops=(op,), cases=(case,), solution=solution, device="cpu")
    (one,) = plan.plans(request)
    from harness.simt import lint as lines

    for line in lines.lint_lines(one):
        print(line)
    return OK


@app.command(name="history")
def show_history(op: Annotated[str, typer.Argument(help="op whose runs are listed")]) -> int:
    """List the past runs of an op, newest first."""
    from harness.report import terminal

    runs = _history().runs(op)
    if not runs:
        raise Failed(Outcome.DOES_NOT_LOAD, "history", f"no run of op {op!r} has been kept yet")
    terminal.show_history(runs, terminal.console())
    return OK


@app.command()
def best(op: Annotated[str, typer.Argument(help="op whose fastest right source is wanted")]) -> int:
    """Print the source of the fastest run of an op that had every case right."""
    found = _history().best(op)
    if found is None:
        raise Failed(
            Outcome.DOES_NOT_LOAD, "history", f"no run of op {op!r} was right and timed as a whole"
        )
    run, text = found
    print(f"run {run.id} of {run.started}: {run.report.solution}", file=sys.stderr)
    print(text, end="")
    return OK


@app.command()
def compare(
    op: Annotated[str, typer.Argument(help="op both files solve")],
    first: Annotated[str, typer.Argument(help="a solution file")],
    second: Annotated[str, typer.Argument(help="the file it is compared with")],
    case: Annotated[list[str] | None, typer.Option(help="only this case (repeatable)")] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cuda:N")] = None,
) -> int:
    """Measure two solution files side by side, sample by sample, on a GPU."""
    import dataclasses

    chosen = driver.choose(device)
    if chosen == "cpu":
        raise Failed(
            Outcome.ENVIRONMENT, "device", "compare measures times and needs a GPU; there is none"
        )
    request = plan.Request(ops=(op,), cases=tuple(case or ()), solution=first, device=chosen)
    plan.plans(dataclasses.replace(request, solution=second))  # says what is wrong with it
    plans = tuple(dataclasses.replace(p, peers=(second,)) for p in plan.plans(request))
    return _carry_out(plans, None)


@app.command()
def table(
    results: Annotated[list[str], typer.Argument(help="result files of --json")],
    into: Annotated[str | None, typer.Option(help="Markdown file whose table to renew")] = None,
) -> int:
    """Print the Markdown table of result files, or renew the one between a file's markers."""
    from harness.report import json_file, markdown

    reports = tuple(report for path in results for report in json_file.read(path))
    if into is None:
        print(markdown.table(reports))
    else:
        markdown.renew(Path(into), reports)
    return OK


@app.command()
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
        return BAD
    return OK if written.ran else NEEDS_GPU
