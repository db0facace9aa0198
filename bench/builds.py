"""Time load_inline, cold, after an edit and warm, beside torch's own: python bench/builds.py

Each build is a process of its own with an empty cache; the builders take turns, so that a busy
machine is busy for all. CPU seconds (user + system, compilers included) are what to compare on a
machine that does other work. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

KERNEL = """
__global__ void scale_kernel(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = EDIT * a * x[i];
}
"""
LEAN = {
    "cpp_sources": """
#include <pybind11/pybind11.h>
#include <cstdint>
void launch(const float* x, float* y, float a, int n, void* stream);
void scale(int64_t x, int64_t y, double a, int64_t n, int64_t stream) {
  launch(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y), a, n,
         reinterpret_cast<void*>(stream));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
""",
    "cuda_sources": "#include <cuda_runtime.h>\n"
    + KERNEL
    + """
void launch(const float* x, float* y, float a, int n, void* stream) {
  scale_kernel<<<(n + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(x, y, a, n);
}
""",
    "no_implicit_headers": True,
}
STABLE = {
    "cpp_sources": "",
    "cuda_sources": "#include <cuda_runtime.h>\n#include <torch/csrc/stable/library.h>\n"
    "#include <torch/csrc/stable/tensor.h>\n#include <torch/csrc/stable/ops.h>\n"
    + KERNEL
    + """
using torch::stable::Tensor;
Tensor scale(Tensor x, double a) {
  Tensor y = torch::stable::empty_like(x);
  int n = static_cast<int>(x.numel());
  scale_kernel<<<(n + 255) / 256, 256>>>(static_cast<const float*>(x.data_ptr()),
                                         static_cast<float*>(y.data_ptr()), a, n);
  return y;
}
STABLE_TORCH_LIBRARY(bench_builds, m) { m.def("scale(Tensor x, float a) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(bench_builds, CUDA, m) { m.impl("scale", TORCH_BOX(&scale)); }
""",
    "no_implicit_headers": True,
    "is_python_module": False,
}
FULL = {
    "cpp_sources": "torch::Tensor scale(torch::Tensor x, double a);",
    "cuda_sources": "#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>\n"
    "#include <c10/cuda/CUDAException.h>\n"
    + KERNEL
    + """
torch::Tensor scale(torch::Tensor x, double a) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "x must be float32 on a GPU");
  auto y = torch::empty_like(x);
  int n = static_cast<int>(x.numel());
  auto stream = at::cuda::getCurrentCUDAStream();
  scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), a, n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
""",
    "functions": ["scale"],
}
SOLUTIONS = {"lean, pybind11": LEAN, "lean, stable ABI": STABLE, "torch/extension.h": FULL}

CHILD = """
import json, sys, time
arguments, builder = json.loads(sys.argv[1]), sys.argv[2]
import torch
if builder == "steelyard":
    from harness import inline
    inline.install("cuda")
from torch.utils.cpp_extension import load_inline
started = time.perf_counter()
load_inline(name="scale", **arguments)
print("seconds", time.perf_counter() - started)
"""


def build(builder: str, arguments: dict, folder: Path) -> dict:
    """Wall seconds of the call and CPU seconds of the process with all its compilers."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "STEELYARD_CACHE": str(folder / "steelyard"),
        "TORCH_EXTENSIONS_DIR": str(folder / "torch"),
        "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
    }
    if builder == "torch":
        from harness import toolchain

        tools = toolchain.find("cpu")
        environment.update(CUDA_HOME=tools.cuda.root, TORCH_CUDA_ARCH_LIST=tools.arch)
        environment["CPATH"] = os.pathsep.join(tools.includes[4:])  # headers that pip holds
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(arguments), builder],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{builder}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    call = float(done.stdout.rsplit("seconds", 1)[1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"call_s": call, "process_s": time.monotonic() - started, "cpu_s": cpu}


def rounds(label: str, count: int, builders: tuple[str, ...]) -> dict:
    """States cold, edit (another constant in the kernel) and warm for each builder."""
    found: dict = {builder: {"cold": [], "edit": [], "warm": []} for builder in builders}
    for number in range(count):
        for builder in builders if number % 2 == 0 else builders[::-1]:
            with tempfile.TemporaryDirectory(prefix="builds-") as folder:
                for state, constant in (("cold", "1"), ("edit", "2"), ("warm", "2")):
                    arguments = dict(SOLUTIONS[label])
                    arguments["cuda_sources"] = arguments["cuda_sources"].replace("EDIT", constant)
                    result = build(builder, arguments, Path(folder))
                    found[builder][state].append(result)
                    print(f"{label:20} {builder:10} {state:5} {result}", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=SOLUTIONS, help="one kind of solution")
    parser.add_argument("--builder", choices=("steelyard", "torch"), help="one builder")
    parser.add_argument("--json", help="write all samples to this file")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    builders = (options.builder,) if options.builder else ("steelyard", "torch")
    labels = [options.only] if options.only else list(SOLUTIONS)
    found = {label: rounds(label, options.rounds, builders) for label in labels}
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, {platform.machine()}, load {os.getloadavg()[0]:.1f}; medians of "
          f"{options.rounds}; wall s (CPU s)\n")  # fmt: skip
    print("| solution | builder | cold | after an edit | warm |\n| --- | --- | --- | --- | --- |")
    for label, by_builder in found.items():
        for builder, states in by_builder.items():
            cells = [
                f"{statistics.median(r['call_s'] for r in results):.2f} "
                f"({statistics.median(r['cpu_s'] for r in results):.1f})"
                for results in states.values()
            ]
            print(f"| {label} | {builder} | {' | '.join(cells)} |")
    if options.json:
        Path(options.json).write_text(json.dumps({"cores": cores, "samples": found}, indent=1))


if __name__ == "__main__":
    main()
