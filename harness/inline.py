"""Stand in for torch's load_inline and load in this process: cached builds, readable errors.

Called by build workers and candidates before the solution is imported. The same call with the
same sources finds the library that was built before; otherwise it is built here and now.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from harness import (
    build_cache,
    build_compile,
    build_foresee,
    build_recipe,
    diagnose,
    driver,
    inline_request,
    toolchain,
)
from harness.build_cache import Entry
from harness.build_recipe import Request
from harness.inline_request import Flags
from harness.records import Failed, Outcome


@dataclass
class Session:
    """What this process has installed and built so far."""

    tools: toolchain.Toolchain
    listen: Callable[[str], None] = lambda text: None
    entries: list[Entry] = field(default_factory=list)
    failures: list[Failed] = field(default_factory=list)
    foreseen: dict[str, Future] = field(default_factory=dict)  # by recipe key


class BuildError(RuntimeError):
    """What load_inline raises, as torch's does; carries the stage's Failed."""

    def __init__(self, failed: Failed):
        failure = failed.failure
        log = (f"full log: {failure.log}",) if failure.log else ()
        super().__init__("\n".join((failure.message, *failure.details, *log)))
        self.failed = failed


_session: Session | None = None


def install(
    mode: str,
    device: str | None = None,
    listen: Callable[[str], None] | None = None,
    solution: str | None = None,
) -> None:
    """Replace torch's load_inline and load: mode "cuda" (nvcc) or "cpu" (executed by simt).

    device: "cuda:N" or "cpu", for the architecture; the first GPU, if any, when left out.
    listen: gets a few words at each step of a build. solution: a file whose builds may start
    while torch is imported. Raises Failed(ENVIRONMENT).
    """
    global _session
    if mode == "cpu":
        _install_cpu()
        return
    if mode != "cuda":
        raise ValueError(f"mode {mode!r}: want cuda or cpu")
    device = device or ("cuda:0" if driver.gpu_count() else "cpu")
    _session = Session(toolchain.find(device), listen or (lambda text: None))
    if solution is not None:
        _start_early(_session, solution)
    extension = _cpp_extension(_session.tools.cuda.root)
    extension.load_inline, extension.load = load_inline, load


def session() -> Session:
    """What was built in this process since install("cuda")."""
    if _session is None:
        raise RuntimeError("inline.install('cuda') has not been called")
    return _session


def load_inline(
    name,
    cpp_sources,
    cuda_sources=None,
    sycl_sources=None,
    functions=None,
    extra_cflags=None,
    extra_cuda_cflags=None,
    extra_sycl_cflags=None,
    extra_ldflags=None,
    extra_include_paths=None,
    build_directory=None,
    verbose=False,
    with_cuda=None,
    with_sycl=None,
    is_python_module=True,
    with_pytorch_error_handling=True,
    keep_intermediates=True,
    use_pch=False,
    no_implicit_headers=False,
):
    """torch.utils.cpp_extension.load_inline; build_directory and use_pch are not needed here."""
    return _deliver(_asked(dict(locals()), _caller()), bool(verbose))


def _asked(given: dict[str, Any], user_file: str | None) -> Request:
    """The request behind the arguments of a load_inline call."""
    _refuse_sycl(given["sycl_sources"], given["with_sycl"])
    written = inline_request.Strings(
        given["cpp_sources"],
        given["cuda_sources"],
        given["functions"],
        given["no_implicit_headers"],
        given["with_pytorch_error_handling"],
    )
    flags = Flags(
        given["extra_cflags"],
        given["extra_cuda_cflags"],
        given["extra_ldflags"],
        given["extra_include_paths"],
        user_file,
    )
    request = inline_request.from_strings(str(given["name"]), written, flags, given["with_cuda"])
    return dataclasses.replace(request, python_module=bool(given["is_python_module"]))


def load(
    name,
    sources,
    extra_cflags=None,
    extra_cuda_cflags=None,
    extra_sycl_cflags=None,
    extra_ldflags=None,
    extra_include_paths=None,
    build_directory=None,
    verbose=False,
    with_cuda=None,
    with_sycl=None,
    is_python_module=True,
    is_standalone=False,
    keep_intermediates=True,
):
    """torch.utils.cpp_extension.load: the same from source files."""
    del extra_sycl_cflags, build_directory, keep_intermediates
    _refuse_sycl(None, with_sycl)
    if is_python_module and is_standalone:
        raise ValueError("`is_python_module` and `is_standalone` are mutually exclusive.")
    flags = Flags(extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths, _caller())
    try:
        request = inline_request.from_files(str(name), sources, flags, with_cuda)
    except Failed as failed:
        raise BuildError(failed) from None
    kind = {"python_module": bool(is_python_module), "standalone": bool(is_standalone)}
    return _deliver(dataclasses.replace(request, **kind), bool(verbose))


def _deliver(request: Request, verbose: bool) -> Any:
    """Find or build the library and hand it over the way torch does."""
    here = session()
    user_file = _caller()
    try:
        diagnose.refuse_early(request, user_file, here.tools.gpu)
        recipe = build_recipe.plan(request, here.tools)
        early = here.foreseen.pop(recipe.key, None)
        entry = early.result() if early else build_cache.lookup(recipe.key)
        if entry is None:
            entry = build_compile.make(recipe, user_file, here.listen)
        here.entries.append(entry)
        if verbose:
            print(f"{request.name}: {'cached' if entry.cached else 'rebuilt'}, {entry.folder}")
        return _open(request, entry, user_file)
    except Failed as failed:
        here.failures.append(failed)
        raise BuildError(failed) from None


def _start_early(here: Session, solution: str) -> None:
    """Begin what the solution's text asks for; its own calls then find it under way."""
    pool = ThreadPoolExecutor(max_workers=4)
    signature = inspect.signature(load_inline)
    for positional, named in build_foresee.calls(solution):
        try:
            bound = signature.bind(*positional, **named)
            bound.apply_defaults()
            recipe = build_recipe.plan(_asked(bound.arguments, solution), here.tools)
        except (TypeError, ValueError, BuildError):
            continue  # the call itself will say what is wrong
        if build_cache.lookup(recipe.key) is None and recipe.key not in here.foreseen:
            future = pool.submit(build_compile.make, recipe, solution, here.listen)
            here.foreseen[recipe.key] = future
    pool.shutdown(wait=False)


