"""load_inline as solutions call it, with real but small compiles: a kernel takes about a second."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import build_cache, cache, inline, records

ROOT = Path(__file__).parent.parent
KERNEL = """
__global__ void fill_kernel(int* x) { x[threadIdx.x] = VALUE; }
extern "C" int value() { return VALUE; }
"""
# A Python module without pybind11, which alone takes seconds to compile.
MODULE = r"""
#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(VALUE); }
static PyMethodDef methods[] = {{"FUNCTION", answer, METH_NOARGS, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAME", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_NAME() { return PyModule_Create(&module); }
"""


@pytest.fixture(autouse=True)
def builder(tmp_path_factory, monkeypatch):
    """A cache of its own for each test, and load_inline replaced."""
    import torch.utils.cpp_extension as extension

    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("STEELYARD_CACHE", str(place))
    cache.root.cache_clear()
    before = extension.load_inline, extension.load, extension.CUDA_HOME
    home = os.environ.get("CUDA_HOME")
    inline.install("cuda", "cpu")
    yield place
    extension.load_inline, extension.load, extension.CUDA_HOME = before
    if home is None:
        os.environ.pop("CUDA_HOME", None)
    cache.root.cache_clear()


def load_inline(**arguments):
    from torch.utils.cpp_extension import load_inline as installed

    return installed(**{"no_implicit_headers": True, "cpp_sources": "", **arguments})


def kernel(value, **arguments):
    """Path of a library with one kernel."""
    source = KERNEL.replace("VALUE", str(value))
    given = {"name": "fill", "cuda_sources": source, "is_python_module": False, **arguments}
    return load_inline(**given)


def module(name, function, value):
    text = MODULE.replace("NAME", name).replace("FUNCTION", function)
    return load_inline(name=name, cpp_sources=text.replace("VALUE", str(value)))


def run_solution(path, check="True", **environment):
    """Import a solution in a process of its own, as a candidate does; its output."""
    code = (
        "import runpy, sys; from harness import inline; inline.install('cuda', 'cpu'); "
        f"names = runpy.run_path(sys.argv[1]); print({check})"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=Path(path).parent,
        timeout=300,
    )


def solution(source, prefix="r", **arguments):
    """A solution file that builds one CUDA source as a plain library."""
    extra = "".join(f", {name}={value!r}" for name, value in arguments.items())
    return (
        "from torch.utils.cpp_extension import load_inline\n"
        f'CUDA = {prefix}"""{source}"""\n'
        "library = load_inline(name='fill', cpp_sources='', cuda_sources=CUDA, "
        f"no_implicit_headers=True, is_python_module=False{extra})\n"
    )


def test_a_library_with_its_kernels_resources():
    path = kernel(5)
    assert ctypes.CDLL(path).value() == 5
    (entry,) = inline.session().entries
    (resources,) = entry.kernels
    assert resources.kernel == "fill_kernel"
    assert resources.arch == "sm_90"
    assert resources.registers > 0
    assert not resources.spills


def test_trial_A3_the_same_name_in_two_files_never_mixes():
    first, second = module("matmul", "one", 1), module("matmul", "two", 2)
    assert (first.one(), second.two()) == (1, 2)
    assert not hasattr(second, "one")


def test_trial_A3_an_edited_constant_is_what_runs(capsys):
    assert module("op", "value", 1).value() == 1
    assert module("op", "value", 2).value() == 2
    assert module("op", "value", 1).value() == 1
    text = MODULE.replace("NAME", "op").replace("FUNCTION", "value").replace("VALUE", "2")
    load_inline(name="op", cpp_sources=text, verbose=True)
    assert "op: cached" in capsys.readouterr().out


def test_trial_A4_a_failed_build_is_not_remembered(tmp_path):
    wanted = {"extra_include_paths": [str(tmp_path)], "name": "late", "is_python_module": False}
    source = '#include "late.h"\nextern "C" int value() { return LATE; }'
    with pytest.raises(inline.BuildError, match=r"late\.h"):
        load_inline(cpp_sources=source, **wanted)
    (tmp_path / "late.h").write_text("#define LATE 7\n")
    assert ctypes.CDLL(load_inline(cpp_sources=source, **wanted)).value() == 7


def test_an_edited_header_rebuilds(tmp_path):
    wanted = {"extra_include_paths": [str(tmp_path)], "name": "own", "is_python_module": False}
    source = '#include "own.h"\nextern "C" int value() { return OWN; }'
    values = []
    for value in (1, 2, 1):
        (tmp_path / "own.h").write_text(f"#define OWN {value}\n")
        path = load_inline(cpp_sources=source, **wanted)
        values.append(ctypes.CDLL(path).value())
    assert values == [1, 2, 1]
    assert [entry.cached for entry in inline.session().entries] == [False, False, True]


def test_trial_A5_no_ninja_on_path(tmp_path):
    path = tmp_path / "fill.py"
    path.write_text(solution(KERNEL.replace("VALUE", "3")))
    done = run_solution(path, "'built'", PATH="/usr/bin:/bin:/usr/local/bin")
    assert done.stdout.decode().strip() == "built", done.stderr.decode()


def test_trial_A11_a_cache_that_cannot_be_written_falls_back_with_one_notice(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cache.root.cache_clear()
    assert ctypes.CDLL(kernel(6)).value() == 6
    assert str(tmp_path / "file" / "below") in build_cache.notice()
    assert "STEELYARD_CACHE" in build_cache.notice()


def test_a_confined_process_reads_the_cache_and_builds_in_its_own_folder(
    builder, monkeypatch, tmp_path
):
    built = kernel(1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    unwritable = tmp_path / "file"
    unwritable.write_text("")
    monkeypatch.setattr(build_cache, "folder", lambda: unwritable)
    assert kernel(1) == built
    assert str(tmp_path) in kernel(2)


def test_trial_A13_spaces_brackets_and_quotes_in_every_path(tmp_path):
    project = tmp_path / "my kernels (v2)" / "it's"
    project.mkdir(parents=True)
    (project / "value of.h").write_text("#define VALUE 8\n")
    path = project / "kernel_solution_1 copy 2.py"
    path.write_text(solution('#include "value of.h"' + KERNEL, extra_include_paths=[str(project)]))
    done = run_solution(path, "'built'", STEELYARD_CACHE=str(project / "the cache"))
    assert done.stdout.decode().strip() == "built", done.stderr.decode()


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_trial_A14_non_ascii_comments_in_any_locale(tmp_path, locale):
    path = tmp_path / "unicode.py"
    text = "// M×N → K, β ≤ 1\n" + KERNEL.replace("VALUE", "4")
    path.write_text(solution(text), encoding="utf-8")
    settings = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run_solution(path, "'built'", **settings)
    assert done.stdout.decode().strip() == "built", done.stderr.decode()


def test_trial_A14_the_error_message_survives_beside_non_ascii_text(tmp_path):
    path = tmp_path / "unicode.py"
    path.write_text(solution("// M×N → K\nint broken() { return 1 }\n"), encoding="utf-8")
    done = run_solution(path, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert "unicode.py:3: expected" in done.stderr.decode("utf-8", "replace")
    assert "UnicodeDecodeError" not in done.stderr.decode("utf-8", "replace")


def test_trial_A15_the_users_line_and_at_most_15_lines(tmp_path):
    source = KERNEL.replace("x[threadIdx.x] = VALUE", "x[threadIdx.x] = VALUE + undeclared")
    path = tmp_path / "op.py"
    path.write_text(solution(source.replace("VALUE", "1")))
    done = run_solution(path)
    text = done.stderr.decode()
    shown = text[text.index("BuildError: ") :].strip().splitlines()
    assert len(shown) <= 15
    assert 'op.py:3: identifier "undeclared" is undefined' in shown[0]
    assert "x[threadIdx.x] = 1 + undeclared;" in shown[1]
    assert shown[2].index("^") == shown[1].index("undeclared")
    log = Path(shown[-1].removeprefix("full log: "))
    assert "undeclared" in log.read_text()


def test_trial_A17_the_second_run_is_cached_and_at_least_ten_times_shorter(tmp_path):
    kernel(9)
    kernel(9)
    first, second = inline.session().entries
    assert not first.cached
    assert second.cached
    assert second.library == first.library


def test_trial_A20_an_extern_c_mismatch_says_which_function(tmp_path):
    with pytest.raises(inline.BuildError) as caught:
        load_inline(
            name="mismatch",
            cpp_sources='int launch(int); extern "C" int call() { return launch(1); }',
            cuda_sources='extern "C" int launch(int x) { return x; }',
            is_python_module=False,
        )
    text = str(caught.value)
    assert "undefined symbol launch(int)" in text
    assert "declared in cpp_sources" in text
    assert 'extern "C"' in text


@pytest.mark.parametrize("folder", ["/tmp/topk_v2_does_not_exist/x", "cuda_extensions"])
def test_trial_A20_build_directory_needs_not_exist_and_nothing_is_littered(tmp_path, folder):
    path = tmp_path / "op.py"
    path.write_text(solution(KERNEL.replace("VALUE", "2"), build_directory=folder))
    done = run_solution(path, "'built'")
    assert done.stdout.decode().strip() == "built", done.stderr.decode()
    assert [p.name for p in tmp_path.iterdir() if p.name != "__pycache__"] == ["op.py"]
    assert not os.path.exists("/tmp/topk_v2_does_not_exist")


def test_trial_E8_crlf_with_macro_continuations():
    source = '#define BODY(n) \\\r\n  return \\\r\n    n;\r\nextern "C" int value() { BODY(3) }\r\n'
    path = load_inline(name="crlf", cuda_sources=source, is_python_module=False)
    assert ctypes.CDLL(path).value() == 3


def test_functions_as_list_dict_or_name_bind_what_torch_binds():
    from harness import inline_request as request

    for given in ("f", ["f"], {"f": 'says "f"\nand more'}):
        strings = request.Strings("int f();", None, given, True, False)
        made = request.from_strings("m", strings, request.Flags(), None)
        assert made.functions == ("f",)
        assert 'm.def("f", f, "' in made.sources[0].text
    assert r"says \"f\"\nand more" in made.sources[0].text


def test_implicit_headers_and_the_callers_list_is_left_alone():
    from harness import inline_request as request

    cpp, cuda = ["int f();"], ["int f() { return 1; }"]
    made = request.from_strings(
        "m", request.Strings(cpp, cuda, ["f"], False, True), request.Flags(), None
    )
    main, kernels = made.sources
    assert main.text.startswith("#include <torch/extension.h>\nint f();\nPYBIND11_MODULE(")
    assert "torch::wrap_pybind_function(f)" in main.text
    assert kernels.text.startswith("#include <torch/types.h>\n#include <cuda.h>\n")
    assert (cpp, cuda) == (["int f();"], ["int f() { return 1; }"])


def test_flags_are_split_as_torchs_shell_does():
    from harness.build_recipe import split_flags

    flags = ["-O3 --use_fast_math", " -DNAME='\"x\"' ", "", "-gencode arch=compute_90,code=sm_90"]
    assert split_flags(flags) == (
        *("-O3", "--use_fast_math", '-DNAME="x"', "-gencode", "arch=compute_90,code=sm_90"),
    )


def test_load_compiles_files_beside_the_solution(tmp_path):
    (tmp_path / "value.h").write_text("#define VALUE 12\n")
    (tmp_path / "k.cu").write_text('#include "value.h"\n' + KERNEL)
    path = tmp_path / "op.py"
    path.write_text(
        "import ctypes\nfrom torch.utils.cpp_extension import load\n"
        "path = load(name='k', sources=['k.cu'], is_python_module=False)\n"
    )
    done = run_solution(path, "names['ctypes'].CDLL(names['path']).value()")
    assert done.stdout.decode().strip() == "12", done.stderr.decode()


def test_linking_the_driver_needs_no_driver_and_no_stub():
    path = kernel(1, extra_ldflags=["-lcuda"])
    assert isinstance(path, str | inline._Absent)


def test_a_name_that_is_no_identifier_is_refused_before_compiling():
    with pytest.raises(inline.BuildError, match="letters, digits and _"):
        load_inline(name="my op", cpp_sources="")
    assert inline.session().entries == []


def test_sycl_is_refused():
    with pytest.raises(inline.BuildError, match="sycl"):
        load_inline(name="s", sycl_sources="x")


def test_the_failure_carries_the_outcome():
    with pytest.raises(inline.BuildError) as caught:
        kernel("not_declared")
    assert caught.value.failed.failure.outcome is records.Outcome.DOES_NOT_BUILD
