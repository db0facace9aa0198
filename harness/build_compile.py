"""Turn a recipe into a library in the cache, or into one Failed that a person can read."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import build_cache, build_object, build_steps, diagnose
from harness.build_cache import Entry
from harness.build_object import Task
from harness.build_recipe import Recipe
from harness.build_resources import parse
from harness.build_steps import Done, Step


def make(recipe: Recipe, user_file: str | None, listen: Callable[[str], None]) -> Entry:
    """The entry of this recipe, compiled now. Raises Failed(DOES_NOT_BUILD).

    user_file: the Python file that holds the sources, so that errors name its lines.
    """
    started = time.monotonic()
    with build_cache.workspace(recipe.key) as work:
        _write_sources(recipe, work)
        tasks = [Task(recipe, one, work, listen) for one in recipe.compiles]
        with ThreadPoolExecutor(max_workers=max(len(tasks), 1)) as pool:
            results = list(pool.map(build_object.make, tasks))
        if all(done.code == 0 for done in results):
            results.append(_link(recipe, work, listen))
        (work / "log.txt").write_text(_log(results), encoding="utf-8")
        if any(done.code for done in results):
            raise diagnose.failure(
                recipe.request, tuple(results), user_file, _keep_log(recipe.key, work)
            )
        entry = Entry(
            key=recipe.key,
            library=recipe.request.library,
            seconds=round(time.monotonic() - started, 2),
            kernels=tuple(kernel for done in results for kernel in parse(done.output)),
        )
        headers = sorted({name for task in tasks for name in build_object.headers(task)})
        return build_cache.publish(_tidied(work), entry, headers)


def _write_sources(recipe: Recipe, work: Path) -> None:
    for source in recipe.request.sources:
        if source.path is None:
            text = source.text.replace("\r\n", "\n")
            (work / source.name).write_bytes(text.encode("utf-8", "surrogateescape"))


def _link(recipe: Recipe, work: Path, listen: Callable[[str], None]) -> Done:
    command = recipe.link
    steps = []
    if "-lcuda" in command:
        # A toolkit from pip has no stub of the driver library; only its name matters here.
        command = (*command, "-L.")
        stub = (command[0], "-shared", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so")
        steps.append(Step("libcuda stub", (*stub, "-x", "c", "/dev/null")))
    steps.append(Step("link", command, tuple(step.name for step in steps), show="linking"))
    *_, done = build_steps.run(tuple(steps), work, listen)
    return Done(done.name, done.code, done.seconds, f"$ {shlex.join(command)}\n{done.output}")


def _log(results: list[Done]) -> str:
    return "\n".join(
        f"[{done.name}: exit {done.code}, {done.seconds:.1f} s]\n{done.output}" for done in results
    )


def _tidied(work: Path) -> Path:
    """Only the library, its sources and the log are worth keeping."""
    for path in work.iterdir():
        if path.is_symlink():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        elif path.name.startswith(("tmpxft", "libcuda.so")) or path.suffix in (".o", ".d"):
            path.unlink()
    return work


def _keep_log(key: str, work: Path) -> str:
    """A failed build leaves its log and sources for reading, under a name no lookup reads."""
    target = build_cache.folder() / "failed" / key
    target.mkdir(parents=True, exist_ok=True)
    for path in work.iterdir():
        if path.suffix in (".txt", ".cpp", ".cu"):
            shutil.copy(path, target / path.name)
    return str(target / "log.txt")
