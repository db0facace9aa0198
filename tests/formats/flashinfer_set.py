"""A small flashinfer-bench data set for tests: written as theirs lie on a disk."""

import json

REFERENCE = (
    "import torch\n\n@torch.no_grad()\ndef run(x, s, eps):\n"
    "    y = x * s[:, None] + eps\n    return y, y.amax(1)\n"
)
DEFINITION = {
    "name": "scale_rows",
    "op_type": "scale",
    "axes": {"rows": {"type": "var"}, "cols": {"type": "const", "value": 16}},
    "inputs": {
        "x": {"shape": ["rows", "cols"], "dtype": "float32"},
        "s": {"shape": ["rows"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["rows", "cols"], "dtype": "float32"},
        "m": {"shape": ["rows"], "dtype": "float32"},
    },
    "reference": REFERENCE,
}
RANDOM = {"type": "random"}
HALF = {"type": "scalar", "value": 0.5}

KERNEL = r"""
#include <cuda_runtime.h>

#include <stdexcept>

#include "rows.h"

__global__ void scale_rows_kernel(const float* __restrict__ x, const float* __restrict__ s,
                                  float eps, float* __restrict__ y, float* __restrict__ m,
                                  int cols) {
  const int row = blockIdx.x, lane = threadIdx.x;
  float most = -INFINITY;
  for (int col = lane; col < cols; col += 32) {
    const float value = x[row * cols + col] * s[row] + eps;
    y[row * cols + col] = value;
    most = fmaxf(most, value);
  }
  for (int step = 16; step; step /= 2)
    most = fmaxf(most, __shfl_down_sync(0xffffffffu, most, step));
  if (lane == 0) m[row] = most;
}

void launch(uintptr_t x, uintptr_t s, float eps, uintptr_t y, uintptr_t m, int rows, int cols) {
  if (rows == 0) return;
  scale_rows_kernel<<<rows, 32>>>((const float*)x, (const float*)s, eps, (float*)y, (float*)m,
                                  cols);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("launch failed");
}
"""
HEADER = """#pragma once
#include <cstdint>
void launch(uintptr_t x, uintptr_t s, float eps, uintptr_t y, uintptr_t m, int rows, int cols);
"""
# Tensors as Python objects: torch's own headers take minutes to compile.
BINDING = r"""
#include <pybind11/pybind11.h>

#include "rows.h"

namespace py = pybind11;

static uintptr_t at(const py::object& t) { return t.attr("data_ptr")().cast<uintptr_t>(); }

void run(py::object x, py::object s, float eps, py::object y, py::object m) {
  const auto shape = x.attr("shape").cast<py::tuple>();
  launch(at(x), at(s), eps, at(y), at(m), shape[0].cast<int>(), shape[1].cast<int>());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
CUDA = {"kernel.cu": KERNEL, "rows.h": HEADER, "main.cpp": BINDING}
RETURNS = "def run(x, s, eps):\n    y = x * s[:, None] + eps\n    return y, y.max(1).values\n"


def workload(number: int, rows: int, **inputs) -> dict:
    """A line of the workload file; inputs: in place of random ones and eps = 0.5."""
    given = {"x": RANDOM, "s": RANDOM, "eps": HALF, **inputs}
    body = {"uuid": f"{number:08x}-aaaa", "axes": {"rows": rows}, "inputs": given}
    return {"definition": "scale_rows", "workload": body, "solution": None, "evaluation": None}


def solution(name: str, sources: dict[str, str], entry: str = "main.py::run", **spec) -> dict:
    stated = {"language": "python", "target_hardware": ["cuda"], "entry_point": entry, **spec}
    files = [{"path": path, "content": text} for path, text in sources.items()]
    return {
        "name": name,
        "definition": "scale_rows",
        "author": "somebody",
        "spec": stated,
        "sources": files,
    }


def lines(*objects: dict) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


class DataSet:
    """Writes below a root with the fixture `write`."""

    def __init__(self, write):
        self.write = write

    def definition(self, changes: dict | None = None, rows=(5, 33)):
        found = [workload(number, count) for number, count in enumerate(rows)]
        self.workloads(*found)
        body = {**DEFINITION, **(changes or {})}
        body = {key: value for key, value in body.items() if value != "absent"}
        return self.write("set/definitions/scale/scale_rows.json", json.dumps(body))

    def workloads(self, *found: dict):
        return self.write("set/workloads/scale/scale_rows.jsonl", lines(*found))

    def solution(self, name: str, *words, **spec):
        path = f"set/solutions/somebody/scale/scale_rows/{name}.json"
        return self.write(path, json.dumps(solution(name, *words, **spec)))
