"""What only a GPU can run, found in the tokens before anything is compiled."""

from __future__ import annotations

import re

from .outcomes import NeedsGPU
from .tokens import Token, after, before, text_at

_NAMES = [
    ("cuBLAS", r"cublas\w*"),
    ("cuDNN", r"cudnn[A-Z]\w*"),
    ("cuFFT", r"cufft\w*"),
    ("cuSPARSE", r"cusparse\w*"),
    ("cuRAND device API", r"curand\w*"),
    ("TMA", r"CUtensorMap\w*|cuTensorMap\w*"),
    ("CUDA graph", r"cudaGraph\w*|cudaStreamBeginCapture|cudaStreamEndCapture"),
    ("thread block cluster", r"__cluster_dims__|this_cluster|cluster_group|cudaLaunchKernelEx\w*"),
    ("driver API", r"cu(?:Launch|Module|Mem|Func|Ctx)[A-Z]\w*"),
    ("NVRTC", r"nvrtc\w+"),
    ("texture or surface", r"tex[123]D\w*|cudaTextureObject_t|cudaSurfaceObject_t"),
    ("tensor-core instruction", r"wgmma\w*"),
]
_NAMESPACES = {
    "cutlass": "CUTLASS",
    "cute": "CuTe",
    "thrust": "Thrust",
    "cub": "CUB",
    "nvcuda": "tensor-core fragments (wmma)",
}
_CUDA_MEMBERS = re.compile(r"barrier|pipeline\w*|memcpy_async|ptx|device|atomic\w*|std")
_HEADERS = [
    ("CUB", r"cub/"),
    ("Thrust", r"thrust/"),
    ("CUTLASS", r"cutlass/"),
    ("CuTe", r"cute/"),
    ("cuBLAS", r"cublas"),
    ("cuDNN", r"cudnn"),
    ("cuRAND device API", r"curand"),
    ("libcu++", r"cuda/"),
    ("tensor-core fragments (wmma)", r"mma\.h"),
    ("fp8 or fp4 types", r"cuda_fp[864]\.h"),
]
_NAME_PATTERNS = [(what, re.compile(pattern)) for what, pattern in _NAMES]


def _include(tokens: list[Token], i: int) -> str:
    """The header that the #include at i names, else an empty text."""
    j = after(tokens, i)
    if text_at(tokens, i) != "#" or text_at(tokens, j) != "include":
        return ""
    j = after(tokens, j)
    if tokens[j].kind == "string":
        return tokens[j].text.strip('"')
    header = []
    while j + 1 < len(tokens) and tokens[j + 1].text != ">" and "\n" not in tokens[j + 1].text:
        j += 1
        header.append(tokens[j].text)
    return "".join(header)


def includes(tokens: list[Token]) -> list[str]:
    """Headers in order."""
    found = (_include(tokens, i) for i, t in enumerate(tokens) if t.text == "#")
    return [header for header in found if header]


def _construct(tokens: list[Token], i: int) -> str:
    token = tokens[i]
    if token.text == "#":
        header = _include(tokens, i)
        return next((what for what, p in _HEADERS if re.match(p, header)), "")
    if token.kind != "name":
        return ""
    if token.text in ("asm", "__asm__", "__asm"):
        return "inline PTX"
    following = after(tokens, i)
    if text_at(tokens, following) == "::" and text_at(tokens, before(tokens, i)) != "::":
        if token.text in _NAMESPACES:
            return _NAMESPACES[token.text]
        member = text_at(tokens, after(tokens, following))
        if token.text == "cuda" and _CUDA_MEMBERS.fullmatch(member):
            return f"cuda::{member}"
    return next((what for what, p in _NAME_PATTERNS if p.fullmatch(token.text)), "")


def refuse(tokens: list[Token], file: str = "") -> None:
    """Raises NeedsGPU for the first construct that has no meaning here."""
    for i, token in enumerate(tokens):
        if what := _construct(tokens, i):
            raise NeedsGPU(what, token.line, file)
