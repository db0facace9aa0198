"""Turn a recipe into a library in the cache, or into one Failed that a person can read."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from harness import build_cache, build_resources, build_steps, diagnose
from harness.build_cache import Entry
from harness.build_recipe import Compile, Recipe
from harness.build_steps import Done, Step

Listener = Callable[[str], None]


def make(recipe: Recipe, user_file: str | None, listen: Listener) -> Entry:
    """The entry of this recipe, compiled now. Raises Failed(DOES_NOT_BUILD).

    user_file: the Python file that holds the sources, so that errors name its lines.
    """
    started = time.monotonic()
    with build_cache.workspace(recipe.key) as work:
        _write_sources(recipe, work)
        results = build_steps.run(_steps(recipe), work, listen)
        log = _log_text(recipe, results)
        (work / "log.txt").write_text(log, encoding="utf-8")
        if any(done.code != 0 for done in results):
            kept = _keep_log(recipe.key, work)
            raise diagnose.failure(recipe.request, results, user_file, kept)
        entry = Entry(
            key=recipe.key,
            library=recipe.request.library,
            seconds=round(time.monotonic() - started, 2),
            kernels=build_resources.parse("\n".join(done.output for done in results)),
        )
        headers = _headers(recipe, work)
        for object_file in work.glob("*.o"):
            object_file.unlink()
        return build_cache.publish(work, entry, headers)


def _write_sources(recipe: Recipe, work: Path) -> None:
    for source in recipe.request.sources:
        if source.path is None:
            text = source.text.replace("\r\n", "\n")
            (work / source.name).write_bytes(text.encode("utf-8", "surrogateescape"))


def _steps(recipe: Recipe) -> tuple[Step, ...]:
    compiles = [_compile_step(recipe, one) for one in recipe.compiles]
    names = tuple(step.name for step in compiles)
    return (*compiles, Step("link", recipe.link, names, show="linking"))


def _compile_step(recipe: Recipe, one: Compile) -> Step:
    command = (*one.command, *_dependency_flags(recipe, one))
    if one.source.cuda:
        command = (*command, "-Xptxas", "-v")
    command = (*command, "-c", one.source.argument, "-o", one.output)
    return Step(one.source.name, command, show=f"compiling {one.source.name}")


def _dependency_flags(recipe: Recipe, one: Compile) -> tuple[str, ...]:
    """Only where the user's own headers can matter: nvcc preprocesses once more for them."""
    own_headers = recipe.request.include_paths or '#include "' in one.source.text
    own_headers = own_headers or any(flag.startswith("-I") for flag in one.command[1:3])
    return ("-MMD", "-MF", f"{one.output}.d") if own_headers or one.source.path else ()


def _headers(recipe: Recipe, work: Path) -> list[str]:
    """The user's own headers that were read, as absolute paths."""
    found: set[str] = set()
    written = {source.argument for source in recipe.request.sources}
    for path in work.glob("*.d"):
        text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
        names = shlex.split(text.partition(":")[2])
        found.update(str((work / name).resolve()) for name in names if name not in written)
    return sorted(name for name in found if not name.startswith(str(work)))


def _log_text(recipe: Recipe, results: tuple[Done, ...]) -> str:
    parts = []
    commands = {step.name: step.command for step in _steps(recipe)}
    for done in results:
        command = commands.get(done.name, "")
        shown = command if isinstance(command, str) else shlex.join(command)
        ended = "not run" if done.code is None else f"exit {done.code}, {done.seconds:.1f} s"
        parts.append(f"$ {shown}\n[{done.name}: {ended}]\n{done.output}")
    return "\n".join(parts)


def _keep_log(key: str, work: Path) -> str:
    """A failed build leaves its log and sources for reading, under a name no lookup reads."""
    target = build_cache.folder() / "failed" / key
    target.mkdir(parents=True, exist_ok=True)
    for path in work.iterdir():
        if path.suffix in (".txt", ".cpp", ".cu"):
            shutil.copy(path, target / path.name)
    return str(target / "log.txt")
