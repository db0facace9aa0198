"""What each receiver of submissions accepts: data, with its source and the day it was read.

Rules change; when one does, this is the only file to edit. A pattern is searched as the receiver
searches it: in the text as a whole, prose in docstrings included.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Ban:
    """Text a receiver objects to. `refuses`: it turns the file away; otherwise it only marks it."""

    pattern: str
    means: str
    refuses: bool
    ignore_case: bool = False
    after_comments: bool = False  # searched in what is left of # and //

    @property
    def regex(self) -> re.Pattern:
        return re.compile(self.pattern, re.IGNORECASE if self.ignore_case else 0)


@dataclass(frozen=True)
class Required:
    """Text that must stand somewhere in the file."""

    pattern: str
    means: str


@dataclass(frozen=True)
class Receiver:
    """One receiver's rules. `most_bytes` counts the file that is sent; None: no limit is known."""

    name: str
    title: str
    source: str
    read_on: str
    entry: str  # the name its loader looks for
    most_bytes: int | None = None
    locale_encoding: bool = False  # it writes or reads the text in the machine's own encoding
    one_tensor: bool = False  # it cannot compare anything but a single tensor
    casts_inputs: bool = False  # every input tensor becomes floating point
    shares_names: bool = False  # the solution runs in the problem's own namespace
    prefixed: bool = False  # it puts statements before the first line
    bans: tuple[Ban, ...] = ()
    required: tuple[Required, ...] = ()


def _strict(pattern: str, means: str) -> Ban:
    return Ban(pattern, means, refuses=True, after_comments=True)


def _marked(pattern: str, means: str) -> Ban:
    return Ban(pattern, means, refuses=False, after_comments=True)


KERNELBENCH = Receiver(
    name="kernelbench",
    title="KernelBench",
    source="github.com/ScalingIntelligence/KernelBench at 423217d: src/kernelbench/eval.py, "
    "kernel_static_checker.py",
    read_on="2026-12-01",
    entry="ModelNew",
    locale_encoding=True,
    one_tensor=True,
    casts_inputs=True,
    shares_names=True,
    prefixed=True,
    bans=(
        _strict(r"\btry\s*:|\bexcept\s*:|\bexcept\s+\w+", "try/except counts as a fallback"),
        _strict(r"\bpass\b", "the word pass counts as inheriting the reference"),
        _strict(
            r"threading\.Thread\s*\(|import\s+threading|from\s+threading\s+import"
            r"|multiprocessing\.(Process|Pool|Manager|Queue|Pipe)|import\s+multiprocessing"
            r"|concurrent\.futures|(Thread|Process)PoolExecutor",
            "threads and processes count as timing manipulation",
        ),
        _strict(
            r"_make_subclass|class\s+\w+.*\((torch\.)?Tensor\)|torch\.Tensor\.__new__",
            "tensor subclasses count as lazy evaluation",
        ),
        _strict(
            r"torch\.cuda\.(Event(\.(record|elapsed_time))?|synchronize)\s*=|time\.(perf_counter|time)\s*=",
            "assigning to timing functions",
        ),
        _marked(
            r"torch\.nn\.(?!(Module|parameter|Parameter|ParameterList|ParameterDict|ModuleList"
            r"|ModuleDict|init)\b)",
            "a torch.nn compute layer",
        ),
        _marked(
            r"\btorch\.(mm|bmm|matmul|einsum|conv\w*|relu|gelu|softmax|log_softmax|sigmoid|tanh"
            r"|clamp|dropout|logsumexp)(?=\s*\(|\s|$)|\bnn\.functional\.\w+",
            "a torch operation that computes",
        ),
        _marked(
            r"cuda\.Stream\s*\(|with\s+torch\.cuda\.stream|\.(wait|record)_stream\s*\(",
            "an own CUDA stream",
        ),
        _marked(
            r"__float2half(_rn)?\s*\(|static_cast\s*<\s*(__half|half)\s*>\s*\(|\.half\s*\("
            r"|\.to\s*\(\s*(dtype\s*=\s*)?torch\.(float16|half)\b",
            "fp16 where fp32 is asked for",
        ),
    ),
    required=(
        Required(r"__global__", "a CUDA kernel (__global__)"),
        Required(r"load_inline|cpp_extension", "load_inline or cpp_extension"),
    ),
)

GPUMODE = Receiver(
    name="gpumode",
    title="GPU MODE",
    source="github.com/gpu-mode/kernelbot at 4bdd839: src/kernelbot/api/api_utils.py, "
    "src/libkernelbot/submission.py, run_eval.py; gpu-mode/reference-kernels at f83cb92: "
    "problems/pmpp_v2/eval.py",
    read_on="2026-12-01",
    entry="custom_kernel",
    most_bytes=1_000_000,
    locale_encoding=True,
    bans=(
        Ban(
            "stream",
            "a file with this word gets answer 500 from the web API (launch on the default one)",
            refuses=False,
            ignore_case=True,
        ),
    ),
)

FLASHINFER = Receiver(
    name="flashinfer",
    title="flashinfer-bench",
    source="github.com/flashinfer-ai/flashinfer-bench at 40e6ca7: flashinfer_bench/data/"
    "{definition,solution,workload}.py, compile/builders/python_builder.py, bench/utils.py",
    read_on="2026-12-01",
    entry="run",
)

RECEIVERS = {receiver.name: receiver for receiver in (KERNELBENCH, GPUMODE, FLASHINFER)}
FLASHINFER_FLOATS = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
FLASHINFER_DTYPES = frozenset((*FLASHINFER_FLOATS, "int64", "int32", "int16", "int8", "bool"))


class Level(str, enum.Enum):
    """How much a finding matters."""

    REFUSED = "refused"  # the receiver would turn it away, or it would fail there
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing the author should know before sending."""

    level: Level
    text: str
