"""nvcc taken apart: the same object as nvcc makes, or nvcc as a whole."""

import re
import subprocess

import pytest

from harness import build_nvcc, build_steps, toolchain

SOURCE = """
#include <cuda_runtime.h>
static __device__ int counter;
namespace { __global__ void hidden(int* p) { p[0] = atomicAdd(&counter, 1); } }
template <typename T> static __global__ void templated(T* p) { p[0] = T(counter); }
void run(int* p) { hidden<<<1, 1>>>(p); templated<int><<<1, 1>>>(p); }
"""


def command(output):
    tools = toolchain.find("cpu")
    flags = ("-gencode=arch=compute_90,code=sm_90", "-std=c++17", "-Xcompiler", "-fPIC")
    return (tools.nvcc, *flags, "-Xptxas", "-v", "-c", "k.cu", "-o", output)


def symbols(path):
    done = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True)
    named = (tuple(line.split()[-2:]) for line in done.stdout.splitlines())
    return sorted((kind, _without_module_id(name)) for kind, name in named)


def _without_module_id(name):
    return re.sub(r"\d+", "#", re.sub(r"_GLOBAL__N_.*?hidden", "hidden", name))


def test_the_two_passes_run_beside_each_other_and_give_nvccs_object(tmp_path):
    (tmp_path / "k.cu").write_text(SOURCE)
    subprocess.run(command("whole.o"), cwd=tmp_path, check=True, capture_output=True)
    steps = build_nvcc.steps(command("parts.o"), "k.cu", tmp_path, "0123456789abcdef", "compiling")
    assert steps is not None, "nvcc's --dryrun is no longer understood"
    by_tool = {step.name: step for step in steps}
    host = next(n for n, step in by_tool.items() if step.command.startswith("cudafe++"))
    device = next(n for n, step in by_tool.items() if "/cicc" in step.command)
    assert host not in by_tool[device].after
    assert device not in by_tool[host].after
    results = build_steps.run(steps, tmp_path, lambda text: None)
    assert [done.code for done in results] == [0] * len(steps), results
    assert "registers" in "".join(done.output for done in results)
    assert symbols(tmp_path / "parts.o") == symbols(tmp_path / "whole.o")


def fake_nvcc(tmp_path, text, code=0):
    path = tmp_path / "nvcc"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return (str(path), "-c", "k.cu", "-o", "k.o")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#$ gcc -c -x c++ k.cpp -o k.o",
        "#$ newtool k.cu -o k.o",
        "nvcc warning: something new",
        '#$ cudafe++ --gen_module_id_file --module_id_file_name "m" k.ii\n#$ newtool k.ii -o "x"\n'
        '#$ gcc -c -x c++ "k.cpp" -o "k.o"',
    ],
)
def test_anything_unexpected_means_nvcc_as_a_whole(tmp_path, text):
    made = build_nvcc.steps(fake_nvcc(tmp_path, text), "k.cu", tmp_path, "0" * 16, "")
    assert made is None


def test_an_nvcc_that_refuses_means_nvcc_as_a_whole(tmp_path):
    nvcc = fake_nvcc(tmp_path, "nvcc fatal : Unsupported gpu architecture", 1)
    assert build_nvcc.steps(nvcc, "k.cu", tmp_path, "0" * 16, "") is None


def test_steps_after_a_failed_one_do_not_run(tmp_path):
    steps = (
        build_steps.Step("bad", ("false",)),
        build_steps.Step("next", ("touch", "made"), ("bad",)),
        build_steps.Step("other", ("touch", "other")),
    )
    codes = [done.code for done in build_steps.run(steps, tmp_path, lambda text: None)]
    assert codes == [1, None, 0]
    assert not (tmp_path / "made").exists()


def test_a_program_that_does_not_exist_is_a_failed_step(tmp_path):
    step = build_steps.Step("gone", ("/nonexistent/compiler",))
    (done,) = build_steps.run((step,), tmp_path, lambda text: None)
    assert done.code == 127
    assert "/nonexistent/compiler" in done.output
