"""Reports as one JSON document, and back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from harness.plan import ROOT
from harness.records import Failed, Outcome, Report, from_dict, to_dict
from harness.report import output

FORMAT = 1


def write(reports: tuple[Report, ...], target: str) -> None:
    """Write all reports to a file, whole or not at all; "-" is standard output."""
    portable = [to_dict(_portable(r)) for r in reports]
    output.put(json.dumps({"format": FORMAT, "reports": portable}, indent=1) + "\n", target)


def _portable(report: Report) -> Report:
    """With files of this checkout named from its root, so that results can be shared."""
    return dataclasses.replace(
        report, reference=_from_root(report.reference), solution=_from_root(report.solution)
    )


def _from_root(path: str) -> str:
    try:
        return Path(path).relative_to(ROOT).as_posix()
    except ValueError:
        return path


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
