"""Likely causes of the well-known build failures, one sentence each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from harness.build_light import without_comments
from harness.build_recipe import Request
from harness.diagnose_parse import Message

LOOKALIKES = {"“": '"', "”": '"', "‘": "'", "’": "'", "\u00a0": "a space", "–": "-", "—": "-",
              "−": "-", "×": "*", "…": "...", "\u202f": "a space"}  # fmt: skip
INVISIBLE = frozenset("\u200b\u200c\u200d\u2060\u00ad\ufeff")


@dataclass(frozen=True)
class Evidence:
    """What a cause is judged by: the request, its errors and the compilers' whole output."""

    request: Request
    messages: tuple[Message, ...]
    output: str

    @property
    def cpp(self) -> str:
        return "\n".join(s.text for s in self.request.sources if not s.cuda)

    @property
    def cuda(self) -> str:
        return "\n".join(s.text for s in self.request.sources if s.cuda)

    @property
    def texts(self) -> str:
        return "\n".join(message.text for message in self.messages)


@dataclass(frozen=True)
class Odd:
    """A character that compilers do not take, outside of comments and strings."""

    source: str
    line: int
    column: int
    character: str

    def __str__(self) -> str:
        name = unicodedata.name(self.character, "unnamed character")
        fix = LOOKALIKES.get(self.character)
        remedy = f"write {fix}" if fix else "delete it"
        return f"column {self.column}: {name} (U+{ord(self.character):04X}); {remedy}"


def odd_character(request: Request) -> Odd | None:
    """The first character from a paste that no compiler accepts."""
    for source in request.sources:
        code = _blanked(source.text)
        for number, line in enumerate(code.splitlines(), 1):
            for column, character in enumerate(line, 1):
                if character in INVISIBLE or character in LOOKALIKES:
                    return Odd(source.name, number, column, character)
    return None


def likely(evidence: Evidence) -> str | None:
    """The first cause that fits, or None."""
    return next((cause for rule in RULES for cause in rule(evidence)), None)


def undefined_symbol(request: Request, name: str) -> str:
    """Why a library that links cannot be loaded. `name` is demangled."""
    function = re.sub(r"\(.*", "", name).split("::")[-1]
    defined = "\n".join(source.text for source in request.sources)
    if re.search(r'extern\s+"C"', defined) and re.search(rf"\b{re.escape(function)}\s*\(", defined):
        return (
            f"{function} is declared in cpp_sources and defined in cuda_sources with another "
            'linkage: write extern "C" in both or in neither'
        )
    if re.search(rf"\b{re.escape(function)}\s*\(", defined):
        return (
            f"{function} is declared in cpp_sources, but cuda_sources define no function with "
            "these argument types (or it is static or in a namespace)"
        )
    return f"no source and no linked library defines {function}; define it or add extra_ldflags"


def _bindings(e: Evidence) -> Iterator[str]:
    code = without_comments(e.cpp + e.cuda)
    modules = len(re.findall(r"^\s*PYBIND11_MODULE\s*\(", code, re.M))
    if e.request.functions and modules > 1:
        yield (
            "the sources hold a PYBIND11_MODULE, and functions= makes another; leave out functions="
        )
    for name in e.request.functions:
        undeclared = rf"[‘'\"]{re.escape(name)}[’'\"] (?:was not declared|is undefined)"
        if not re.search(undeclared, e.texts):
            continue
        signature = _signature(without_comments(e.cuda), name)
        if signature:
            yield f"cpp_sources lack the declaration of {name}; add: {signature};"
        else:
            others = [n for n in _function_names(code) if n not in e.request.functions]
            have = f" (they define {', '.join(others[:4])})" if others else ""
            yield f"functions= names {name}, which the sources do not define{have}"


def _launch_in_cpp(e: Evidence) -> Iterator[str]:
    code = without_comments(e.cpp)
    if "<<<" in code or re.search(r"\b__(?:global|device|shared)__\b", code):
        yield (
            "CUDA code (<<<...>>> or __global__) stands in cpp_sources, which g++ compiles; "
            "move it to cuda_sources"
        )


