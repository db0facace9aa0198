"""Evaluate, watch and compare: what judges solutions and keeps the result."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from harness import driver, plan
from harness.commands import exit_codes
from harness.commands.past import earlier, kept
from harness.records import Failed, Outcome, Report


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
    traces: Annotated[
        str | None, typer.Option(help="write a Definition's Trace JSONL; - is standard output")
    ] = None,
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
        return _watch(request, plans, json or html or traces)
    return _carry_out(plans, json, html, traces)


def compare(
    op: Annotated[str, typer.Argument(help="op both files solve")],
    first: Annotated[str, typer.Argument(help="a solution: file, number of a run, or commit")],
    second: Annotated[str, typer.Argument(help="what it is compared with, named likewise")],
    case: Annotated[list[str] | None, typer.Option(help="only this case (repeatable)")] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cuda:N")] = None,
) -> int:
    """Measure two solutions side by side, sample by sample, on a GPU."""
    from harness import cache, run, versions

    chosen = driver.choose(device)
    if chosen == "cpu":
        raise Failed(
            Outcome.ENVIRONMENT, "device", "compare measures times and needs a GPU; there is none"
        )
    folder = run.run_folder(cache.root())
    first, second = (versions.resolve(w, op, kept(), folder) for w in (first, second))
    request = plan.Request(ops=(op,), cases=tuple(case or ()), solution=first, device=chosen)
    plan.plans(dataclasses.replace(request, solution=second))  # says what is wrong with it
    plans = tuple(dataclasses.replace(p, peers=(second,)) for p in plan.plans(request))
    return _carry_out(plans)


def _watch(request: plan.Request, plans, file: str | None) -> int:
    from harness import watch
    from harness.report import screen, terminal

    if len(plans) != 1 or file:
        wrong = (
            "goes without --json, --html and --traces"
            if file
            else f"watches one op, not {len(plans)}"
        )
        raise Failed(
            Outcome.DOES_NOT_LOAD, "watch", f"--watch {wrong}: python run_eval.py OP --watch"
        )
    past = kept()
    shown = screen.Screen(terminal.console())

    def show(report: Report) -> None:
        changes = past.changes(report)
        past.add(report)
        shown.show(report, changes)

    watch.loop(request, show, shown.listening)
    return exit_codes.OK


def _carry_out(
    plans, json: str | None = None, html: str | None = None, traces: str | None = None
) -> int:
    """Evaluate, keep, write, show: in that order, so that nothing shown can be lost."""
    from harness import cache, run
    from harness.report import json_file, progress, terminal
    from harness.report import traces as trace_file

    if (json, html, traces).count("-") > 1:
        raise Failed(
            Outcome.DOES_NOT_LOAD,
            "plan",
            "only one of --json, --html and --traces may be - (standard output); name files for "
            "the others",
        )
    if traces is not None:
        trace_file.refuse_others(plans)
    if html is not None:
        from harness.report import html as pages

        pages.check()
    out = terminal.console(stderr="-" in (json, html, traces))
    with progress.shown() as listen:
        reports = run.evaluate(plans, listen, run.run_folder(cache.root()))
    past = kept()
    changes = {report.op: past.changes(report) for report in reports}
    for report in reports:
        past.add(report)
    if json is not None:
        json_file.write(reports, json)
    if html is not None:
        pages.write(reports, earlier(past, reports), html)
    said = ()
    if traces is not None:
        said = trace_file.write(zip(plans, reports, strict=True), traces)
    terminal.show(reports, out, changes)
    for line in said:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    return exit_codes.of(reports)


def _list(plans) -> int:
    from harness import problem

    for one in plans:
        declared = problem.declared(one.reference)
        print(one.op)
        for case in declared.cases:
            sizes = ", ".join(f"{k}={v}" for k, v in case.sizes.items()) or "the defaults"
            gpu = " (GPU only)" if case.name in declared.gpu_only else ""
            print(f"  {case.label}: {sizes}{gpu}")
    return exit_codes.OK
