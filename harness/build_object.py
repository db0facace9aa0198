"""Compile one source to one object: from the cache, with light headers, or with all of them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import build_cache, build_light, build_nvcc, build_steps
from harness.build_cache import Entry
from harness.build_recipe import Compile, Recipe, digest
from harness.build_resources import parse
from harness.build_steps import Done, Step


@dataclass(frozen=True)
class Task:
    """What all attempts at one object share."""

    recipe: Recipe
    one: Compile
    work: Path
    listen: Callable[[str], None]

    @property
    def name(self) -> str:
        return self.one.source.name


def make(task: Task) -> Done:
    """The object in the work folder, or the compiler's output and a code other than 0."""
    known = build_cache.lookup(task.one.key)
    if known is not None:
        shutil.copy(known.library, task.work / task.one.output)
        return Done(task.name, 0, 0.0, Path(known.log).read_text(encoding="utf-8"))
    done = _compile(task)
    if done.code == 0:
        _keep(task, done)
    return done


def headers(task: Task) -> list[str]:
    """The user's own headers that the compiler read, as absolute paths."""
    path = task.work / f"{task.one.output}.d"
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    names = shlex.split(text.partition(":")[2])
    found = {str((task.work / name).resolve()) for name in names}
    return sorted(name for name in found if not name.startswith(str(task.work.resolve())))


def _compile(task: Task) -> Done:
    """Light headers first; torch's own where those cannot be, or could not, be used."""
    root = task.recipe.torch_root
    for operators in (False, True):
        light = f"light.{task.one.output}{operators:d}"
        if not build_light.prepare(task.one.source, root, task.work / light, operators):
            break
        done = _attempt(task, light)
        if done.code == 0 or build_light.users_own(done.output, root):
            return done
        if not build_light.operators_missing(done.output):
            break
    return _attempt(task, None)


def _attempt(task: Task, light: str | None) -> Done:
    """Run the compiler once, with the stand-in headers in `light` or without."""
    one = task.one
    compiler, *rest = one.command
    command = [compiler, *(build_light.flags(light) if light else ()), *rest]
    command += _dependency_flags(task)
    command += ["-Xptxas", "-v"] if one.nvcc else []
    command += ["-c", one.source.argument, "-o", one.output]
    command = [compiler, *(_quotable(word, task.work) for word in command[1:])]
    show = f"compiling {task.name}"
    steps = None
    if one.nvcc and "-MMD" not in command:
        steps = build_nvcc.steps(tuple(command), task.name, task.work, one.key, show)
    steps = steps or (Step(task.name, tuple(command), show=show),)
    return _joined(task.name, tuple(command), build_steps.run(steps, task.work, task.listen))


def _quotable(word: str, work: Path) -> str:
    """nvcc cannot quote some characters in paths: such a folder gets a plain name in `work`."""
    flag, path = (word[:2], word[2:]) if word.startswith("-I") else ("", word)
    if not path.startswith("/") or not re.search(r"[^\w/.,:=+@()\[\] -]", path):
        return word
    folder, leaf = (path, "") if os.path.isdir(path) else os.path.split(path)
    link = work / f"at-{digest(folder)[:12]}"
    with contextlib.suppress(FileExistsError):
        link.symlink_to(folder)
    return flag + os.path.join(link.name, leaf) if leaf else flag + link.name


def _joined(name: str, command: tuple[str, ...], results: tuple[Done, ...]) -> Done:
    """One result of a compiler's several commands; what two passes both say is said once."""
    failed = [done.code for done in results if done.code]
    outputs = dict.fromkeys(done.output for done in results if done.output)
    text = f"$ {shlex.join(command)}\n" + "".join(outputs)
    return Done(name, failed[0] if failed else 0, sum(done.seconds for done in results), text)


def _keep(task: Task, done: Done) -> None:
    """Put the object into the cache; the same object in two libraries is compiled once."""
    with build_cache.workspace(task.one.key) as folder:
        shutil.copy(task.work / task.one.output, folder / task.one.output)
        (folder / "log.txt").write_text(done.output, encoding="utf-8")
        entry = Entry(task.one.key, task.one.output, round(done.seconds, 2), parse(done.output))
        build_cache.publish(folder, entry, headers(task))


def _dependency_flags(task: Task) -> tuple[str, ...]:
    """Only where the user's own headers can matter: nvcc preprocesses once more for them."""
    one, request = task.one, task.recipe.request
    flags = (*request.cflags, *request.cuda_cflags)
    own = request.include_paths or one.source.path or '#include "' in one.source.text
    if own or any(flag.startswith("-I") for flag in flags):
        return ("-MMD", "-MF", f"{one.output}.d")
    return ()
