"""What only a GPU can run, found in the tokens before anything is compiled."""

from __future__ import annotations

import re

from .outcomes import NeedsGPU
from .tokens import Token, after, before, text_at

_NAMES = [
    ("cuBLAS", r"cublas\w*|getCurrentCUDABlas\w*"),
    ("cuDNN", r"cudnn[A-Z]\w*|getCudnnHandle"),
    ("cuFFT", r"cufft\w*"),
    ("cuSPARSE", r"cusparse\w*|getCurrentCUDASparse\w*"),
    ("cuSOLVER", r"cusolver\w*|getCurrentCUDASolver\w*"),
    ("cuRAND device API", r"curand\w*"),
    ("TMA", r"CUtensorMap\w*|cuTensorMap\w*"),
    ("CUDA graph", r"cudaGraph\w*|cudaStreamBeginCapture|cudaStreamEndCapture"),
    (
        "thread block cluster",
        r"__cluster_dims__|this_cluster|cluster_group|cudaLaunchAttributeCluster\w*",
    ),
    ("driver API", r"cu(?:Launch|Module|Mem|Func|Ctx)[A-Z]\w*"),
    ("NVRTC", r"nvrtc\w+"),
    ("texture or surface", r"tex[123]D\w*|cudaTextureObject_t|cudaSurfaceObject_t"),
    ("tensor-core instruction", r"wgmma\w*"),
    ("fp6 or fp4 types", r"__nv_(?:cvt_\w+_)?fp[46]\w*"),
    ("launch from a kernel", r"cudaStreamFireAndForget|cudaStreamTailLaunch"),
]
_NAMESPACES = {
    "cutlass": "CUTLASS",
    "cute": "CuTe",
    "thrust": "Thrust",
    "nvcuda": "tensor-core fragments (wmma)",
}
_CUDA_MEMBERS = re.compile(r"barrier|pipeline\w*|memcpy_async|ptx|device|access_property|apply_\w+")
_OF_CUB = re.compile(
    r"(?:Block|Warp)(?:Reduce|Scan)\w*|Device(?:Reduce|Scan|RadixSort)|BLOCK_(?:REDUCE|SCAN)_\w+"
    r"|Sum|Max|Min|ArgMax|ArgMin|Equality|KeyValuePair|CTA_\w+|WARP_\w+"
)
_NAME_PATTERNS = [(what, re.compile(pattern)) for what, pattern in _NAMES]


def _construct(tokens: list[Token], i: int) -> str:
    token = tokens[i]
    if token.kind != "name":
        return ""
    if token.text in ("asm", "__asm__", "__asm"):
        return "inline PTX"
    return _of_library(tokens, i) or next(
        (what for what, p in _NAME_PATTERNS if p.fullmatch(token.text)), ""
    )


def _of_library(tokens: list[Token], i: int) -> str:
    """The library that the namespace at i stands for: ns::member or `using namespace ns`."""
    name, link, previous = tokens[i].text, after(tokens, i), before(tokens, i)
    if text_at(tokens, previous) == "namespace":
        is_used = text_at(tokens, before(tokens, previous)) == "using"
        return _NAMESPACES.get(name, "") if is_used else ""
    if text_at(tokens, link) != "::" or text_at(tokens, previous) == "::":
        return ""
    member = text_at(tokens, after(tokens, link))
    if name == "cuda" and _CUDA_MEMBERS.fullmatch(member):
        return f"cuda::{member}"
    if name == "cub" and not _OF_CUB.fullmatch(member):
        return f"cub::{member}"
    return _NAMESPACES.get(name, "")


def refuse(tokens: list[Token], file: str = "") -> None:
    """Raises NeedsGPU for the first construct that has no meaning here."""
    for i, token in enumerate(tokens):
        if what := _construct(tokens, i):
            raise NeedsGPU(what, token.line, file)
