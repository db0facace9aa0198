"""Files that a command writes for its user."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness.records import Failed, Outcome


def put(text: str, target: str) -> None:
    """Write a file, whole or not at all; "-" is standard output. Raises Failed(ENVIRONMENT)."""
    if target == "-":
        sys.stdout.write(text)
        return
    path = Path(target)
    scratch = path.with_name(path.name + ".tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, path)
    except OSError as error:
        raise Failed(
            Outcome.ENVIRONMENT, "report", f"{path}: cannot be written ({error.strerror})"
        ) from None
