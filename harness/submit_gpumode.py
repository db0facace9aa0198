"""A GPU MODE submission.py around a solution, and the problem folder that it can be run in.

data = inputs                                where Model has neither weights nor arguments
data = (*inputs, weights, arguments)         otherwise; weights: a dict by Model's parameter names
A leaderboard that hands over something else wants its own ModelNew.forward.
"""

from __future__ import annotations

import json

from harness.submit_facts import Facts

SEED = 4242

PLAIN = """

_model = None


@torch.no_grad()
def custom_kernel(data):
    global _model
    if _model is None:
        _model = ModelNew().to("cuda")
    return _model(*data)
"""

WITH_WEIGHTS = """

_models = {}


@torch.no_grad()
def custom_kernel(data):
    *inputs, weights, arguments = data
    key = repr(arguments)
    if key not in _models:
        model = ModelNew(*arguments).to("cuda")
        state = dict(model.named_parameters())
        state.update(model.named_buffers())
        _models[key] = model, [(state[name], name) for name in weights]
    model, state = _models[key]
    for tensor, name in state:
        tensor.data = weights[name]
    return model(*inputs)
"""

REFERENCE = """

_CASES = {cases}


def _on_gpu(value):
    return value.to("cuda") if isinstance(value, torch.Tensor) else value


def generate_input(case: int, seed: int):
    sizes = _CASES[case]
    torch.manual_seed(seed % 2**63)
    arguments = get_init_inputs({init_sizes})
    weights = {{k: _on_gpu(v) for k, v in Model(*arguments).state_dict().items()}}
    inputs = [_on_gpu(x) for x in get_inputs(**sizes)]
    return {data}


@torch.no_grad()
def ref_kernel(data):
    {unpack}
    model = Model(*arguments).to("cuda")
    model.load_state_dict(weights)
    return model(*inputs)


def check_implementation(data, output):
    wanted = ref_kernel(data)
    wanted = wanted if isinstance(wanted, (tuple, list)) else (wanted,)
    output = output if isinstance(output, (tuple, list)) else (output,)
    if len(output) != len(wanted):
        return False, f"{{len(output)}} outputs, want {{len(wanted)}}"
    for i, (got, want) in enumerate(zip(output, wanted)):
        if got.shape != want.shape or got.dtype != want.dtype:
            wants = f"{{want.dtype}} {{list(want.shape)}}"
            return False, f"output {{i}}: {{got.dtype}} {{list(got.shape)}}, want {{wants}}"
        rtol, atol = ({rtol!r}, {atol!r}) if want.is_floating_point() else (0, 0)
        if {scaled!r} and want.is_floating_point() and want.numel():
            atol *= want.double().square().mean().sqrt().item()
        close = torch.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
        if not close.all():
            return False, f"output {{i}}: {{int((~close).sum())}} of {{close.numel()}} differ"
    return True, ""
"""

TASK_PY = '''"""Types of the problem; eval.py reads TestSpec."""

from typing import TypedDict, TypeVar

input_t = TypeVar("input_t", bound=tuple)
output_t = TypeVar("output_t")


class TestSpec(TypedDict):
    case: int
    seed: int
'''


def submission(solution: str, facts: Facts) -> str:
    """The one file to send: directives, the solution, custom_kernel(data)."""
    adapter = PLAIN if facts.bare else WITH_WEIGHTS
    return _directives(solution, facts.op) + solution.rstrip() + "\n" + adapter


def reference(problem: str, facts: Facts) -> str:
    """The problem's reference.py: the reference, generate_input and check_implementation."""
    bare = facts.bare
    return (
        problem.rstrip()
        + "\n"
        + REFERENCE.format(
            cases=repr([case.sizes for case in facts.cases]),
            init_sizes="**sizes" if facts.sized_init else "",
            data="tuple(inputs)" if bare else "(*inputs, weights, arguments)",
            unpack=(
                "inputs, weights, arguments = data, {}, []"
                if bare
                else "*inputs, weights, arguments = data"
            ),
            rtol=facts.rtol,
            atol=facts.atol,
            scaled=facts.scaled,
        )
    )


def task_yml(facts: Facts, gpu_only: frozenset[str]) -> str:
    """task.yml for the layout of reference-kernels: eval.py and utils.py one folder up."""
    small, large = [], []
    for number, case in enumerate(facts.cases):
        spec = json.dumps({"case": number, "seed": SEED + number})
        (large if case.name in gpu_only else small).append(f"  - {spec}  # {case.name}")
    large = large or [line for line in small if line.endswith("# headline")] or small[:1]
    files = ("submission.py", "@SUBMISSION@"), ("task.py", "task.py"), ("utils.py", "../utils.py")
    files += ("reference.py", "reference.py"), ("eval.py", "../eval.py")
    lines = [
        "files:",
        *(f"  - {json.dumps({'name': name, 'source': source})}" for name, source in files),
        'lang: "py"',
        f"description: {json.dumps(facts.op)}",
        "config:",
        '  main: "eval.py"',
        "tests:",
        *(small or large),
        "benchmarks:",
        *large,
        "ranking_by: geom",
        "test_timeout: 180",
        "benchmark_timeout: 180",
        "ranked_timeout: 180",
    ]
    return "\n".join(lines) + "\n"


def _directives(solution: str, op: str) -> str:
    """A leaderboard line, unless the solution starts with one of its own."""
    for line in solution.splitlines():
        if not line.startswith("#"):
            break
        if line.lower().startswith("#!popcorn leaderboard "):
            return ""
    return (
        f"#!POPCORN leaderboard {op}\n\n"
        if not solution.startswith("#!POPCORN")
        else (f"#!POPCORN leaderboard {op}\n")
    )
