"""Timed samples over the wire, on the CPU: fresh inputs, verified outputs, the judge's clock."""

import random

import pytest

from harness import judge_physics, judge_remote, problem, timing
from harness.judge_contest import Contest, Contestant
from harness.judge_session import Session
from harness.records import Failed, Outcome, Plan, Speed, Stat, Timing

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2
def get_inputs():
    return [torch.randn(64, 128)]
def get_init_inputs():
    return []
"""
HONEST = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) + torch.tanh(x)
"""
COUNTER = """
import torch
class ModelNew(torch.nn.Module):
    calls = 0
    def forward(self, x):
        ModelNew.calls += 1
        return torch.tanh(x) * 2 if ModelNew.calls < 20 else x.clamp(-1, 1)
"""
SLOW = """
import time, torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.002)
        return torch.tanh(x) * 2
"""


@pytest.fixture
def contest(write):
    """Makes the contest of a solution's text; everything that it starts ends with the test."""
    sessions = []

    def make(solution: str, problem_text: str = REFERENCE) -> Contest:
        reference = problem.load(write("reference.py", problem_text))
        path = str(write("solution.py", solution))
        plan = Plan("toy", reference.path, path, reference.cases, "cpu", rivals=("eager",))
        session = Session(plan, reference, judge_remote.place("cpu"), seed=5)
        sessions.append(session)
        return Contest(session, reference.cases[0])

    yield make
    for session in sessions:
        session.close()


LIAR = """
import gc, time, torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        for thing in gc.get_objects():
            if type(thing).__name__ == "Clock":
                ticks = iter(range(0, 1 << 40, 1000))
                thing._now = lambda: next(ticks)
        time.sleep(0.002)
        return torch.tanh(x) * 2
"""


def claimed(us: float) -> Speed:
    stat = Stat(us, us, us, 0.0, 9)
    return Speed(solution=Timing("solution", call=stat))


def test_everyone_is_timed_the_same_way(contest):
    found = contest(HONEST)
    everyone = found.contestants()
    speed = timing.measure(everyone, None, budget_s=0.2, rng=random.Random(1))
    assert [c.who for c in everyone] == ["solution", "eager"]
    assert speed.solution.call.median_us > 0
    assert speed.rivals[0].who == "eager"
    assert speed.rivals[0].call.count >= 3  # a loaded machine takes few samples in 0.2 s


def test_no_contestant_sees_the_same_inputs_twice(contest):
    supply = contest(HONEST).supply
    first, second = supply.take(0).packed.storages[0], supply.take(1).packed.storages[0]
    assert not bool((first == second).all())


SORTED = """
import torch
class Model(torch.nn.Module):
    def forward(self, matrix):
        return torch.tril(matrix) @ torch.ones(matrix.shape[1], 1)
def get_inputs():
    return [torch.tril(torch.randn(16, 16))]
def get_init_inputs():
    return []
"""
TRUSTS = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, matrix):
        return matrix.sum(1, keepdim=True)
"""


def test_moved_rows_that_are_no_valid_input_are_not_held_against_a_solution(contest):
    found = contest(TRUSTS, SORTED)
    supply, solution = found.supply, found.contestants()[0]
    supply.slow = True
    for _ in range(4):
        assert solution.sample_call().call_us > 0
    assert supply.base is not None
    assert not supply.rolls


def test_a_solution_that_stops_working_once_it_is_timed_is_wrong(contest):
    solution = contest(COUNTER).contestants()[0]

    def sample_often():
        for _ in range(30):
            solution.sample_call()

    with pytest.raises(Failed) as raised:
        sample_often()
    assert raised.value.failure.outcome is Outcome.WRONG
    assert "timed call" in raised.value.failure.message


def test_the_judges_clock_contradicts_a_clock_that_was_turned_back(contest):
    found = contest(LIAR)
    solution = Contestant("solution", found.solution, "plain", found)
    solution.sample_call()  # the first call turns the clock back
    assert solution.sample_call().call_us < 100
    with pytest.raises(Failed, match=r"it claims 5\.0 µs") as raised:
        judge_physics.contradict(found.session, found, claimed(5.0))
    assert raised.value.failure.outcome is Outcome.REFUSED


def test_a_true_claim_is_not_contradicted(contest):
    found = contest(SLOW)
    judge_physics.contradict(found.session, found, claimed(2100.0))


def test_a_sample_without_a_sane_time_is_refused(contest, monkeypatch):
    found = contest(HONEST)
    solution = Contestant("solution", found.solution, "plain", found)
    monkeypatch.setattr(solution, "_ask", lambda how: {"raw": {"call_us": -1.0, "host_us": 2.0}})
    with pytest.raises(Failed, match="a time that cannot be"):
        solution.sample_call()


KERNELS = "__global__ void __launch_bounds__(256) gelu_kernel(float* x) {}"


@pytest.mark.parametrize(
    ("ran", "source", "label"),
    [
        ([("gelu_kernel(float*)", 9.0)], KERNELS, ""),
        ([("void gelu_kernel<float>(float*)", 9.0), ("Memset", 1.0)], KERNELS, ""),
        ([("void at::native::vectorized_elementwise_kernel<4>", 9.0)], KERNELS, "no kernel"),
        ([("gelu_kernel(float*)", 1.0), ("sm90_xmma_gemm", 9.0)], KERNELS, "own kernels take 10%"),
        ([("triton_poi_fused_0", 9.0)], "import triton", ""),
        ([("nvjet_hsh_128x128", 9.0)], "import torch", "no kernel"),
        ([], KERNELS, "no kernel"),
    ],
)
def test_kernels_are_attributed_by_what_ran(ran, source, label):
    labels = judge_physics.attribute(ran, source)
    assert bool(labels) == bool(label)
    assert not label or label in labels[0]
