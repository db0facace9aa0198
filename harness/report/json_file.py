"""Reports as one JSON document, and back."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from harness.records import Failed, Outcome, Report, from_dict, to_dict

FORMAT = 1


def write(reports: tuple[Report, ...], target: str) -> None:
    """Write all reports to a file, whole or not at all; "-" is standard output."""
    text = json.dumps({"format": FORMAT, "reports": [to_dict(r) for r in reports]}, indent=1)
    if target == "-":
        sys.stdout.write(text + "\n")
        return
    path = Path(target)
    scratch = path.with_name(path.name + ".tmp")
    try:
        scratch.write_text(text + "\n", encoding="utf-8")
        os.replace(scratch, path)
    except OSError as error:
        raise Failed(
            Outcome.ENVIRONMENT, "report", f"{path}: cannot be written ({error.strerror})"
        ) from None


def read(path: str) -> tuple[Report, ...]:
    """Reports of a file that `write` made. Raises Failed with one sentence for any other file."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        return tuple(from_dict(Report, item) for item in document["reports"])
    except OSError as error:
        reason = error.strerror
    except (ValueError, KeyError, TypeError):
        reason = "not a result file of --json"
    raise Failed(Outcome.DOES_NOT_LOAD, "report", f"{path}: cannot be read ({reason})")
