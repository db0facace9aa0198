"""Stand-ins for torch's umbrella headers: for whom, with what, and never instead of an answer."""

from pathlib import Path

import pytest

from harness import build_light, build_object, toolchain
from harness.build_recipe import Compile, Recipe, Request, Source
from harness.build_steps import Done

HEAD = "#include <torch/extension.h>\n"
BODY = """
torch::Tensor twice(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  return y;
}
"""


@pytest.fixture(scope="module")
def torch_root():
    return toolchain.find("cpu").torch.root


def prepared(text, root, folder, operators=False):
    return build_light.prepare(Source("cuda.cu", text), root, folder, operators)


def test_only_what_the_source_names_is_included(torch_root, tmp_path):
    assert prepared(HEAD + BODY, torch_root, tmp_path)
    headers = (tmp_path / "ATen" / "ATen.h").read_text()
    assert "<ATen/ops/empty_like.h>" in headers
    assert "<ATen/ops/zeros.h>" not in headers
    assert "TensorOperators" not in headers
    assert "ATen/ATen.h" in (tmp_path / "torch" / "types.h").read_text()


def test_names_in_scope_of_torch_are_torchs_own_text(torch_root, tmp_path):
    assert prepared(HEAD + BODY, torch_root, tmp_path)
    types = (tmp_path / "torch" / "types.h").read_text()
    real = Path(torch_root, "include", "torch", "csrc", "api", "include", "torch", "types.h")
    assert "constexpr auto kFloat32 = at::kFloat;" in types
    assert types[types.index("namespace torch {") : types.index("} // namespace")] in (
        real.read_text()
    )


def test_python_headers_only_where_python_is_named(torch_root, tmp_path):
    bound = BODY + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { }"
    for text, expected in ((BODY, False), (bound, True)):
        assert prepared(HEAD + text, torch_root, tmp_path)
        extension = (tmp_path / "torch" / "extension.h").read_text()
        assert ("torch/csrc/utils/pybind.h" in extension) is expected


def test_calls_without_a_namespace_are_found(torch_root, tmp_path):
    text = HEAD + "using namespace torch;\nTensor f() { return zeros({4}); }\n"
    assert prepared(text, torch_root, tmp_path)
    assert "<ATen/ops/zeros.h>" in (tmp_path / "ATen" / "ATen.h").read_text()


@pytest.mark.parametrize(
    "text",
    [
        BODY,  # includes no umbrella header
        HEAD + "torch::nn::Linear layer(3, 4);",
        HEAD + "auto t = torch::tensor({1, 2});",
        HEAD + "auto o = torch::TensorOptions().requires_grad(true);",
        HEAD + "#ifdef TORCH_API_INCLUDE_EXTENSION_H\nint x;\n#endif",
        HEAD + "#if AT_SOMETHING\n#endif",
        HEAD + '#include "own.h"\n',
        HEAD + "c10::IValue v;",
        HEAD + "struct F : torch::autograd::Function<F> {};",
        HEAD + "at::SomeNewName x;",
    ],
)
def test_a_source_that_may_need_more_gets_the_full_headers(torch_root, tmp_path, text):
    assert not prepared(text, torch_root, tmp_path)


def test_comments_and_strings_name_nothing(torch_root, tmp_path):
    text = HEAD + '// torch::nn\n/* at::Unknown */ const char* s = "torch::nn";\n' + BODY
    assert prepared(text, torch_root, tmp_path)


@pytest.mark.parametrize(
    ("log", "own"),
    [
        ('cuda.cu(3): error: identifier "zzz_nowhere" is undefined\n', True),
        ('cuda.cu(3): error: expected a ";"\n', True),
        ('cuda.cu(3): error: identifier "TensorArg" is undefined\n', False),
        ('cuda.cu(3): error: no instance of function template "f" matches\n', False),
        ("Killed\n", False),
    ],
)
def test_only_errors_that_full_headers_cannot_cure_are_final(torch_root, log, own):
    assert build_light.users_own(log, torch_root) is own


