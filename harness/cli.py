"""Words of the command line to calls; exit codes.

0: all right. 1: a solution is wrong or failed. 2: the request cannot be carried out as written.
3: the environment lacks something. 4: nothing wrong, but something could only be judged on a GPU.
"""

from __future__ import annotations

import os
import signal
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
COMMANDS = (
    *("evaluate", "batch", "repair", "doctor", "lint", "history", "best", "compare", "table"),
    *("sass", "profile", "sanitize", "submit"),
)
OK, BAD, USAGE, ENVIRONMENT, NEEDS_GPU = range(5)


def _end_politely(number, frame) -> None:
    """A closed terminal or `kill`: as Ctrl-C, so that every process started here is ended."""
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; returns the exit code. STEELYARD_DEBUG=1 shows tracebacks."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_politely)
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
    html: Annotated[str | None, typer.Option(help="write one self-contained page")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="evaluate one op again at each save")
    ] = False,
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
    if watch:
        return _watch(request, plans, json or html)
    return _carry_out(plans, json, html)


def _watch(request: plan.Request, plans, file: str | None) -> int:
    from harness import watch
    from harness.report import screen, terminal

    if len(plans) != 1 or file:
        wrong = "goes without --json and --html" if file else f"watches one op, not {len(plans)}"
        raise Failed(
            Outcome.DOES_NOT_LOAD, "watch", f"--watch {wrong}: python run_eval.py OP --watch"
        )
    past = _history()
    shown = screen.Screen(terminal.console())

    def show(report: Report) -> None:
        changes = past.changes(report)
        past.add(report)
        shown.show(report, changes)

    watch.loop(request, show, shown.listening)
    return OK


def _carry_out(plans, json: str | None = None, html: str | None = None) -> int:
    """Evaluate, keep, write, show: in that order, so that nothing shown can be lost."""
    from harness import cache, run
    from harness.report import json_file, progress, terminal

    if html is not None:
        from harness.report import html as pages

        pages.check()
    out = terminal.console(stderr=json == "-")
    with progress.shown() as listen:
        reports = run.evaluate(plans, listen, run.run_folder(cache.root()))
    past = _history()
    changes = {report.op: past.changes(report) for report in reports}
    for report in reports:
        past.add(report)
    if json is not None:
        json_file.write(reports, json)
    if html is not None:
        pages.write(reports, _past(past, reports), html)
    terminal.show(reports, out, changes)
    return exit_code(reports)


def _past(history, reports) -> dict:
    """Earlier runs of each op where it was judged now, oldest first."""
    return {
        report.op: tuple(
            run
            for run in reversed(history.runs(report.op, 200))
            if run.report.environment.gpu == report.environment.gpu
        )
        for report in reports
    }


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


@app.command()
def sass(
    op: Annotated[str, typer.Argument(help="op whose machine code is shown")],
    kernel: Annotated[str, typer.Option(help="only kernels whose name contains this")] = "",
    solution: Annotated[str | None, typer.Option(help="any solution file")] = None,
) -> int:
    """Show each kernel's registers, memory accesses by width, and machine code."""
    from harness import sass as machine

    one = _one(op, (), solution)
    found = [k for k in machine.kernels(one.solution, one.device) if kernel in k.name]
    if not found:
        raise Failed(Outcome.DOES_NOT_LOAD, "sass", f"{op}: no kernel with {kernel!r} in its name")
    for shown in found:
        print("\n".join((*machine.digest(shown), *shown.code, "")))
    return OK


@app.command()
def profile(
    op: Annotated[str, typer.Argument(help="op whose kernels are profiled")],
    case: Annotated[str, typer.Option(help="the case to call")] = "headline",
    solution: Annotated[str | None, typer.Option(help="any solution file")] = None,
) -> int:
    """Nsight Compute on one call: bandwidth, occupancy, stalls, access widths; keeps its report."""
    from harness import cache, ncu, run, toolchain_tools
    from harness import sass as machine

    toolchain_tools.require("ncu", driver.choose(None))
    one = _one(op, (case,), solution)
    report = run.run_folder(cache.root()) / f"{op}.ncu-rep"
    found = ncu.profile(one, report)
    code = {k.name: k for k in machine.kernels(one.solution, one.device)}
    for launch in found:
        lines = list(ncu.digest(launch))
        if launch.kernel in code:
            lines += list(machine.digest(code[launch.kernel]))[1:]
        print("\n".join((*lines, "")))
    print(f"All of it: ncu-ui {report}")
    return OK


@app.command()
def sanitize(
    op: Annotated[str, typer.Argument(help="op whose kernels are examined")],
    case: Annotated[list[str] | None, typer.Option(help="only this case (repeatable)")] = None,
    solution: Annotated[str | None, typer.Option(help="any solution file")] = None,
) -> int:
    """compute-sanitizer's four tools over the op's cases; exit 1 when one finds something."""
    from harness import bare_call, cache, run, sanitizer, toolchain_tools

    toolchain_tools.require("compute-sanitizer", driver.choose(None))
    one = _one(op, tuple(case or ()), solution)
    folder = run.run_folder(cache.root())
    count = 0
    for tool, findings in sanitizer.examine(one, folder):
        count += len(findings)
        print(f"{tool}: {len(findings) or 'nothing'} found")
        for finding in findings:
            print(f"  {sanitizer.shown(finding, one.solution, bare_call.generated(folder))}")
    print(f"{'Fix the first line above' if count else 'All four are clean'}; outputs: {folder}")
    return BAD if count else OK


def _one(op: str, cases: tuple[str, ...], solution: str | None):
    """The plan of one op on the first GPU, or on the CPU where there is none."""
    device = driver.choose(None)
    request = plan.Request(ops=(op,), cases=cases, solution=solution, device=device)
    (one,) = plan.plans(request)
    return one


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
    first: Annotated[str, typer.Argument(help="a solution: file, number of a run, or commit")],
    second: Annotated[str, typer.Argument(help="what it is compared with, named likewise")],
    case: Annotated[list[str] | None, typer.Option(help="only this case (repeatable)")] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cuda:N")] = None,
) -> int:
    """Measure two solutions side by side, sample by sample, on a GPU."""
    import dataclasses

    from harness import cache, run, versions

    chosen = driver.choose(device)
    if chosen == "cpu":
        raise Failed(
            Outcome.ENVIRONMENT, "device", "compare measures times and needs a GPU; there is none"
        )
    folder = run.run_folder(cache.root())
    first, second = (versions.resolve(w, op, _history(), folder) for w in (first, second))
    request = plan.Request(ops=(op,), cases=tuple(case or ()), solution=first, device=chosen)
    plan.plans(dataclasses.replace(request, solution=second))  # says what is wrong with it
    plans = tuple(dataclasses.replace(p, peers=(second,)) for p in plan.plans(request))
    return _carry_out(plans)


@app.command()
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

        pages.write(reports, _past(_history(), reports), html)
    elif into is None:
        print(markdown.table(reports))
    else:
        markdown.renew(Path(into), reports)
    return OK


@app.command()
def repair(
    files: Annotated[list[str], typer.Argument(help="damaged solution files")],
    into: Annotated[str | None, typer.Option(help="folder for the repaired copies")] = None,
) -> int:
    """Show what of damaged files can be repaired safely, and write repaired copies if asked to."""
    from harness.report import repairs

    return BAD if repairs.show([Path(file) for file in files], into and Path(into)) else OK


@app.command()
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
    return exit_code(reports)


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
