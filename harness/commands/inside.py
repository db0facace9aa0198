"""Lint, sass, profile and sanitize: what a kernel does, by source line and instruction."""

from __future__ import annotations

from typing import Annotated

import typer

from harness import driver, plan
from harness.commands import exit_codes
from harness.records import Failed, Outcome


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
    return exit_codes.OK


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
    return exit_codes.OK


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
    return exit_codes.OK


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
    return exit_codes.BAD if count else exit_codes.OK


def _one(op: str, cases: tuple[str, ...], solution: str | None):
    """The plan of one op on the first GPU, or on the CPU where there is none."""
    device = driver.choose(None)
    request = plan.Request(ops=(op,), cases=cases, solution=solution, device=device)
    (one,) = plan.plans(request)
    return one
