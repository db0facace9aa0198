"""The result file of a batch: one JSON line for each solution, safe against SIGKILL."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path

from harness.records import Failed, Outcome, Report, from_dict, to_dict

REPEATED = (Outcome.ENVIRONMENT, Outcome.SKIPPED)  # no verdict on the file: tried again


@dataclass(frozen=True)
class Row:
    """One verdict. `key`: what was judged, by content; `same_as`: judged under that name."""

    key: str
    report: Report
    same_as: str = ""

    @property
    def settled(self) -> bool:
        failure = self.report.failure
        return failure is None or failure.outcome not in REPEATED

    def line(self) -> str:
        report = self.report
        outcomes = [report.failure.outcome] if report.failure else []
        outcomes = outcomes or [c.outcome for c in report.cases if c.outcome is not Outcome.CORRECT]
        head = {
            "key": self.key,
            "solution": report.solution,
            "reference": report.reference,
            "outcome": outcomes[0].value if outcomes else "correct",
            "same_as": self.same_as,
        }
        return json.dumps({**head, "report": to_dict(report)})


class Rows:
    """The open file. Only one process may have it open; raises Failed where another has."""

    def __init__(self, path: Path):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a+b")  # noqa: SIM115  # held until close()
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise _fail(f"{path}: another batch is writing to it; wait for that one") from None
        except OSError as error:
            raise _fail(f"{path}: cannot be written ({error.strerror})") from None
        self.rows = self._read()

    def add(self, row: Row) -> None:
        """Append, and return only when the line is on the disk."""
        self._file.write(row.line().encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.rows.append(row)

    def close(self) -> None:
        self._file.close()

    def _read(self) -> list[Row]:
        """Rows of earlier runs; a last line that a killed run left unfinished is cut off."""
        self._file.seek(0)
        data = self._file.read()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self._file.truncate(len(whole))
        found = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                body = json.loads(line)
                report = from_dict(Report, body["report"])
                found.append(Row(body["key"], report, body.get("same_as", "")))
            except (ValueError, KeyError, TypeError):
                self.close()
                raise _fail(
                    f"{self.path}:{number}: is not a row of a batch; give another file"
                ) from None
        return found


def _fail(message: str) -> Failed:
    return Failed(Outcome.DOES_NOT_LOAD, "batch", message)
