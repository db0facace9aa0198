"""Run the commands of one build side by side, in dependency order, each with its own log."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Listener = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """One command. `after` names steps whose outputs it reads; a text command goes to the shell."""

    name: str
    command: tuple[str, ...] | str
    after: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    show: str = ""  # for the live line; empty: not worth a word


@dataclass(frozen=True)
class Done:
    """How a step ended; code None means that it did not run since an earlier one failed."""

    name: str
    code: int | None
    seconds: float
    output: str


def run(steps: tuple[Step, ...], folder: Path, listen: Listener) -> tuple[Done, ...]:
    """Run all steps in `folder`, as many at once as dependencies allow; in the order given."""
    results: dict[str, Done] = {}
    finished = {step.name: threading.Event() for step in steps}

    def work(step: Step) -> None:
        try:
            for name in step.after:
                finished[name].wait()
            if any(results[name].code != 0 for name in step.after):
                results[step.name] = Done(step.name, None, 0.0, "")
                return
            if step.show:
                listen(step.show)
            results[step.name] = _execute(step, folder)
        finally:
            finished[step.name].set()

    threads = [threading.Thread(target=work, args=(step,), daemon=True) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(results[step.name] for step in steps)


def _execute(step: Step, folder: Path) -> Done:
    started = time.monotonic()
    # A relative folder for scratch files: nvcc cannot quote every character of an absolute one.
    environment = {**os.environ, "TMPDIR": ".", **dict(step.environment)}
    environment["LC_ALL"] = "C.UTF-8"  # plain messages, and comments in any script survive
    try:
        process = subprocess.run(
            step.command,
            shell=isinstance(step.command, str),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        code, output = process.returncode, process.stdout.decode("utf-8", "replace")
    except OSError as error:
        code, output = 127, f"{error}\n"
    return Done(step.name, code, time.monotonic() - started, output)
