"""What KernelBench problems may look like, each judged whole on the CPU, in one batch."""

import subprocess
import sys

import pytest

from harness import plan
from harness.batch_rows import Rows

HEAD = "import torch\nimport torch.nn as nn\n"
PROBLEMS = {
    "1_pair": (
        "class Model(nn.Module):\n    def forward(self, x):\n"
        "        return x.amax(1), x.argmax(1)\n"
        "def get_inputs():\n    return [torch.rand(5, 9)]\n"
    ),
    "2 dict and list": (
        "class Model(nn.Module):\n    def forward(self, x):\n"
        "        return {'a': [x + 1, x * 2], 'n': 3}\n"
        "def get_inputs():\n    return [torch.rand(4)]\n"
    ),
    "3_cross_entropy": (
        "class Model(nn.Module):\n    def forward(self, x, t):\n"
        "        return nn.functional.cross_entropy(x, t)\n"
        "def get_inputs():\n    return [torch.randn(6, 4), torch.randint(0, 4, (6,))]\n"
    ),
    "4_batch_norm": (
        "class Model(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.bn = nn.BatchNorm1d(n)\n"
        "    def forward(self, x):\n        return self.bn(x)\n"
        "def get_inputs():\n    return [torch.randn(16, 3) + 5]\n"
        "def get_init_inputs():\n    return [3]\n"
    ),
    "5_scalar": (
        "batch_size = 4\nclass Model(nn.Module):\n    def forward(self, x, s):\n"
        "        return x * s\n"
        "def get_inputs():\n    return [torch.rand(batch_size, 2), 2.5]\n"
    ),
}
SOLUTIONS = {
    "1_pair": "def forward(self, x):\n        v, i = x.max(1)\n        return [v, i]\n",
    "2 dict and list": "def forward(self, x):\n        return {'n': 3, 'a': (x + 1, x + x)}\n",
    "3_cross_entropy": (
        "def forward(self, x, t):\n        assert t.dtype == torch.int64\n"
        "        return -torch.log_softmax(x, 1)[torch.arange(len(t)), t].mean()\n"
    ),
    "4_batch_norm": (
        "def __init__(self, features, eps=1e-5):\n        super().__init__()\n"
        "        self.eps = eps\n        self.scale = nn.Parameter(torch.ones(features))\n"
        "        self.shift = nn.Parameter(torch.zeros(features))\n"
        "        self.register_buffer('seen', torch.zeros(features))\n"
        "        self.register_buffer('unit', torch.ones(features))\n"
        "        self.register_buffer('count', torch.tensor(0))\n"
        "    def forward(self, x):\n        assert self.training\n"
        "        v, m = torch.var_mean(x, 0, correction=0)\n"
        "        return (x - m) * torch.rsqrt(v + self.eps) * self.scale + self.shift\n"
    ),
    "5_scalar": "def forward(self, x, s):\n        return x * s\n",
}
REDEFINES = "batch_size = 1\nclass Model:\n    pass\ndef get_inputs():\n    return []\n"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    place = tmp_path_factory.mktemp("kernelbench")
    for folder in ("problems", "mine"):
        (place / folder).mkdir()
    for name, text in PROBLEMS.items():
        (place / "problems" / f"{name}.py").write_text(HEAD + text)
        body = f"class ModelNew(nn.Module):\n    {SOLUTIONS[name]}"
        (place / "mine" / f"{name}.py").write_text(HEAD + body + REDEFINES)
    words = ["batch", "mine", "--problems", "problems", "--into", "out.jsonl", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, str(plan.ROOT / "run_eval.py"), *words],
        cwd=place,
        capture_output=True,
        text=True,
    )
    found = Rows(place / "out.jsonl")
    found.close()
    assert len(found.rows) == len(PROBLEMS), done.stderr
    return {row.report.op: row.report for row in found.rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_judged_unchanged(rows, name):
    report = rows[name]
    reason = report.failure or [(c.failure, c.check) for c in report.cases]
    assert report.ok, reason
