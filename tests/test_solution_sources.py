"""A solution stands alone, so helpers are repeated in each: what is the same must stay the same."""

import re
from collections import defaultdict

import pytest

from harness import plan

SOLUTIONS = sorted((plan.ROOT / "solutions").glob("*.py"))
FUNCTION = re.compile(
    r"^((?:template <[^\n]*>\n)?[A-Za-z_][^\n;={}#]*\((?:[^{};]|\{\})*\)(?: const)?) \{"
    r"(.*?(?:^\}|\}$))",
    re.DOTALL | re.MULTILINE,
)
STRUCT = re.compile(
    r"^((?:template <[^\n]*>\n)?struct [^;{]*) \{(.*?)^\};", re.DOTALL | re.MULTILINE
)
OWN = {"Tiling", "Shape", "Outputs"}  # words that each op may use for what it needs


def bodies(pattern: re.Pattern) -> dict[str, dict[str, list[str]]]:
    """Signature to body to the solutions that have it, without comments and line breaks."""
    found: dict = defaultdict(lambda: defaultdict(list))
    for path in SOLUTIONS:
        code = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        for match in pattern.finditer(code):
            signature, body = (" ".join(part.split()) for part in match.groups())
            found[signature][body].append(path.stem)
    return found


@pytest.mark.parametrize("pattern", [FUNCTION, STRUCT], ids=["functions", "structs"])
def test_what_has_the_same_signature_has_the_same_body(pattern):
    found = bodies(pattern)
    shared = {name for name, body in found.items() if sum(map(len, body.values())) > 1}
    assert len(shared) > 5  # the pattern finds them
    differing = {
        name: list(body.values())
        for name, body in found.items()
        if len(body) > 1 and name.split()[-1] not in OWN
    }
    assert not differing
