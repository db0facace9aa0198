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
    ("empty", "  \n", ":1:1: is empty"),
    ("the word None", "None\n", ":1:1: holds the word 'None'"),
    ("a NUL", f"{GOOD}x = 1\0\n", ":5:6: a NUL"),
    ("E4 fence on line 1", f"```python\n{GOOD}```\n", ":1:1: line 1 is Markdown"),
    ("E4 prose, then fence", f"Here is a kernel:\n\n```\n{GOOD}```\n", "line 3 is Markdown"),
    ("E4 prose alone", f"Here is the kernel you asked for.\n{GOOD}", ":1:1: line 1 is prose"),
    ("E4 closing fence only", f"{GOOD}```\n", "line 5 is Markdown"),
    ("E7 smart quotes", f"name = “kernel”\n{GOOD}", ":1:8: LEFT DOUBLE QUOTATION MARK"),
    ("E7 no-break space", GOOD.replace("        r", "\u00a0       r"), ":4:1: NO-BREAK SPACE"),
    ("E7 zero width space", f"x =\u200b 1\n{GOOD}", ":1:4: ZERO WIDTH SPACE (U+200B); delete it"),
    ("E7 lost indentation", GOOD.replace("    def", "def").replace("        r", "r"), "indent"),
    ("E7 tabs mixed", GOOD.replace("        return", "        y = x\n\treturn"), "indentation"),
    ("cut inside a string", GOOD + 'CUDA = r"""\n__global__ void k() {', ":5:8: unterminated"),
    ("cut inside a call", GOOD + "module = load_inline(name='a',\n", ":5:21: '(' was never"),
    ("plain syntax error", GOOD + "x = = 1\n", ":5:"),
    ("E12 wrong name", GOOD.replace("ModelNew", "Model_New"), "the file has Model_New"),
    ("E12 two classes", GOOD + GOOD, ":6:1: class ModelNew again (lines 2, 6)"),
    ("E4 prose after the code", f"{GOOD}\nThis one fuses two loops.\n", ":6:1: line 6 is prose"),
    ("a chat answer", f"The kernel you want is as follows:\n{GOOD}", ":1:1: line 1 is prose"),
    ("E11 exit", f"{GOOD}import sys\nsys.exit(0)\n", ":6:1: sys.exit() at the top level"),
    ("E11 raises SystemExit", f"{GOOD}raise SystemExit\n", ":5:1: raise SystemExit at the top"),
    ("E11 relative import", f"from .task import a\n{GOOD}", ":1:1: relative import from .task"),
    ("no class at all", "x = 1\n", ":1:1: no class ModelNew"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), [d[1:] for d in DAMAGED], ids=[d[0] for d in DAMAGED])
def test_damaged_file_is_named(write, text, says):
    assert says in refusal(write("solution.py", text))


def test_not_utf8_names_the_byte(tmp_path):
    path = tmp_path / "s.py"
    path.write_bytes(b"x = 1\ny = '\xe9'\n")
    assert "s.py:2:6: byte 0xe9 is not UTF-8" in refusal(path)


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


def test_E11_sidecar_module_is_named_before_any_build(write):
    write("helper_kernel.py", "x = 1\n")
    path = write("solution.py", "import os\nimport helper_kernel\n" + GOOD)
    assert ":2:1: imports helper_kernel from beside it" in refusal(path)


# Odd, but no reason not to run: text, and the note with its place.
NOTED = [
    ("byte order mark", "\ufeff" + GOOD, ":1:1: starts with a byte order mark"),
    ("CRLF", GOOD.replace("\n", "\r\n"), ":1:13: lines end in CR LF"),
    (
        "main block",
        GOOD + "if __name__ == '__main__':\n    exit()\n",
        ":5:1: an `if __name__` block",
    ),
    ("print", GOOD + "print('hello')\n", ":5:1: print() at the top level"),
    (
        "guarded import",
        "try:\n    from .a import b\nexcept ImportError:\n    pass\n" + GOOD,
        ":2:5: relative import",
    ),
    (
        "no-break space in CUDA",
        GOOD + 'CUDA = r"""\n// a\u00a0comment\n__global__\u00a0void k() {}\n"""\n',
        ":7:11: NO-BREAK SPACE (U+00A0); write ' ' in CUDA code",
    ),
]


@pytest.mark.parametrize(("text", "says"), [n[1:] for n in NOTED], ids=[n[0] for n in NOTED])
def test_what_python_does_not_mind_is_a_note(tmp_path, text, says):
    path = tmp_path / "s.py"
    path.write_bytes(text.encode())
    (note,) = source.read(path).warnings
    assert note.startswith(f"{path}{says}")


def test_an_exit_that_may_not_be_reached_is_left_to_the_run(write):
    text = GOOD + "def stop():\n    exit()\nif torch is None:\n    exit()\n"
    assert source.read(write("s.py", text)).warnings == ()


def test_an_installed_module_is_not_the_file_beside_it(write):
    write("numpy.py", "x = 1\n")
    (note,) = source.read(write("s.py", "import numpy\n" + GOOD)).warnings
    assert ":1:1: imports numpy; the installed module is meant" in note


def test_a_class_may_get_its_name_afterwards(write):
    text = GOOD.replace("ModelNew", "Fast") + "ModelNew = Fast\n"
    assert source.read(write("s.py", text)).forward.names == ("x",)


def test_utf16_is_named(tmp_path):
    path = tmp_path / "s.py"
    path.write_bytes(GOOD.encode("utf-16"))
    assert ":1:1: is UTF-16" in refusal(path)


def test_functions_are_read_too(write):
    path = write("s.py", "def custom_kernel(data):\n    return data\n")
    found = source.read_function(path, "custom_kernel")
    source.expect_arguments(found, "custom_kernel", ("data",))
    with pytest.raises(Failed) as caught:
        source.expect_arguments(found, "custom_kernel", ("a", "b"))
    assert ":1:1: custom_kernel(data) takes 1, but is called with 2" in caught.value.failure.message
    with pytest.raises(Failed, match=r"no function run; the file has custom_kernel\(\)"):
        source.read_function(path, "run")


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
