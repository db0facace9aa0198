"""What SOL-ExecBench has beyond flashinfer-bench: axes, inputs, tolerances, languages, flags."""

import json
from pathlib import Path

import pytest
from flashinfer_set import CUDA, RANDOM, RETURNS, DataSet, solution, workload

from harness import plan, problem
from harness.formats import flashinfer, flashinfer_inputs, flashinfer_solution, sol_execbench
from harness.records import Failed

EXPRESSIONS = [
    ("rows + 1", 6),
    ("cols // rows", 3),
    ("cols / 4", 4),
    ("-rows + 2 ** 3 % 5", -2),
    ("rows ** 2", 25),
    ("(rows + cols) * 2", 42),
]


@pytest.fixture
def data(write):
    return DataSet(write)


@pytest.mark.parametrize(("text", "value"), EXPRESSIONS)
def test_expression_axes(text, value):
    sizes = {"rows": 5, "cols": 16}
    if value >= 0:
        assert sol_execbench.evaluate(text, sizes) == value
    else:
        with pytest.raises(ValueError, match="comes to -2"):
            sol_execbench.evaluate(text, sizes)


WRONG = [
    ("rows / 2", "comes to 2.5"),
    ("row", "no axis row"),
    ("len('a')", "only names, numbers"),
    ("rows +", "invalid syntax"),
    ("rows / 0", "zero"),
    ("9 ** 9 ** 9", "power is too large"),
    ("10 ** 8 * 10 ** 8", "a number is too large"),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_wrong_expressions(text, says):
    with pytest.raises(ValueError, match=says):
        sol_execbench.evaluate(text, {"rows": 5})


def test_an_axis_by_expression_is_sized_for_each_workload(data):
    axes = {
        "rows": {"type": "var"},
        "half": {"type": "const", "value": 8},
        "cols": {"type": "expr", "expression": "half * 2"},
    }
    reference = problem.load(data.definition({"axes": axes}))
    assert reference.inputs(reference.cases[0])[0].shape == (5, 16)
    axes["cols"]["expression"] = "half / 3"
    with pytest.raises(Failed) as caught:
        problem.load(data.definition({"axes": axes}))
    assert "axes.cols.expression is 'half / 3', and comes to" in caught.value.failure.message


CUSTOM = (
    "import torch\n\ndef make(axes, device):\n"
    "    x = torch.ones(axes['rows'], axes['cols'], device='cuda')\n"
    "    return {'x': x, 's': torch.rand(axes['rows']), 'eps': 2.0}\n\n"
)


def test_custom_inputs_come_from_the_definitions_function(data):
    text = CUSTOM + RETURNS
    path = data.definition({"reference": text, "custom_inputs_entrypoint": "make"})
    custom = {name: {"type": "custom"} for name in ("x", "s", "eps")}
    data.workloads(workload(0, 5, **custom)["workload"])
    reference = problem.load(path)
    x, s, eps = reference.inputs(reference.cases[0])
    assert float(x.sum()) == 80
    assert s.shape == (5,)
    assert eps == 2.0
    data.workloads(workload(0, 5, **{**custom, "x": RANDOM})["workload"])
    with pytest.raises(Failed) as caught:
        problem.load(path)
    assert "want all custom" in caught.value.failure.message


def test_a_bare_line_is_a_workload_and_norm_weights_are_ones(data):
    inputs = {
        "x": {"shape": ["rows", "cols"], "dtype": "bfloat16"},
        "norm_weight": {"shape": ["cols"], "dtype": "bfloat16"},
        "down_proj2": {"shape": ["cols", "cols"], "dtype": "float32"},
    }
    text = "def run(x, norm_weight, down_proj2):\n    return x, x\n"
    path = data.definition({"inputs": inputs, "reference": text})
    body = {**workload(0, 400)["workload"], "inputs": {"x": RANDOM}}
    data.workloads(body)
    assert flashinfer.read(path).sol
    reference = problem.load(path)
    x, weight, matrix = reference.inputs(reference.cases[0])
    assert set(weight.tolist()) == {1.0}
    assert str(weight.dtype) == "torch.bfloat16"
    assert 0.2 < float(matrix.std()) < 0.3  # 1 / sqrt(16)
    assert 0.9 < float(x.float().std()) < 1.1


@pytest.mark.parametrize("draw", sol_execbench.DRAWS, ids=lambda draw: draw.how)
def test_every_kind_of_draw_has_values(draw):
    values = flashinfer_inputs._drawn(draw.how, (6, 6))
    assert values.shape == (6, 6)
    assert bool(values.isfinite().all())
    assert draw.holds(next(iter((*draw.names, *draw.endings))), (6, 6))
    assert not draw.holds("hidden_states", (6, 6))


def accepted(data, stated: dict, error: float, count: int) -> tuple[bool, str]:
    """Whether a result with `count` of 80 elements off by `error` is accepted."""
    path = data.definition()
    data.workloads({**workload(0, 5)["workload"], "tolerance": stated})
    reference = problem.load(path)
    case = reference.cases[0]
    arguments = reference.inputs(case)
    y, m = reference.Model({})(*arguments)
    y.view(-1)[:count] += error
    return reference.accepts(case, arguments, (y, m))


def test_a_workloads_tolerance_decides(data):
    exact = {"max_atol": 0.5, "max_rtol": 0.0, "required_matched_ratio": 0.9}
    assert accepted(data, exact, 0.4, 80) == (True, "")
    assert accepted(data, exact, 9.0, 8) == (True, "")
    good, why = accepted(data, exact, 9.0, 9)
    assert not good
    assert why == "out 0: 88.7500% of elements are within 0.5 + 0 |want|, want 90.0000%"
    good, why = accepted(data, {**exact, "max_error_cap": 1.0}, 9.0, 1)
    assert not good
    assert "an error of 9, at most 1 is allowed" in why
    assert not accepted(data, exact, float("nan"), 9)[0]


def test_tolerances_are_numbers(data):
    path = data.definition()
    data.workloads({**workload(0, 5)["workload"], "tolerance": {"max_atol": "1e-2"}})
    with pytest.raises(Failed) as caught:
        problem.declared(path)
    assert 'tolerance.max_atol is "1e-2"; want a number' in caught.value.failure.message


def sol_solution(write, sources, entry="main.py::run", **spec):
    body = solution("mine", sources, entry, destination_passing_style=False, **spec)
    del body["spec"]["language"]
    return write("mine.json", json.dumps(body))


def test_languages_are_named_in_a_list(write):
    path = sol_solution(write, {"main.py": RETURNS}, languages=["pytorch"])
    assert flashinfer_solution.read(path).language == "python"
    for wrong in (["cute_dsl"], ["pytorch", "triton"], []):
        with pytest.raises(Failed) as caught:
            flashinfer_solution.read(sol_solution(write, {"main.py": RETURNS}, languages=wrong))
        assert "want a list of one of pytorch, triton, cuda_cpp" in caught.value.failure.message


def test_compile_options_reach_the_build(data, write):
    words = {"languages": ["cuda_cpp"], "compile_options": {"cflags": ["-DA=1"], "ld_flags": []}}
    path = sol_solution(write, CUDA, "main.cpp::run", **words)
    text = Path(flashinfer_solution.module_of(data.definition(), path)).read_text()
    assert "extra_cflags=['-DA=1']" in text
    assert "extra_cuda_cflags=['-O3', '--use_fast_math']" in text
    assert "extra_ldflags=[]" in text
    plain = sol_solution(write, CUDA, "main.cpp::run", languages=["cuda_cpp"])
    assert flashinfer_solution.read(plain).flags == flashinfer_solution.Flags()


def test_a_solution_for_another_name_is_judged_with_a_warning(data, write):
    definition = data.definition({"name": "other"})
    data.workloads(workload(0, 5)["workload"])
    path = sol_solution(write, {"main.py": RETURNS}, languages=["pytorch"])
    (odd,) = flashinfer_solution.check(definition, path, "cpu")
    assert "definition is 'scale_rows'; want 'other'" in odd
    request = plan.Request(reference=str(definition), solution=str(path))
    assert plan.plans(request)[0].op == "other"
