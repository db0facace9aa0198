"""What the command line asks for, and one clear sentence for what cannot be."""

import pytest

from harness import driver, plan
from harness.records import Failed

MODEL = "class Model:\n    def forward(self, x):\n        return x\n"
INPUTS = "def get_inputs(n=1):\n    return []\n"


@pytest.fixture
def root(write):
    cases = "CASES = {'headline': {}, 'odd': dict(n=3), 'huge': dict(n=9)}\nGPU_ONLY = ('huge',)\n"
    path = write("reference/copy.py", MODEL + INPUTS + cases)
    write("reference/lonely.py", MODEL + INPUTS)
    write("solutions/copy.py", MODEL.replace("Model", "ModelNew"))
    write("peers/copy__somebody.py", "")
    write("peers/other__somebody.py", "")
    return path.parent.parent


def request(root, *ops, **more) -> tuple:
    return plan.plans(plan.Request(ops=ops, root=root, **more))


def refusal(root, *ops, **more) -> str:
    with pytest.raises(Failed) as caught:
        request(root, *ops, **more)
    return caught.value.failure.message


def test_an_op_without_a_gpu_leaves_out_what_needs_one(root):
    (one,) = request(root, "copy")
    assert [c.name for c in one.cases] == ["headline", "odd"]
    assert one.left_out == ("huge",)
    assert not one.timing
    assert one.peers == ()


def test_an_op_on_a_gpu_has_every_case_and_its_own_peers(root):
    (one,) = request(root, "copy", device="cuda:0")
    assert [c.name for c in one.cases] == ["headline", "odd", "huge"]
    assert [p.rsplit("/", 1)[1] for p in one.peers] == ["copy__somebody.py"]
    assert one.timing


@pytest.mark.parametrize("name", ["odd", "huge"])
def test_one_case_is_run_wherever_it_is_asked_for(root, name):
    (one,) = request(root, "copy", cases=(name,))
    assert [c.name for c in one.cases] == [name]
    assert one.left_out == ()


def test_files_anywhere(root, write):
    solution = write("else where/it's mine (2).py", "")
    (one,) = request(root, "copy", solution=str(solution))
    assert one.solution == str(solution)
    reference = root / "reference" / "copy.py"
    (one,) = request(root, reference=str(reference), solution=str(solution))
    assert one.op == "copy"


def test_bad_requests_get_a_sentence(root):
    assert "did you mean copy?" in refusal(root, "copi")
    assert "there are copy, lonely" in refusal(root, "zzz")
    assert "lonely has no solutions/lonely.py" in refusal(root, "lonely")
    assert "no case nope; there are headline, odd, huge" in refusal(root, "copy", cases=("nope",))
    assert "no such file" in refusal(root, "copy", solution="absent.py")
    assert "needs an op or --reference" in refusal(root, solution="absent.py")
    assert "needs --solution" in refusal(root, reference="absent.py")
    assert "at most one op" in refusal(root, "copy", "lonely", solution="absent.py")


def test_device_words(monkeypatch):
    monkeypatch.setattr(driver, "gpu_count", lambda: 0)
    assert driver.choose(None) == "cpu"
    with pytest.raises(Failed, match="no CUDA device; use --device cpu"):
        driver.choose("cuda:0")
    with pytest.raises(Failed, match="want cpu, cuda or cuda:N"):
        driver.choose("gpu")
    monkeypatch.setattr(driver, "gpu_count", lambda: 2)
    assert driver.choose(None) == "cuda:0"
    assert driver.choose("cuda:1") == "cuda:1"
    with pytest.raises(Failed, match="2 CUDA devices, to cuda:1"):
        driver.choose("cuda:2")