def _open(request: Request, entry: Entry, user_file: str | None) -> Any:
    if request.standalone:
        return entry.library
    try:
        if not request.python_module:
            import torch

            torch.ops.load_library(entry.library)
            return entry.library
        spec = importlib.util.spec_from_file_location(
            request.name,
            entry.library,
            loader=importlib.machinery.ExtensionFileLoader(request.name, entry.library),
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except (ImportError, OSError) as error:
        if _needs_driver(error):
            return _Absent(request.name)
        raise diagnose.load_failure(request, entry, error, user_file) from None


class _Absent:
    """A library that needs the GPU driver, on a machine that has none: built, not usable."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, item: str):
        raise RuntimeError(f"{self._name} needs the NVIDIA driver (libcuda.so.1), which is absent")


def _needs_driver(error: Exception) -> bool:
    if "libcuda.so.1" not in str(error):
        return False
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    return False


def _install_cpu() -> None:
    from harness import simt

    simt.install()
    extension = _cpp_extension(None)
    extension.load_inline = simt.load_inline
    if hasattr(simt, "load"):
        extension.load = simt.load


def _cpp_extension(cuda_home: str | None):
    """The module to patch; CUDA_HOME set first keeps its import from warning and guessing."""
    if cuda_home and "torch.utils.cpp_extension" not in sys.modules:
        os.environ["CUDA_HOME"] = cuda_home
    logger = logging.getLogger("torch.utils.cpp_extension")
    level = logger.level
    logger.setLevel(logging.ERROR)  # "No CUDA runtime is found": said once, by us, if at all
    import torch.utils.cpp_extension as extension

    logger.setLevel(level)
    if cuda_home:
        extension.CUDA_HOME = cuda_home
    return extension


def _caller() -> str | None:
    """The Python file that called load_inline: the first frame outside this module and torch."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not re.search(r"[/\\]torch[/\\]|<", name):
            return name
        frame = frame.f_back
    return None


def _refuse_sycl(sources, with_sycl) -> None:
    if sources or with_sycl:
        sentence = "load_inline: sycl_sources are not built here, only C++ and CUDA"
        raise BuildError(Failed(Outcome.DOES_NOT_BUILD, "build", sentence))
