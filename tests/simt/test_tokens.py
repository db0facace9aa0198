"""The tokeniser: nothing is lost, brackets and template arguments are matched."""

import pytest

from harness.simt import tokens

SOURCE = r"""
#define RUN(k) k<<<1, \
  2>>>(x)  // <<< not a launch
const char* s = "a \" <<< b"; char c = '\''; auto r = R"x(<<< )" )x";
int big = 1'000'000; a >>= 2; std::vector<std::vector<int>> v; /* >>> */
"""


def test_round_trip():
    assert tokens.text_of(tokens.tokenise(SOURCE)) == SOURCE


def test_kinds_and_lines():
    found = tokens.tokenise(SOURCE)
    assert [t.line for t in found if t.text == "<<<"] == [2]
    assert {t.text for t in found if t.kind == "char"} == {r"'\''"}
    assert [t.text for t in found if t.kind == "raw"] == ['R"x(<<< )" )x"']
    assert "1'000'000" in [t.text for t in found if t.kind == "number"]


def test_directive_spans_continued_lines():
    found = tokens.tokenise(SOURCE)
    inside = [t.text for t in found if t.directive == "define"]
    assert ">>>" in inside
    assert "const" not in inside


def test_closing_and_angles():
    found = [t for t in tokens.tokenise("f(a[1], {b}) < g<h<int>, (3 > 2)>") if not t.blank]
    texts = [t.text for t in found]
    assert texts[tokens.closing(found, 1)] == ")"
    assert tokens.open_angle(found, len(found) - 1) == texts.index("g") + 1
    with pytest.raises(ValueError, match="not closed"):
        tokens.closing(found[:3], 1)


def test_split_respects_nesting():
    pieces = tokens.split(tokens.tokenise("a, f(b, c), {d, e}, g<h, i>"), angles=True)
    assert [tokens.text_of(p).strip() for p in pieces] == ["a", "f(b, c)", "{d, e}", "g<h, i>"]
    assert tokens.split(tokens.tokenise("  ")) == []
