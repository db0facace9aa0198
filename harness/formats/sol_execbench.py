"""What SOL-ExecBench's files have that flashinfer-bench's have not, as data.

Facts from github.com/NVIDIA/SOL-ExecBench at 8d2237d (src/sol_execbench/core/data,
core/bench/io.py, core/bench/correctness.py, driver), read on 2026-12-01. Beside what is here:
axes of type "expr", inputs of type "custom", op_type may be missing, and a line of the workload
file is the workload itself. Not read: float4 types, languages other than those of LANGUAGES.
"""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass

from harness.records import Outcome

OWN_FIELDS = ("custom_inputs_entrypoint", "hf_id")  # of a definition
DTYPES = frozenset({"float64"})
LANGUAGES = {"pytorch": "python", "triton": "triton", "cuda_cpp": "cuda"}
CUDA_CFLAGS = ("-O3", "--use_fast_math")  # where compile_options are given without them
LD_FLAGS = ("-lcuda",)
STATUSES = {Outcome.REFUSED: "REWARD_HACK", Outcome.REFERENCE_FAILED: "INVALID_REFERENCE"}


@dataclass(frozen=True)
class Tolerance:
    """A workload's `tolerance`: the share of elements within atol + rtol * |want|, and a cap."""

    max_atol: float = 1e-2
    max_rtol: float = 1e-2
    required_matched_ratio: float = 0.99
    max_error_cap: float | None = None


@dataclass(frozen=True)
class Draw:
    """How "random" floats are drawn, by the input's name; digits at its end do not count.

    least_rank: dimensions from which on it holds. square: the last two dimensions are equal.
    """

    how: str
    names: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    least_rank: int = 0
    square: bool = False

    def holds(self, name: str, shape: tuple[int, ...]) -> bool:
        name = name.rstrip("0123456789") or name
        if len(shape) < self.least_rank or (self.square and shape[-1] != shape[-2]):
            return False
        return name in self.names or name.endswith(self.endings or ("\0",))


# The first that holds counts; where none does, values are normal.
DRAWS = (
    Draw("ones", ("norm_weight",), ("norm_weight", "layernorm_weight")),
    Draw("zeros", ("norm_bias",), ("norm_bias", "layernorm_bias")),
    Draw("causal", ("attention_mask", "causal_mask"), least_rank=2, square=True),
    Draw("zero or one", ("x_mask", "text_mask", "aspect_ratio_mask", "drop_mask",
                         "attention_mask")),
    Draw("cosine", ("cos", "cos_cached", "rope_cos")),
    Draw("sine", ("sin", "sin_cached", "rope_sin")),
    Draw("positive", ("rstd", "std", "variance", "var"), ("_rstd", "_std", "_variance", "_var")),
    Draw("falling sums", ("A_cumsum",)),
    Draw("uniform -5 to -1", ("A_log",)),
    Draw("uniform -1 to -0.001", ("A",)),
    Draw("uniform -5 to 0", ("g",)),
    Draw("softmax", ("attn_weights", "attention_weights", "routing_weights")),
    Draw("by fan-in", ("weight",),
         ("_weight", "_weights", "_proj", "_projs", "_weight_matrix"), least_rank=2),
)  # fmt: skip

_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY = {ast.UAdd: operator.pos, ast.USub: operator.neg}
MOST = 1 << 48  # no intermediate result is larger: 9**9**9 would take for ever


def evaluate(expression: str, sizes: dict[str, int]) -> int:
    """The size of an expression axis. Raises ValueError with what is wrong with it."""
    try:
        value = _value(ast.parse(expression, mode="eval").body, sizes)
    except SyntaxError as error:
        raise ValueError(error.msg) from None
    except (ZeroDivisionError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if value != int(value) or value < 0:
        raise ValueError(f"comes to {value}")
    return int(value)


def _value(node: ast.expr, sizes: dict[str, int]) -> int | float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in sizes:
            raise ValueError(f"there is no axis {node.id}")
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand, sizes))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, sizes), _value(node.right, sizes)
        if isinstance(node.op, ast.Pow) and not (abs(left) < 1 << 24 and 0 <= right <= 8):
            raise ValueError("the power is too large")
        found = _BINARY[type(node.op)](left, right)
        if abs(found) > MOST:
            raise ValueError("a number is too large")
        return found
    raise ValueError(f"only names, numbers and + - * / // % ** are read, not {ast.unparse(node)}")
