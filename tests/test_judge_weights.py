"""Equal parameters by a stated policy."""

import torch

from harness.candidate_model import state
from harness.judge_weights import match


def net(**layers) -> torch.nn.ModuleDict:
    return torch.nn.ModuleDict(layers)


def wanted(model) -> dict:
    return model.state_dict()


def seeded(make):
    torch.manual_seed(3)
    return make()


def test_no_parameters_need_no_policy():
    assert match({}, []).how == "none"


def test_equal_values_need_no_copy_whatever_their_names():
    first = seeded(lambda: net(a=torch.nn.Linear(3, 4)))
    second = seeded(lambda: net(b=torch.nn.Linear(3, 4)))
    assert match(wanted(first), state(second)).how == "same seed"


def test_other_values_are_copied_by_name():
    first, second = (net(a=torch.nn.Linear(3, 3), b=torch.nn.Linear(3, 3)) for _ in range(2))
    found = match(wanted(first), state(second))
    assert found.how == "by name"
    assert dict(found.copies) == {name: name for name in wanted(first)}


def test_other_names_are_told_apart_by_shape():
    first, second = net(a=torch.nn.Linear(3, 4)), net(z=torch.nn.Linear(3, 4))
    found = match(wanted(first), state(second))
    assert found.how == "by shape"
    assert dict(found.copies) == {"z.weight": "a.weight", "z.bias": "a.bias"}


def test_equal_shapes_under_other_names_are_not_guessed():
    first = net(a=torch.nn.Linear(3, 3), b=torch.nn.Linear(3, 3))
    second = net(y=torch.nn.Linear(3, 3), z=torch.nn.Linear(3, 3))
    found = match(wanted(first), state(second))
    assert found.how == "differ"
    assert "name them as the reference does" in found.why


def test_a_missing_parameter_is_named():
    first, second = net(a=torch.nn.Linear(3, 4)), net(a=torch.nn.Linear(3, 4, bias=False))
    found = match(wanted(first), state(second))
    assert found.how == "differ"
    assert "a.bias [4]" in found.why


def test_parameters_of_its_own_do_no_harm():
    first = seeded(lambda: net(a=torch.nn.Linear(3, 4)))
    second = seeded(lambda: net(a=torch.nn.Linear(3, 4), extra=torch.nn.Linear(7, 7)))
    assert match(wanted(first), state(second)).how == "same seed"
