"""One self-contained page: verdicts, speed, build, environment, failures and sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.history import Run
from harness.records import Failed, Failure, Outcome, Report
from harness.report import charts, output, terminal
from harness.report.rows import COLUMNS, Row, rows

TEMPLATE = Path(__file__).with_name("page.html.j2")
MISSING = "--html needs the packages jinja2 and pygments: pip install -r requirements-html.txt"


@dataclass(frozen=True)
class Sources:
    """A reference and a solution as highlighted HTML."""

    op: str
    reference_path: str
    solution_path: str
    reference: str
    solution: str


@dataclass(frozen=True)
class Speedup:
    """One rival of one case, for the table."""

    op: str
    case: str
    rival: str
    median: float
    low: float
    high: float
    verdict: str
    basis: str


def write(reports: Sequence[Report], past: dict[str, Sequence[Run]], target: str) -> None:
    """Write the page, whole or not at all. `past`: earlier runs by op, oldest first."""
    output.put(page(reports, past), target)


def page(reports: Sequence[Report], past: dict[str, Sequence[Run]]) -> str:
    """The page's text. Raises Failed(ENVIRONMENT) when a package is absent."""
    check()
    import jinja2

    reports = tuple(reports)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=", ".join(dict.fromkeys(r.op for r in reports)) or "no runs",
        closing=terminal.closing(reports),
        place=_place(reports),
        columns=COLUMNS,
        rows=rows(reports),
        tone=_tone,
        failures=_failures(reports),
        charts=charts.charts(reports, past),
        ratios=_ratios(reports),
        kernels=[(r.op, k) for r in reports if r.build for k in r.build.kernels],
        environment=_environment(reports),
        notes=_notes(reports),
        sources=[_sources(r) for r in reports],
        highlight_light=_style("default"),
        highlight_dark=_style("github-dark"),
    )


def check() -> None:
    """Raise Failed(ENVIRONMENT) when a package is absent: before a long run, not after it."""
    import importlib.util

    for name, message in (
        ("jinja2", MISSING),
        ("pygments", MISSING),
        ("matplotlib", charts.MISSING),
    ):
        if importlib.util.find_spec(name) is None:
            raise Failed(Outcome.ENVIRONMENT, "report", message)


def _place(reports: tuple[Report, ...]) -> str:
    started = min((r.started for r in reports if r.started), default="")
    known = next((r.environment for r in reports if r.environment.torch), None)
    where = (known.gpu or f"{known.device}, no GPU") if known else ""
    return " · ".join(part for part in (where, started) if part)


def _tone(row: Row) -> str:
    word = row.verdict.split(",")[0]
    if word == Outcome.CORRECT.value:
        return "correct"
    warn = (Outcome.NEEDS_GPU.value, Outcome.ENVIRONMENT.value, Outcome.SKIPPED.value)
    return "warn" if word in warn else "bad"


def _failures(reports: tuple[Report, ...]) -> list[Failure]:
    found = []
    for report in reports:
        found += [report.failure] if report.failure else []
        for case in report.cases:
            if case.failure is not None:
                found.append(case.failure)
            elif case.check is not None and not case.check.ok:
                found.append(Failure(Outcome.WRONG, "check", case.check.message))
    return found


def _ratios(reports: tuple[Report, ...]) -> list[Speedup]:
    return [
        Speedup(r.op, c.case.label, x.rival, x.median, x.low, x.high, x.verdict, f"{x.basis} time")
        for r in reports
        for c in r.cases
        if c.speed
        for x in c.speed.ratios
    ]


def _environment(reports: tuple[Report, ...]) -> list[tuple[str, str]]:
    names = ("device", "gpu", "driver", "torch", "cuda", "python", "commit")
    found = []
    for name in names:
        values = dict.fromkeys(getattr(r.environment, name) for r in reports if r.environment.torch)
        text = ", ".join(value for value in values if value)
        if text:
            found.append((name, text))
    return found


def _notes(reports: tuple[Report, ...]) -> list[str]:
    found: dict[str, None] = {}
    for r in reports:
        warnings = [w for c in r.cases if c.speed for w in c.speed.warnings]
        checks = [n for c in r.cases if c.check for n in c.check.notes]
        build = r.build.notes if r.build else ()
        for note in (*r.environment.notes, *build, *r.notes, *checks, *warnings):
            found[f"{r.op}: {note}"] = None
    return list(found)


def _sources(report: Report) -> Sources:
    shown = (_highlighted(path) for path in (report.reference, report.solution))
    return Sources(report.op, report.reference, report.solution, *shown)


def _highlighted(path: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    try:
        text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        text = f"# {path}: cannot be read any more ({error.strerror})"
    return highlight(text, PythonLexer(), HtmlFormatter(nowrap=False, cssclass="code"))


def _style(name: str) -> str:
    """Pygments' colours alone; background and layout are the page's."""
    from pygments.formatters import HtmlFormatter

    lines = HtmlFormatter(style=name).get_style_defs(".code").splitlines()
    return "\n".join(line for line in lines if line.startswith(".code ."))
