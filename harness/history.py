"""Every run kept: report, source and where it ran, in one SQLite file of the cache folder.

Write-ahead logging makes it safe to be killed at any time and to run twice at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import intervals
from harness.records import CaseReport, Ratio, Report, Stat, from_dict, to_dict

SCHEMA = """
create table if not exists sources (hash text primary key, text text not null);
create table if not exists runs (
    id integer primary key,
    started text not null,
    op text not null,
    gpu text not null,
    reference text not null,
    source text not null references sources (hash),
    ok integer not null,
    report text not null
);
create index if not exists runs_of_op on runs (op, gpu, id);
"""
WAIT_S = 30.0


@dataclass(frozen=True)
class Run:
    """One report of the past and the source that was judged."""

    id: int
    started: str
    source_hash: str
    report: Report


@dataclass(frozen=True)
class Change:
    """A case's time against the last run that measured the same: device time or whole call."""

    label: str
    before: Stat
    now: Stat
    noise: float | None
    basis: str = "device"

    @property
    def ratio(self) -> Ratio:
        """Above 1: faster than before. Its interval allows for what a repeat differs by."""
        found = intervals.against("before", self.now, self.before, self.noise, self.basis)
        step = intervals.step_of([(self.now.median_us, self.before.median_us)], self.basis)
        noise = None if self.noise is None else max(self.noise, step)
        word = intervals.verdict(found.low, found.high, noise, step)
        low, high = found.low / (1 + step), found.high * (1 + step)
        return dataclasses.replace(found, low=low, high=high, verdict=word)


@dataclass(frozen=True)
class History:
    """The file; opened for each call, so that no lock is ever held between calls."""

    path: Path

    def add(self, report: Report) -> int:
        """Keep a report with the text of its solution; returns the run's number."""
        text = _read(report.solution)
        digest = hashlib.sha256(text.encode()).hexdigest()
        row = (
            report.started,
            report.op,
            _place(report),
            _digest(report.reference),
            digest,
            report.ok,
            json.dumps(to_dict(report)),
        )
        with self._open() as db:
            db.execute("insert or ignore into sources values (?, ?)", (digest, text))
            return db.execute(
                "insert into runs (started, op, gpu, reference, source, ok, report)"
                " values (?, ?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid

    def runs(self, op: str, limit: int = 20) -> tuple[Run, ...]:
        """The newest runs of an op, newest first."""
        with self._open() as db:
            found = db.execute(
                "select id, started, source, report from runs where op = ?"
                " order by id desc limit ?",
                (op, limit),
            ).fetchall()
        return tuple(Run(i, at, h, from_dict(Report, json.loads(r))) for i, at, h, r in found)

    def changes(self, report: Report) -> tuple[Change, ...]:
        """Each timed case against the last timed run of the same case, reference and place."""
        past = self._past(report)
        found = []
        for case in report.cases:
            for basis, now in _times(case).items():
                before = past.get((case.case.label, basis))
                if before is not None:
                    found.append(Change(case.case.label, before, now, case.speed.noise, basis))
                    break
        return tuple(found)

    def best(self, op: str) -> tuple[Run, str] | None:
        """The right run with the least geometric mean of device times, and its source.

        Among the runs on the newest timed run's GPU that timed the most cases; cases that are
        checked only count for being right.
        """
        timed = [r for r in self.runs(op, 100_000) if r.report.ok and _timed(r)]
        timed = [r for r in timed if _place(r.report) == _place(timed[0].report)]
        most = max((_timed(r) for r in timed), key=len, default=frozenset())
        timed = [r for r in timed if _timed(r) == most]
        if not timed:
            return None
        winner = min(timed, key=_product)
        return winner, self.source(op, winner.id)

    def source(self, op: str, run: int) -> str | None:
        """The text that a run of this op judged; None for a number that is none."""
        with self._open() as db:
            found = db.execute(
                "select text from sources join runs on source = hash where op = ? and id = ?",
                (op, run),
            ).fetchone()
        return found[0] if found else None

    def _past(self, report: Report) -> dict[tuple[str, str], Stat]:
        with self._open() as db:
            found = db.execute(
                "select report from runs where op = ? and gpu = ? and reference = ?"
                " order by id desc limit 50",
                (report.op, _place(report), _digest(report.reference)),
            ).fetchall()
        past: dict[tuple[str, str], Stat] = {}
        for (text,) in found:
            for case in from_dict(Report, json.loads(text)).cases:
                for basis, stat in _times(case).items():
                    past.setdefault((case.case.label, basis), stat)
        return past

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=WAIT_S)
        try:
            db.execute("pragma journal_mode = wal")
            with db:
                db.executescript(SCHEMA)
                yield db
        finally:
            db.close()


def _timed(run: Run) -> frozenset[str]:
    return frozenset(c.case.label for c in run.report.cases if _time(c) is not None)


def _product(run: Run) -> float:
    product = 1.0
    for case in run.report.cases:
        if (stat := _time(case)) is not None:
            product *= stat.median_us
    return product


def _times(case: CaseReport) -> dict[str, Stat]:
    """The solution's times by what they are of, the better one to compare first."""
    if case.speed is None:
        return {}
    solution = case.speed.solution
    both = {"device": solution.device, "call": solution.call}
    return {basis: stat for basis, stat in both.items() if stat is not None}


def _time(case: CaseReport) -> Stat | None:
    return (case.speed.solution.device or case.speed.solution.call) if case.speed else None


def _place(report: Report) -> str:
    return report.environment.gpu or report.environment.device


def _digest(path: str) -> str:
    return hashlib.sha256(_read(path).encode()).hexdigest()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return ""
