"""Damaged and mismatched solution files each get one sentence that names the line."""

import textwrap

import pytest

from harness import source
from harness.records import Failed, Outcome

GOOD = (
    "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
)


def refusal(path, **kwargs) -> str:
    with pytest.raises(Failed) as caught:
        source.read(path, **kwargs)
    assert caught.value.failure.outcome is Outcome.DOES_NOT_LOAD
    message = caught.value.failure.message
    assert "\n" not in message
    assert str(path) in message
    return message


# name, text of the file, what the sentence must say
DAMAGED = [
    ("empty", "  \n", "is empty"),
    ("the word None", "None\n", "'None'"),
    ("E4 fence on line 1", f"```python\n{GOOD}```\n", "line 1 is Markdown"),
    ("E4 prose, then fence", f"Here is a kernel:\n\n```\n{GOOD}```\n", "line 3 is Markdown"),
    ("E4 prose alone", f"Here is the kernel you asked for.\n{GOOD}", "line 1 is prose"),
    ("E4 closing fence only", f"{GOOD}```\n", "line 5 is Markdown"),
    ("E7 smart quotes", f"name = “kernel”\n{GOOD}", ":1:8: LEFT DOUBLE QUOTATION MARK"),
    ("E7 no-break space", GOOD.replace("        return", "\u00a0       return"), "NO-BREAK SPACE"),
    ("E7 zero width space", f"x =\u200b 1\n{GOOD}", ":1:4: ZERO WIDTH SPACE (U+200B); delete it"),
    ("E7 lost indentation", GOOD.replace("    def", "def").replace("        r", "r"), "indent"),
    ("E7 tabs mixed", GOOD.replace("        return", "        y = x\n\treturn"), "indentation"),
    ("cut inside a string", GOOD + 'CUDA = r"""\n__global__ void k() {', "cut off"),
    ("cut inside a call", GOOD + "module = load_inline(name='a',\n", "cut off"),
    ("plain syntax error", GOOD + "x = = 1\n", ":5:"),
    ("E12 wrong name", GOOD.replace("ModelNew", "Model_New"), "the file has Model_New"),
    ("E12 two classes", GOOD + GOOD, "2 classes ModelNew (lines 2, 6)"),
    ("no class at all", "x = 1\n", "no class ModelNew"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), [d[1:] for d in DAMAGED], ids=[d[0] for d in DAMAGED])
def test_damaged_file_is_named(write, text, says):
    assert says in refusal(write("solution.py", text))


def test_not_utf8_names_the_byte(tmp_path):
    path = tmp_path / "s.py"
    path.write_bytes(b"x = 1\ny = '\xe9'\n")
    assert "s.py:2: byte 0xe9 is not UTF-8" in refusal(path)


def test_missing_file_and_folder(tmp_path):
    assert "cannot be read" in refusal(tmp_path / "absent.py")
    assert "is a folder" in refusal(tmp_path)


# Files that look odd and are fine.
HARMLESS = [
    ("byte order mark", "\ufeff" + GOOD),
    ("E8 CRLF", GOOD.replace("\n", "\r\n")),
    ("A14 non-ASCII comment", GOOD + "# M×N → out\n"),
    ("odd characters inside a string", GOOD + "s = '“×”\u200b'\n"),
    ("E11 main block", GOOD + "if __name__ == '__main__':\n    raise SystemExit(3)\n"),
    ("E12 also defines Model", GOOD + "class Model:\n    pass\n"),
    ("class inside if", "if True:\n" + textwrap.indent(GOOD, "    ")),
]  # fmt: skip


@pytest.mark.parametrize("text", [h[1] for h in HARMLESS], ids=[h[0] for h in HARMLESS])
def test_harmless_file_is_read(write, text):
    assert source.read(write("solution.py", text)).forward.names == ("x",)


def test_E11_sidecar_and_relative_imports_are_warned_about(write):
    write("helper_kernel.py", "x = 1\n")
    path = write("solution.py", "import helper_kernel\nfrom .task import a\n" + GOOD)
    first, second = source.read(path).warnings
    assert "solution.py:1: imports helper_kernel" in first
    assert "solution.py:2: relative import" in second


def signatures(write, new_init="", new_forward="self, x", init="", forward="self, x"):
    def text(name, init, forward):
        body = f"    def __init__({init}):\n        pass\n" if init else ""
        return f"class {name}:\n{body}    def forward({forward}):\n        return x\n"

    solution = source.read(write("s.py", text("ModelNew", new_init, new_forward)))
    reference = source.read(write("r.py", text("Model", init, forward)), "Model")
    source.compare(solution, reference)


# What ModelNew may differ in and still be called like Model.
ACCEPTED = [
    dict(new_init="self, a, b=2", init="self, a"),
    dict(new_init="self, *args", init="self, a, b"),
    dict(new_init="self", init=""),
    dict(new_forward="self, y, scale=1.0"),
    dict(new_forward="self, *tensors"),
]


@pytest.mark.parametrize("change", ACCEPTED, ids=str)
def test_E12_compatible_signature_is_accepted(write, change):
    signatures(write, **change)


REFUSED = [
    (dict(new_init="self, a, b", init="self, a"), "ModelNew.__init__(a, b) takes 2"),
    (dict(new_init="self", init="self, a"), "ModelNew.__init__() takes 0"),
    (dict(new_init="self, a", init=""), "takes 1"),
    (
        dict(new_forward="self, x, y"),
        "ModelNew.forward(x, y) takes 2, but Model.forward(x) takes 1",
    ),
    (dict(new_forward="self"), "ModelNew.forward() takes 0"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED, ids=[r[1] for r in REFUSED])
def test_E12_wrong_arity_is_refused_with_both_signatures(write, change, says):
    with pytest.raises(Failed) as caught:
        signatures(write, **change)
    assert says in caught.value.failure.message
    assert "s.py:" in caught.value.failure.message
