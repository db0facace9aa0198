"""A GPU MODE problem: a folder with task.yml, task.py and reference.py; solved by custom_kernel.

What is read without torch (specs, files) and what the judge loads (generate_input, ref_kernel,
check_implementation) are kept apart: the command line needs only the former.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import cache
from harness.records import Case, Failed, Outcome

TASK_FILES = ("task.yml", "task.yaml")
SUBMISSION = "@SUBMISSION@"
ENTRY = "custom_kernel"
JUDGES_ONLY = ("reference.py", "eval.py")  # never beside a solution
SEEDS = 1 << 31


@dataclass(frozen=True)
class Problem:
    """What task.yml says. `files`: the name each file has beside a submission, and where it is."""

    path: Path
    cases: tuple[Case, ...]
    benchmarks: frozenset[str]
    files: tuple[tuple[str, Path], ...]


def is_problem(path: str | Path) -> bool:
    return any((Path(path) / name).is_file() for name in TASK_FILES)


def read(path: str | Path) -> Problem:
    """The problem of a folder. Raises Failed(REFERENCE_FAILED) with one sentence."""
    path = Path(path)
    task_file = next(path / name for name in TASK_FILES if (path / name).is_file())
    task = _yaml(task_file)
    if task.get("lang", "py") != "py":
        raise _fail(f"{task_file}: lang is {task['lang']!r}; only Python problems (py) are read")
    if task.get("multi_gpu"):
        raise _fail(f"{task_file}: multi_gpu problems are not read; want one that runs on one GPU")
    tests = _cases(task_file, task, "tests", "test")
    benchmarks = _cases(task_file, task, "benchmarks", "benchmark")
    if not tests and not benchmarks:
        raise _fail(f"{task_file}: neither tests nor benchmarks; there is nothing to run")
    return Problem(
        path=path,
        cases=(*tests, *benchmarks),
        benchmarks=frozenset(case.name for case in benchmarks),
        files=_files(task_file, task),
    )


def beside(path: str | Path) -> str:
    """A folder with the modules that a submission may import (task.py, utils.py, ...)."""
    files = [(n, p) for n, p in read(path).files if n not in JUDGES_ONLY]
    digest = hashlib.sha256()
    for name, source in files:
        digest.update(name.encode() + b"\0" + hashlib.sha256(source.read_bytes()).digest())
    folder = cache.root() / "formats" / digest.hexdigest()[:24]
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in files:
        shutil.copyfile(source, folder / name)
    return str(folder)


def namespace(path: str | Path, execute: Callable[[Path], object]) -> dict:
    """Model, get_inputs and so on, made of the problem's functions. For the judge only.

    execute: runs a Python file in a namespace of its own. Each call draws a new, secret seed in
    place of the spec's public one.
    """
    import torch

    from harness.formats.cuda_on_cpu import on_this_machine

    problem = read(path)
    sources = dict(problem.files)
    if "reference.py" not in sources:
        raise _fail(f"{path}: no reference.py among the files of task.yml; add it")
    for folder in {str(source.parent) for source in sources.values()}:
        sys.path.insert(0, folder)
    module = execute(sources["reference.py"])
    found = {name: _function(module, sources["reference.py"], name) for name in
             ("generate_input", "ref_kernel")}  # fmt: skip

    class Model(torch.nn.Module):
        """ref_kernel as a module without parameters."""

        def forward(self, data):
            with on_this_machine():
                return found["ref_kernel"](data)

    def get_inputs(**spec):
        if "seed" in spec:
            spec["seed"] = int(torch.randint(SEEDS, (1,)))
        with on_this_machine():
            return [found["generate_input"](**spec)]

    own = getattr(module, "check_implementation", None)

    def accepts(case: Case, arguments: list, output) -> tuple[bool, str]:
        with on_this_machine():
            answer = own(*arguments, output)
        good, why = answer if isinstance(answer, tuple) else (not answer, answer)
        return bool(good), str(why or "")

    return {
        "Model": Model,
        "get_inputs": get_inputs,
        "get_init_inputs": lambda: [],
        "accepts": accepts if own is not None else None,
        "FAMILIES": {},  # what values are valid inputs only generate_input knows
    }


def _function(module, path: Path, name: str):
    found = getattr(module, name, None)
    if not callable(found):
        raise _fail(f"{path}: no function {name}; a GPU MODE problem defines it")
    return found


def _yaml(path: Path) -> dict:
    try:
        import yaml
    except ImportError:
        raise Failed(
            Outcome.ENVIRONMENT, "load", f"{path}: reading it needs PyYAML: pip install pyyaml"
        ) from None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise _fail(f"{path}: not valid YAML ({' '.join(str(error).split())[:120]})") from None
    if not isinstance(content, dict):
        raise _fail(f"{path}: want a mapping with tests and benchmarks")
    return content


def _cases(path: Path, task: dict, key: str, name: str) -> tuple[Case, ...]:
    specs = task.get(key) or []
    if not isinstance(specs, list) or not all(isinstance(spec, dict) for spec in specs):
        raise _fail(f"{path}: {key} must be a list of mappings such as {{size: 128, seed: 1}}")
    return tuple(Case(f"{name}-{i}", dict(spec)) for i, spec in enumerate(specs))


def _files(task_file: Path, task: dict) -> tuple[tuple[str, Path], ...]:
    listed = task.get("files") or [
        {"name": name, "source": name}
        for name in ("task.py", "utils.py", "reference.py")
        if (task_file.parent / name).is_file()
    ]
    found = []
    for entry in listed:
        if entry.get("source") == SUBMISSION:
            continue
        source = task_file.parent / str(entry.get("source"))
        if source.is_file():
            found.append((str(entry["name"]), source.resolve()))
        elif entry.get("name") not in JUDGES_ONLY[1:]:  # eval.py is theirs alone
            raise _fail(f"{task_file}: file {entry.get('source')} does not exist; add it")
    return tuple(found)


def _fail(message: str) -> Failed:
    return Failed(Outcome.REFERENCE_FAILED, "load", message)
