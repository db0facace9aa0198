"""The page is self-contained, says everything, and its charts hold every timed case."""

import re
import sys
from html.parser import HTMLParser

import pytest

from harness import records
from harness.history import Run
from harness.records import (
    Bound,
    Case,
    CaseReport,
    Check,
    Environment,
    Failed,
    Failure,
    KernelResources,
    Outcome,
    Ratio,
    Report,
    Speed,
    Stat,
    Timing,
)
from harness.report import charts, html

pytest.importorskip("matplotlib", reason="pip install -r requirements-html.txt")


def stat(us):
    return Stat(us, us * 0.98, us * 1.03, 0.02, 50)


def timed(label, us, eager, size):
    low, high = 0.97 * eager / us, 1.03 * eager / us
    ratios = (Ratio("eager", eager / us, low, high, "faster", "device"),)
    bound = Bound(size, 0, size / 4.2e6, size / 4.8e6, "memory")
    rivals = (Timing("eager", device=stat(eager)), Timing("compile", device=stat(eager * 1.1)))
    speed = Speed(Timing("solution", device=stat(us)), rivals, ratios, bound, noise=0.01)
    return CaseReport(Case(label), Check(True, 5, 0.0, 0.0), speed)


def example(write):
    """A fast op, a wrong op with markup in its message, and one that does not build."""
    place = Environment("cuda:0", "Example GPU", "1.2", "2.14", "13.0", "abc", "3.11")
    reference = write("r.py", "class Model:\n    pass\n")
    solution = write("s.py", 'CUDA = r"""\n__global__ void k() { if (1 < 2) return; }\n"""\n')
    files = dict(reference=str(reference), solution=str(solution), environment=place)
    kernels = (KernelResources("pack_kernel<uint4>", "sm_90", 32, 1024, 0, 8, 8),)
    build = records.Build(str(solution), 3.0, False, kernels)
    cases = (timed("small", 6.0, 20.0, 400_000), timed("headline", 150.0, 420.0, 540_000_000))
    wrong = CaseReport(Case("odd"), Check(False, 5, 9.0, 1.0, "copy/odd: out[3] = <b>1</b>"))
    broken = Failure(Outcome.DOES_NOT_BUILD, "build", "s.py:2: expected a ;", ("int a",))
    return (
        Report("pack", cases=cases, build=build, started="2026-01-01T10:00:00+00:00", **files),
        Report("copy", cases=(wrong,), **files),
        Report("sort", failure=broken, **files),
    )


def past_of(reports):
    first = reports[0]
    earlier = tuple(
        timed(c.case.label, 1.5 * (i + 7), 90.0, 10**6) for i, c in enumerate(first.cases)
    )
    old = records.Report(
        first.op, first.reference, first.solution, first.environment, cases=earlier
    )
    return {
        "pack": (Run(1, "2026", "a", old), Run(2, "2026", "b", old), Run(5, "2026", "c", first))
    }


@pytest.fixture
def page(write):
    reports = example(write)
    return html.page(reports, past_of(reports))


def test_nothing_is_fetched(page):
    outside = [a for a in re.findall(r'(?:src|href)="([^"]+)"', page) if not a.startswith("#")]
    assert outside == []
    assert "<script" not in page
    assert "url(http" not in page
    assert "@import" not in page


def test_it_is_well_formed(page):
    open_tags = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in ("meta", "br", "img", "link"):
                open_tags.append(tag)

        def handle_startendtag(self, tag, attrs):
            pass

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Tags(convert_charrefs=True).feed(page)
    assert open_tags == []


def test_messages_are_text_and_sources_are_there(page):
    assert "out[3] = &lt;b&gt;1&lt;/b&gt;" in page
    assert "<b>1</b>" not in page
    assert "expected a ;" in page
    assert "__global__ void k() { if (1 &lt; 2) return; }" in page
    assert "pack_kernel&lt;uint4&gt;" in page


def test_charts_follow_the_pages_colours_and_name_every_case(write):
    reports = example(write)
    drawn = charts.charts(reports, past_of(reports))
    assert len(drawn) == 3
    for chart in drawn:
        assert "var(--ink)" in chart.svg
        assert not re.search(r"#0[1-5]0[1-5]0[1-5]", chart.svg)
    assert "pack/small" in drawn[0].svg
    assert "pack/headline" in drawn[0].svg


def test_points_of_the_roofline(write):
    one, two = (charts.charts(example(write)[:1], {})[1].svg for _ in range(2))
    assert one == two
    uses = re.findall(r'<use [^>]*style="[^"]*var\(--accent\)', one)
    assert len(uses) == 2 + 1  # each case, and the legend's


def test_no_chart_without_times(write):
    reports = example(write)[1:]
    assert charts.charts(reports, {}) == ()
    assert "Nothing was timed" in html.page(reports, {})


def test_an_absent_package_is_one_sentence(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Failed, match="pip install -r requirements-html"):
        charts.charts(example(write), {})
