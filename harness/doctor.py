"""`python run_eval.py doctor`: what was found of the toolchain, what fits, and the remedies."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness import build, build_cache, driver, toolchain_arch
from harness import toolchain_cuda as cuda
from harness import toolchain_host as host
from harness.records import Failed

OK, BAD, NOTE = "ok", "no", "note"


@dataclass(frozen=True)
class Line:
    """One finding: ok, no (nothing can be built) or note; `remedy` where there is one."""

    state: str
    what: str
    found: str
    remedy: str = ""


def show(write: Callable[[str], None] = print) -> int:
    """Print all findings; 0 when solutions can be built here, else 1."""
    lines = list(examine())
    width = max(len(line.what) for line in lines)
    for line in lines:
        write(f"{line.state:4} {line.what:{width}} {line.found}")
        if line.remedy:
            write(f"{'':4} {'':{width}} -> {line.remedy}")
    bad = [line for line in lines if line.state == BAD]
    write("")
    if bad:
        write(f"Nothing can be built here: {', '.join(line.what for line in bad)}.")
        return 1
    write(
        "Solutions can be built" + (" and run on the GPU." if _gpus() else " (no GPU to run on).")
    )
    return 0


def examine() -> Iterator[Line]:
    """All findings, whatever fails; runs nothing but version queries."""
    yield Line(OK, "python", f"{sys.version.split()[0]}, {sys.executable}")
    try:
        torch = host.find_torch()
    except Failed as failed:
        yield Line(BAD, "torch", "not installed", str(failed))
        return
    yield _torch(torch)
    found, rejected = cuda.search(torch.cuda)
    yield _nvcc(torch, found)
    for one in rejected:
        yield Line(NOTE, "passed over", f"{one.place}: {one.reason}")
    yield _compiler(found)
    yield from _gpu()
    yield _ninja()
    yield _cache()
    yield Line(OK, "at once", f"{build.slots()} builds (cores and free memory)")


def _torch(torch: host.Torch) -> Line:
    text = f"{torch.version} in {torch.root}"
    if torch.cuda is None:
        remedy = "install a CUDA build: pip install -r requirements.txt"
        return Line(BAD, "torch", f"{text}, without CUDA", remedy)
    return Line(OK, "torch", f"{text}, built with CUDA {torch.cuda[0]}.{torch.cuda[1]}")


def _nvcc(torch: host.Torch, found: cuda.Cuda | None) -> Line:
    if found is None:
        wanted = f"{torch.cuda[0]}.{torch.cuda[1]}" if torch.cuda else "13.0"
        remedy = f"pip install 'cuda-toolkit[nvcc,cccl]=={wanted}.*', or set CUDA_HOME"
        return Line(BAD, "nvcc", f"none that fits CUDA {wanted}", remedy)
    if torch.cuda and found.release != torch.cuda:
        text = f"{found.label}; torch has {torch.cuda[0]}.{torch.cuda[1]}, which works together"
        return Line(NOTE, "nvcc", text)
    return Line(OK, "nvcc", found.label)


def _compiler(found: cuda.Cuda | None) -> Line:
    limit = host.gcc_limit(cuda.include_dir(found.root)) if found else None
    try:
        compiler = host.find_host(limit)
    except Failed as failed:
        return Line(BAD, "C++", str(failed))
    bound = f", nvcc takes up to {limit}" if limit and not compiler.clang else ""
    return Line(NOTE if compiler.note else OK, "C++", compiler.label + bound, compiler.note)


def _gpu() -> Iterator[Line]:
    count = _gpus()
    if not count:
        yield Line(NOTE, "GPU", "none: kernels run on the CPU, nothing is timed")
    for index in range(count):
        numbers = toolchain_arch.capability(f"cuda:{index}")
        text = f"compute capability {numbers[0]}.{numbers[1]}" if numbers else "unknown"
        yield Line(OK, "GPU", f"cuda:{index}, {text}")
    try:
        arch, note = toolchain_arch.choose("cuda:0" if count else "cpu")
        yield Line(NOTE if note else OK, "compiled for", arch + (f" ({note})" if note else ""))
    except Failed as failed:
        yield Line(BAD, "compiled for", str(failed))


def _gpus() -> int:
    return driver.gpu_count()


def _ninja() -> Line:
    found = host.find_ninja()
    if found is None:
        return Line(NOTE, "ninja", "none; not needed here, torch's own load_inline needs it")
    on_path = "" if shutil.which("ninja") else ", not on PATH (not needed here)"
    return Line(OK, "ninja", found + on_path)


def _cache() -> Line:
    notice = build_cache.notice()
    if notice:
        return Line(NOTE, "cache", notice)
    folder = build_cache.folder()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(folder).free
    state = NOTE if free < 1 << 30 else OK
    remedy = "free some space or set STEELYARD_CACHE" if state == NOTE else ""
    text = f"{folder}, {size / 1e6:.0f} MB, {free / 1e9:.0f} GB free"
    return Line(state, "cache", text, remedy)
