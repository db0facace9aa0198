"""Reference files: what is required, what is derived, and that reading CASES needs no torch."""

import subprocess
import sys

import pytest

from harness import plan, problem
from harness.records import Failed

BARE = (
    "import torch\n"
    "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    "def get_inputs():\n    return [torch.rand(3)]\n"
)
FULL = BARE.replace("get_inputs()", "get_inputs(n=3)") + (
    "def get_init_inputs():\n    return []\n"
    "CASES = {'headline': {}, 'big': dict(n=9)}\n"
    "GPU_ONLY = ('big',)\nGRADIENTS = True\nTOLERANCE = dict(rtol=1e-5, atol=0)\n"
)


def refusal(path) -> str:
    with pytest.raises(Failed) as caught:
        problem.load(path)
    assert str(path) in caught.value.failure.message
    return caught.value.failure.message


def test_bare_kernelbench_problem_is_accepted_and_its_defaults_are_named(write):
    reference = problem.load(write("1_softmax copy (2).py", BARE))
    assert [c.name for c in reference.cases] == ["headline"]
    assert reference.get_init_inputs() == []
    assert len(reference.notes) == 4


def test_full_reference(write):
    reference = problem.load(write("op.py", FULL))
    assert [c.label for c in reference.cases] == [
        "headline", "headline backward", "big", "big backward",
    ]  # fmt: skip
    assert reference.tolerance.rtol == 1e-5
    assert reference.gpu_only == {"big"}
    assert not reference.tolerance.scaled


def test_a_tolerance_says_that_it_is_scaled(write):
    text = FULL.replace("atol=0)", "atol=1e-2, scaled=True)")
    assert problem.load(write("op.py", text)).tolerance.scaled


def test_cases_read_from_syntax_agree_with_the_loaded_ones(write):
    for path in [write("op.py", FULL), *sorted((plan.ROOT / "reference").glob("*.py"))]:
        assert problem.declared(path).cases == problem.load(path).cases, path
        assert problem.declared(path).gpu_only == problem.load(path).gpu_only, path


def test_two_references_share_no_names(write):
    first = problem.load(write("a.py", BARE + "batch = 1\n"))
    second = problem.load(write("b.py", BARE + "batch = 2\n"))
    assert (first.module.batch, second.module.batch) == (1, 2)


# what is wrong, the text, what the sentence must say
BROKEN = [
    ("no Model", BARE.replace("class Model(", "class model("), "no Model (there is model)"),
    ("no get_inputs", BARE.replace("get_inputs", "make_inputs"), "no get_inputs"),
    ("syntax", BARE + "def f(:\n", ":7: not valid Python"),
    (
        "raises",
        BARE + "raise RuntimeError('boom')\n",
        ":7: stops on import with RuntimeError: boom",
    ),
    ("exits", BARE + "import sys; sys.exit(0)\n", "stops on import with SystemExit"),
    ("case takes no size", FULL.replace("dict(n=9)", "dict(m=9)"), "does not take case 'big'"),
    ("cases a list", FULL.replace("{'headline': {}, 'big': dict(n=9)}", "[1]"), "CASES must be"),
    ("tolerance a number", FULL.replace("dict(rtol=1e-5, atol=0)", "1e-5"), "TOLERANCE must be"),
]


@pytest.mark.parametrize(("text", "says"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_broken_reference_is_named(write, text, says):
    assert says in refusal(write("op.py", text))


def test_command_line_modules_do_not_import_torch():
    code = (
        "import sys\n"
        "import harness.cli, harness.plan, harness.run, harness.source, harness.driver\n"
        "from harness.report import terminal, markdown, json_file, progress\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=plan.ROOT)
