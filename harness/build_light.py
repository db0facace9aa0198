"""Compile a source that includes torch/extension.h without parsing all of it.

torch/extension.h brings half a million lines, of which an extension uses the Tensor class and a few
functions. When a source names nothing else, its first compile sees stand-ins for the umbrella
headers only (torch/extension.h, torch/all.h, torch/types.h, ATen/ATen.h); these include torch's own
headers for exactly what the source names, so that all declarations in sight are torch's. A source
that names more, that asks the preprocessor about torch, or that brings headers of its own gets the
full headers at once, and so does one that does not compile this way.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from harness.build_recipe import Source

UMBRELLAS = ("torch/extension.h", "torch/all.h", "torch/torch.h", "torch/types.h", "ATen/ATen.h")
USES_UMBRELLA = re.compile(rf"#\s*include\s*<(?:{'|'.join(map(re.escape, UMBRELLAS))})>")

# Names of torch:: and at:: that ATen/core/Tensor.h and the headers below declare.
PLAIN = """
Tensor TensorBase TensorOptions Scalar ScalarType IntArrayRef ArrayRef SymIntArrayRef SymInt
OptionalTensorRef OptionalIntArrayRef TensorList Half BFloat16 MemoryFormat Layout Device
DeviceType DeviceIndex DeviceGuard OptionalDeviceGuard Generator Storage Stream optional nullopt
Dtype dtype device layout memory_format pinned_memory typeMetaToScalarType toString elementSize
isFloatingType isIntegralType toAccumulateType cuda wrap_pybind_function
wrap_pybind_function_no_gil complex Float8_e4m3fn Float8_e5m2 indexing acc_type opmath_type
OpMathType Deleter DataPtr
"""
EXTRA_HEADERS = (
    (r"\bindexing\b|\bSlice\b|\.index\(|\bindex_put", "ATen/TensorIndexing.h"),
    (r"\bTORCH_LIBRARY|\btorch::Library\b", "torch/library.h"),
    (r"\bacc_type\b", "ATen/AccumulateType.h"),
    (r"\bopmath_type\b|\bOpMathType\b", "ATen/OpMathType.h"),
    (r"\bglobalContext\b", "ATen/Context.h"),
)
PYTHON = re.compile(r"\bPYBIND11_|\bpy::|\bpybind11\b|\bPyObject\b|\bTHP|wrap_pybind_function")
FULL_ONLY = re.compile(
    r"\brequires_grad|\bautograd\b|\bIValue\b|\bmake_variable\b|\b(?:at|torch)::native\b|"
    r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*\b(?:TORCH_|AT_|C10_|PYBIND)|#\s*include\s*\"|"
    r"(?:at|torch)::tensor\b|\busing\s+namespace\s+torch\s*::",
    re.M,
)
# Qualified names only: ::torch::X, torch::X and at::X, but not c10::X or xtorch::X.
NAMED = re.compile(r"(?<![\w:])(?:::)?(?:torch|at)::(\w+)")
CALLED = re.compile(r"(?<![\w.:>])(\w+)\s*\(")

HEAD = """#pragma once
#include <optional>
#include <ATen/core/Tensor.h>
#include <ATen/Device.h>
#include <ATen/DeviceGuard.h>
#include <ATen/DimVector.h>
#include <ATen/Dispatch.h>
#include <ATen/Formatting.h>
#include <ATen/core/ATenGeneral.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Scalar.h>
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Layout.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
"""


def prepare(source: Source, torch_root: str, folder: Path, operators: bool = False) -> bool:
    """Write the stand-ins for this source below `folder`; False where it needs the full headers.

    operators: also declare `a + b` on tensors, which costs as much as all the rest.
    """
    code = without_comments(source.text)
    include = Path(torch_root) / "include"
    headers = _headers(code, include)
    types = include / "torch" / "csrc" / "api" / "include" / "torch" / "types.h"
    body = _types_body(types)
    if headers is None or body is None or source.path is not None:
        return False
    if operators:
        headers.append("ATen/TensorOperators.h")
    for name in ("torch", "ATen"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    files = {name: "#pragma once\n#include <torch/types.h>\n" for name in UMBRELLAS}
    files["ATen/ATen.h"] = HEAD + "".join(f"#include <{header}>\n" for header in headers)
    files["torch/types.h"] = f"#pragma once\n#include <ATen/ATen.h>\n{body}\n"
    if PYTHON.search(code):
        files["torch/extension.h"] += (
            "#include <torch/csrc/python_headers.h>\n"
            "#include <torch/csrc/utils/pybind.h>\n#include <torch/csrc/Exceptions.h>\n"
        )
    for name, text in files.items():
        (folder / name).write_text(text)
    return True


def flags(folder: str) -> tuple[str, ...]:
    """To be put before torch's own include folders."""
    return ("-DAT_PER_OPERATOR_HEADERS", "-isystem", folder)


def operators_missing(log: str) -> bool:
    """The attempt failed only for want of tensor operators."""
    errors = [line for line in log.splitlines() if ": error" in line or "error:" in line]
    return bool(errors) and all('no operator "' in e or "no match for" in e for e in errors)


def users_own(log: str, torch_root: str) -> bool:
    """Whether the errors cannot come from the stand-ins: full headers would change nothing.

    True for a name that no header of torch holds, and for syntax errors beside no other kind.
    """
    unknown = set(re.findall(r'identifier "(\w+)" is undefined', log))
    unknown |= set(re.findall(r"[‘'](\w+)[’'] was not declared", log))
    errors = [line for line in log.splitlines() if re.search(r"\berror\b", line)]
    simple = re.compile(
        r'identifier "\w+" is undefined|expected (?:a|an|‘|\')|was not declared|unrecognized token|'
        r"errors? detected|stray ‘"
    )
    if not errors or not all(simple.search(line) for line in errors):
        return False
    return not any(_known_to_torch(name, torch_root) for name in unknown)


def without_comments(text: str) -> str:
    """C++ source with comments and string contents blanked."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'

    def blank(match: re.Match) -> str:
        found = match.group()
        if found.startswith('"'):
            return found if _is_include(text, match.start()) else '""'
        return " "

    return re.sub(pattern, blank, text, flags=re.S)


def _is_include(text: str, position: int) -> bool:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return bool(re.match(r"\s*#\s*include\s*$", line))


def _headers(code: str, include: Path) -> list[str] | None:
    """Headers of torch that declare what the code names; None where that is not known."""
    if not USES_UMBRELLA.search(code) or FULL_ONLY.search(code):
        return None
    operators = include / "ATen" / "ops"
    named = set(NAMED.findall(code))
    constant = re.compile(r"k[A-Z]\w*$")
    ops = {name for name in named if (operators / f"{name}.h").exists()}
    if any(name not in PLAIN.split() and not constant.match(name) for name in named - ops):
        return None
    ops |= {name for name in CALLED.findall(code) if (operators / f"{name}.h").exists()}
    extra = [header for pattern, header in EXTRA_HEADERS if re.search(pattern, code)]
    return [*extra, *(f"ATen/ops/{name}.h" for name in sorted(ops))]


def _types_body(path: Path) -> str | None:
    """torch's own `namespace torch { ... }` of names and constants, without its includes."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"^namespace torch \{.*^\} // namespace torch$", text, re.M | re.S)
    return match.group() if match else None


def _known_to_torch(name: str, torch_root: str) -> bool:
    command = ["grep", "-rqwF", "--include=*.h", "-e", name, os.path.join(torch_root, "include")]
    try:
        return subprocess.run(command, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return True
