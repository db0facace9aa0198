"""Charts as SVG text whose colours are the page's own variables, so that they follow dark mode.

Each is drawn as wide as a phone; the page sets them side by side where there is room.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from harness.history import Run
from harness.records import Failed, Outcome, Report, Stat
from harness.report.rows import best_ratio

MISSING = "--html needs the package matplotlib: pip install -r requirements-html.txt"
# Colours that matplotlib writes, and the page's variable that takes their place.
INK, SOFT, LINE, ACCENT, SECOND = "#010101", "#020202", "#030303", "#040404", "#050505"
VARIABLES = {INK: "ink", SOFT: "soft", LINE: "line", ACCENT: "accent", SECOND: "second"}
WIDTH_IN, HEIGHT_IN = 4.6, 3.3
MARKERS = "osD^vP*X"
SHOWN_RUNS = 200


@dataclass(frozen=True)
class Chart:
    svg: str
    caption: str


def charts(reports: Sequence[Report], past: dict[str, Sequence[Run]]) -> tuple[Chart, ...]:
    """All that the reports and past runs (oldest first, by op) hold data for.

    Raises Failed(ENVIRONMENT) when matplotlib is absent and there is something to draw.
    """
    timed = any(c.speed for r in reports for c in r.cases)
    timed = timed or any(c.speed for runs in past.values() for r in runs for c in r.report.cases)
    if not timed:
        return ()
    found = [_speedups(reports), _roofline(reports)]
    found += [_history(op, runs) for op, runs in past.items()]
    return tuple(chart for chart in found if chart is not None)


def _speedups(reports: Sequence[Report]) -> Chart | None:
    """The solution against the faster of eager and compile, a dot and its interval per case."""
    rows = [
        (f"{report.op}/{case.case.label}", ratio)
        for report in reports
        for case in report.cases
        if case.speed and (ratio := best_ratio(case.speed)) is not None
    ]
    if not rows:
        return None
    figure, axes = _axes(HEIGHT_IN * max(0.6, len(rows) / 9 + 0.25))
    for at, (_, ratio) in enumerate(rows):
        known = isfinite(ratio.high)  # few samples give no interval
        reach = [[ratio.median - ratio.low], [ratio.high - ratio.median]] if known else None
        axes.errorbar(ratio.median, at, xerr=reach, fmt="o", color=ACCENT, ms=4, capsize=2)
    axes.axvline(1, color=SECOND, lw=1)
    _log(axes.xaxis, [end for _, r in rows for end in (r.low, r.high)] + [1])
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("speed-up (right of the line: faster)")
    caption = "Against the faster of eager and torch.compile, with the 95 % interval."
    return Chart(_svg(figure), caption)


def _roofline(reports: Sequence[Report]) -> Chart | None:
    """Every timed case: bytes that must move against time, and the least time for them."""
    points = [
        (report.op, case.speed.bound, stat.median_us)
        for report in reports
        for case in report.cases
        if case.speed and case.speed.bound and case.speed.bound.bytes > 0
        for stat in [case.speed.solution.device or case.speed.solution.call]
        if stat is not None
    ]
    if not points:
        return None
    figure, axes = _axes(HEIGHT_IN)
    bounds = sorted({(b.bytes, b.floor_us) for _, b, _ in points if b.floor_us > 0})
    axes.plot(*zip(*bounds, strict=True), color=SECOND, lw=1.2, marker="_", label="floor")
    for index, op in enumerate(dict.fromkeys(op for op, _, _ in points)):
        own = [(bound.bytes, us) for name, bound, us in points if name == op]
        marker = MARKERS[index % len(MARKERS)]
        axes.plot(*zip(*own, strict=True), marker, color=ACCENT, ms=5, mfc="none", label=op)
    _log(axes.xaxis, [bound.bytes for _, bound, _ in points])
    _log(axes.yaxis, [us for _, _, us in points] + [floor for _, floor in bounds])
    axes.set_xlabel("bytes that must move")
    axes.set_ylabel("µs")
    _legend(axes)
    caption = (
        "Roofline in time: each case's kernel time over the bytes its op must move; the line is "
        "the least time at the device's measured bandwidth (or peak rate, where that takes longer)."
    )
    return Chart(_svg(figure), caption)


def _history(op: str, runs: Sequence[Run]) -> Chart | None:
    """The kernel time of each case of one op over its runs."""
    lines: dict[str, list[tuple[int, Stat]]] = {}
    for run in runs[-SHOWN_RUNS:]:
        for case in run.report.cases:
            stat = (case.speed.solution.device or case.speed.solution.call) if case.speed else None
            if stat is not None:
                lines.setdefault(case.case.label, []).append((run.id, stat))
    if not lines:
        return None
    figure, axes = _axes(HEIGHT_IN)
    for index, (label, stats) in enumerate(lines.items()):
        values = [stat.median_us for _, stat in stats]
        reach = [
            [s.median_us - s.low_us for _, s in stats],
            [s.high_us - s.median_us if isfinite(s.high_us) else 0.0 for _, s in stats],
        ]
        axes.errorbar(
            [run for run, _ in stats],
            values,
            yerr=reach,
            fmt=f"-{MARKERS[index % len(MARKERS)]}",
            color=ACCENT if index % 2 == 0 else SECOND,
            ms=4,
            lw=1,
            mfc="none",
            label=label,
        )
    _log(axes.yaxis, [s.median_us for stats in lines.values() for _, s in stats])
    axes.set_xlabel("run")
    axes.set_ylabel("µs")
    axes.xaxis.get_major_locator().set_params(integer=True)
    _legend(axes)
    return Chart(_svg(figure), f"{op}: kernel time of each case over its runs, with intervals.")


def _axes(height_in: float):
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise Failed(Outcome.ENVIRONMENT, "report", MISSING) from None
    with rc_context({"font.size": 9, "font.family": "sans-serif"}):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        axes = figure.add_subplot()
    axes.tick_params(colors=SOFT, which="both")
    axes.grid(True, color=LINE, lw=0.5)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(SOFT)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    return figure, axes


def _log(axis, values: Sequence[float]) -> None:
    """A logarithmic axis from the data's least to its largest, with plain numbers as ticks."""
    from matplotlib.ticker import (
        EngFormatter,
        FuncFormatter,
        LogLocator,
        NullFormatter,
        NullLocator,
    )

    positive = [value for value in values if 0 < value < float("inf")]
    if not positive:
        return
    low, high = min(positive) / 1.25, max(positive) * 1.25
    axes = axis.axes
    if axis is axes.xaxis:
        axes.set_xscale("log")
        axes.set_xlim(low, high)
    else:
        axes.set_yscale("log")
        axes.set_ylim(low, high)
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    wide = high / low > 100
    axis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 1.5, 2, 3, 5, 7)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(EngFormatter(sep="") if high > 1e5 else plain)
    axis.set_minor_formatter(NullFormatter())


def _legend(axes) -> None:
    legend = axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False, fontsize=8
    )
    for text in legend.get_texts():
        text.set_color(INK)


def _svg(figure) -> str:
    """The drawing alone: no prologue, text as text, colours as variables of the page."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "steelyard"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for colour, name in VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    return text
