"""A solution as the command line names it: a file, the number of a past run, or a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import plan
from harness.history import History
from harness.records import Failed, Outcome

GIT_S = 20.0


def resolve(word: str, op: str, history: History, folder: Path) -> str:
    """The path of the solution's file; the text of a run or commit is written into `folder`.

    Raises Failed when `word` is none of the three.
    """
    if Path(word).is_file():
        return word
    text = history.source(op, int(word)) if word.isdigit() else None
    if text is None:
        text = _committed(word, op)
    if text is None:
        raise Failed(
            Outcome.DOES_NOT_LOAD,
            "compare",
            f"{word}: no file, no kept run of op {op} and no commit with solutions/{op}.py; "
            f"python run_eval.py history {op} lists the runs",
        )
    path = folder / f"{op}_{''.join(c if c.isalnum() else '_' for c in word)}.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _committed(revision: str, op: str) -> str | None:
    """solutions/<op>.py as of a commit, branch or tag of this checkout; None without it."""
    if revision.startswith("-"):
        return None
    where = f"{revision}:{plan.HOME['solution']}/{op}.py"
    command = ["git", "-C", str(plan.ROOT), "show", where]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