def _known_text(e: Evidence) -> Iterator[str]:
    for pattern, sentence in KNOWN:
        if match := re.search(pattern, e.output):
            yield sentence.format(*match.groups())


def _no_torch_header(e: Evidence) -> Iterator[str]:
    unknown = re.search(r"[‘'\"](?:torch|at|py)[’'\"] (?:has not been|was not) declared", e.texts)
    unknown = unknown or "name must be a class or namespace name" in e.texts
    if unknown and "torch/extension.h" not in e.cpp + e.cuda:
        yield "no torch header is included (no_implicit_headers=True adds none); include one"


def _half(e: Evidence) -> Iterator[str]:
    operator = r"no operator |no suitable (?:conversion|constructor|user-defined)"
    half = r"__half|__nv_bfloat16|half2|bfloat162"
    if re.search(operator, e.texts) and re.search(half, e.output):
        yield (
            "torch switches the half and bfloat16 operators off; convert to float, use __hadd and "
            "the like, or add -U__CUDA_NO_HALF_OPERATORS__ to extra_cuda_cflags"
        )


def _twice(e: Evidence) -> Iterator[str]:
    if match := re.search(r"multiple definition of [`'‘]([\w:]+)", e.texts):
        yield f"{match[1]} is defined in cpp_sources and in cuda_sources; only declare it in one"


# What a compiler prints, and what it means; {0} is the first group.
KNOWN = (
    (
        r"unsupported (?:GNU|clang) version.*?later than (\d+)",
        "nvcc takes g++ {0} at most; set CXX (or NVCC_CCBIN) to g++-{0} or older",
    ),
    (
        r"unsupported (?:GNU|clang) version",
        "nvcc does not take this host compiler; set CXX (or NVCC_CCBIN) to an older one",
    ),
    (
        r"Unsupported gpu architecture '([^']+)'",
        "this nvcc cannot compile for {0}; change the -arch flag or TORCH_CUDA_ARCH_LIST",
    ),
    (
        r"[Ii]nstruction '?([^\s']+)'? .*not supported on \.target",
        "{0} needs an architecture-specific target: "
        "extra_cuda_cflags=['-gencode=arch=compute_90a,code=sm_90a']",
    ),
    (
        r"Feature '([^']+)' requires .target (\S+)",
        "{0} needs {1}: name that target in extra_cuda_cflags (-gencode=...)",
    ),
    (
        "uses too much shared data",
        "static __shared__ memory ends at 48 KB; use extern __shared__ and "
        "cudaFuncSetAttribute(..., cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)",
    ),
    (
        "missing (?:terminating|closing quote)|unterminated",
        'a "\\n" of a C string became a line break in Python; make the literal raw: r"""..."""',
    ),
    (
        r"fatal error: ([\w./+-]+): No such",
        "{0} is in none of the include folders; add its folder to extra_include_paths",
    ),
    (
        r"Killed signal|internal compiler error: Killed|signal 9",
        "the compiler was killed, most likely for memory; build fewer solutions at once",
    ),
    (
        "No space left on device",
        "the disk of the cache is full; free some or set STEELYARD_CACHE to another folder",
    ),
    (
        r"cannot find -l:?(\w+)",
        "no folder searched has a library {0}; add its folder with -L to extra_ldflags",
    ),
)
RULES = (_bindings, _launch_in_cpp, _known_text, _half, _no_torch_header, _twice)


def _signature(code: str, name: str) -> str | None:
    pattern = (
        rf"^[ \t]*((?!return|else)[\w:<>,&* \t]+?[\s&*]{re.escape(name)}\s*\([^;{{}}]*\))\s*\{{"
    )
    match = re.search(pattern, code, re.M)
    return " ".join(match[1].split()) if match else None


def _function_names(code: str) -> list[str]:
    names = re.findall(r"^[\w:<>,&* \t]+?[\s&*](\w+)\s*\([^;{}]*\)\s*[{;]", code, re.M)
    return [n for n in dict.fromkeys(names) if n not in ("if", "for", "while", "PYBIND11_MODULE")]


def _blanked(text: str) -> str:
    """Comments and strings replaced by spaces of the same shape, so that columns stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)
