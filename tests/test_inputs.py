"""Seeds, families of values, layouts."""

import pytest
import torch

from harness import inputs, problem
from harness.records import Case, Failed, Outcome

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, k):
        return x
def get_inputs(rows=8):
    return [torch.randn(rows, 6).t(), torch.randint(9, (4,)), 3]
def get_init_inputs():
    return []
{extra}
"""
CASE = Case("headline", {})


@pytest.fixture
def reference(write):
    def make(extra: str = ""):
        return problem.load(write("reference.py", REFERENCE.format(extra=extra)))

    return make


def test_equal_seeds_give_equal_inputs_and_others_do_not(reference):
    one = reference()
    first, again, other = (inputs.draw(one, CASE, seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_each_case_trial_and_family_has_a_seed_of_its_own():
    words = [("a", 0), ("a", 1), ("b", 0), ("a", "0/x")]
    assert len({inputs.seed_for(7, *w) for w in words} | {inputs.seed_for(8, "a", 0)}) == 5


@pytest.mark.parametrize("family", inputs.GENERIC, ids=lambda f: f.name)
def test_families_change_floats_only_and_keep_the_layout(reference, family):
    plain = inputs.draw(reference(), CASE, 3)
    changed = inputs.draw(reference(), CASE, 3, family)
    assert not torch.equal(changed[0], plain[0])
    assert changed[0].stride() == plain[0].stride()
    assert torch.equal(changed[1], plain[1])
    assert changed[2] == 3


def test_special_values_are_special(reference):
    values = inputs.draw(reference(), Case("big", {"rows": 200}), 3, inputs.SPECIAL)[0]
    assert values.isnan().any()
    assert values.isinf().any()


def test_exact_problems_also_get_special_values(reference):
    exact = reference("TOLERANCE = dict(rtol=0, atol=0)")
    assert inputs.SPECIAL in inputs.families(exact)
    assert inputs.SPECIAL not in inputs.families(reference())


def test_declared_families_replace_the_generic_ones(reference):
    one = reference('FAMILIES = {"wide": dict(rows=40), "ones": torch.ones_like}')
    wide, ones = inputs.families(one)
    assert inputs.draw(one, CASE, 1, wide)[0].shape == (6, 40)
    assert bool((inputs.draw(one, CASE, 1, ones)[0] == 1).all())


def test_a_reference_that_cannot_draw_is_to_blame(reference):
    with pytest.raises(Failed, match="get_inputs stops with") as raised:
        inputs.draw(reference(), Case("bad", {"rows": -1}), 1)
    assert raised.value.failure.outcome is Outcome.REFERENCE_FAILED