def task(text, root, tmp_path):
    source = Source("cuda.cu", text)
    one = Compile(source, "cuda.cuda.o", ("nvcc",), True, "0" * 32)
    return build_object.Task(
        Recipe(Request("op", (source,)), (one,), (), "k", root), one, tmp_path, print
    )


def attempts(monkeypatch, outputs):
    """Replace the compiler: a list of (code, output) per attempt; records which headers it saw."""
    seen = []

    def attempt(task, light):
        seen.append(light is not None)
        return Done(task.name, *outputs[len(seen) - 1][:1], 1.0, outputs[len(seen) - 1][1])

    monkeypatch.setattr(build_object, "_attempt", attempt)
    return seen


def test_what_does_not_compile_with_stand_ins_is_compiled_with_full_headers(
    monkeypatch, torch_root, tmp_path
):
    error = "cuda.cu(3): error: no instance of function matches\n"
    seen = attempts(monkeypatch, [(1, error), (0, "")])
    assert build_object._compile(task(HEAD + BODY, torch_root, tmp_path)).code == 0
    assert seen == [True, False]


def test_missing_tensor_operators_are_added_before_giving_up(monkeypatch, torch_root, tmp_path):
    error = 'cuda.cu(3): error: no operator "+" matches these operands\n'
    seen = attempts(monkeypatch, [(1, error), (0, "")])
    assert build_object._compile(task(HEAD + BODY, torch_root, tmp_path)).code == 0
    assert seen == [True, True]


def test_the_users_own_mistake_is_compiled_once(monkeypatch, torch_root, tmp_path):
    seen = attempts(monkeypatch, [(1, 'cuda.cu(3): error: identifier "zzz_no" is undefined\n')])
    assert build_object._compile(task(HEAD + BODY, torch_root, tmp_path)).code == 1
    assert seen == [True]


@pytest.mark.slow
def test_a_full_header_solution_built_with_stand_ins_does_what_it_says(monkeypatch, tmp_path):
    import torch
    from torch.utils import cpp_extension as extension

    from harness import cache, inline

    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path))
    monkeypatch.setattr(extension, "load_inline", extension.load_inline)
    monkeypatch.setattr(extension, "load", extension.load)
    monkeypatch.setattr(extension, "CUDA_HOME", extension.CUDA_HOME)
    monkeypatch.setenv("CUDA_HOME", "")
    cache.root.cache_clear()
    inline.install("cuda", "cpu")
    cuda = """
        __global__ void unused_kernel(float* x) { x[0] = 1.f; }
        torch::Tensor twice(torch::Tensor x, std::optional<at::ScalarType> dtype) {
          TORCH_CHECK(x.dim() == 1, "x must have one dimension, not ", x.dim());
          auto y = torch::zeros({x.size(0), 2}, x.options().dtype(dtype.value_or(torch::kInt32)));
          y.select(1, 0).copy_(x);
          return y;
        }
    """
    declaration = "torch::Tensor twice(torch::Tensor x, std::optional<at::ScalarType> dtype);"
    built = extension.load_inline(
        name="twice", cpp_sources=declaration, cuda_sources=cuda, functions=["twice"]
    )
    logs = [Path(entry.log).read_text() for entry in inline.session().entries]
    assert logs[0].count("AT_PER_OPERATOR_HEADERS") == 2, "one of the two did not use stand-ins"
    got = built.twice(torch.tensor([1.0, 2.0]), torch.float64)
    assert got.dtype is torch.float64
    assert got.tolist() == [[1.0, 0.0], [2.0, 0.0]]
    assert built.twice(torch.tensor([3.0]), None).dtype is torch.int32
    assert not got.requires_grad
    with pytest.raises(RuntimeError, match="one dimension, not 2"):
        built.twice(torch.zeros(2, 2), None)
    cache.root.cache_clear()
