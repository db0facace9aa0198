"""Import one solution so that its load_inline calls build, in a process of its own.

python -m harness.build_worker SOLUTION MODE DEVICE EVENT_FD
Writes JSON lines to EVENT_FD: {"text": ...} per step and one {"build": ...} or {"failure": ...}.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from harness import inline
from harness.records import Build, Failed, Failure, Outcome, to_dict

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    solution, mode, device, events = arguments
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # no builds for nobody
    channel = os.fdopen(int(events), "w", encoding="utf-8", buffering=1)
    os.set_inheritable(channel.fileno(), False)

    def tell(**message) -> None:
        channel.write(json.dumps(message) + "\n")

    tell(text="loading torch")
    started = time.monotonic()
    result = _attempt(solution, mode, device, lambda text: tell(text=text))
    if isinstance(result, Failure):
        tell(failure=to_dict(result))
    else:
        kept, build = result
        seconds = round(time.monotonic() - started, 2)
        tell(build={**to_dict(build), "seconds": seconds}, **kept)
    return 0


def _attempt(solution: str, mode: str, device: str, listen) -> tuple[dict, Build] | Failure:
    try:
        inline.install(mode, device, listen, solution)
    except Failed as failed:
        return failed.failure
    trouble = _import(solution, listen)
    return _cpu_result(solution, trouble) if mode == "cpu" else _gpu_result(solution, trouble)


def _import(solution: str, listen) -> BaseException | None:
    """Run the file as a module; what stopped it, if anything did."""
    listen("building")
    folder = os.path.dirname(solution)
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("steelyard_built_solution", solution)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.argv = [solution]
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        return error
    return None


def _gpu_result(solution: str, trouble: BaseException | None) -> tuple[dict, Build] | Failure:
    session = inline.session()
    notes = []
    if isinstance(trouble, inline.BuildError):
        return trouble.failed.failure
    for failed in session.failures:
        notes.append(f"a load_inline failed and the solution went on: {failed}")
    if trouble is not None:
        failure = _does_not_load(solution, trouble)
        if not session.entries or not _no_gpu(trouble):
            return failure
        notes.append(f"{failure.message} (no GPU here)")
    elif not session.entries:
        notes.append("no load_inline call while importing: built at first use")
    kept = {
        "keys": [entry.key for entry in session.entries],
        "files": _own_files(solution),
    }
    return kept, Build(
        solution=solution,
        seconds=0.0,
        cached=bool(session.entries) and all(entry.cached for entry in session.entries),
        kernels=tuple(kernel for entry in session.entries for kernel in entry.kernels),
        log=session.entries[0].log if session.entries else None,
        notes=tuple(notes),
    )


def _cpu_result(solution: str, trouble: BaseException | None) -> tuple[dict, Build]:
    """Never a failure: the judge meets the same obstacle and gives the verdict."""
    notes = ()
    if trouble is not None:
        text = str(trouble).strip().splitlines() or [type(trouble).__name__]
        notes = (f"not built for the CPU: {text[0]}",)
    return {"keys": [], "files": _own_files(solution)}, Build(solution, 0.0, False, notes=notes)


def _does_not_load(solution: str, error: BaseException) -> Failure:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == solution]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None) or 1
    if isinstance(error, SystemExit):
        said = "exits while it is imported; guard it with `if __name__ == '__main__':`"
    else:
        text = str(error).strip().splitlines() or [""]
        said = f"{type(error).__name__}: {text[0]}"
    return Failure(Outcome.DOES_NOT_LOAD, "build", f"{solution}:{line}: {said}")


def _no_gpu(error: BaseException) -> bool:
    return isinstance(error, RuntimeError | AssertionError) and any(
        word in str(error) for word in ("NVIDIA driver", "CUDA", "no GPU")
    )


def _own_files(solution: str) -> list[str]:
    """The solution and what it imported from outside the interpreter's own folders."""
    harness = str(Path(__file__).parent)
    installed = tuple(
        {str(Path(p).resolve()) for p in (sys.prefix, sys.base_prefix, harness)}
        | {str(Path(sys.modules["torch"].__file__).parent.parent)}
    )
    files = {solution}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py"):
            real = os.path.realpath(path)
            if not real.startswith(installed) and "site-packages" not in real:
                files.add(real)
    return sorted(files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
