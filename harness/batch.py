"""Thousands of solutions by one command: what is done, by content, is not done again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import plan, run
from harness.batch_rows import Row, Rows
from harness.formats import flashinfer, flashinfer_solution, gpumode, kernelbench
from harness.records import Failed, Outcome, Plan, Report
from harness.report import output, traces

BUILT_TOGETHER = 16  # solutions that are compiled side by side before they are judged
FORMAT = 1


@dataclass(frozen=True)
class Task:
    """One solution file, what it is judged as, and the plan, or why there is none."""

    solution: Path
    key: str
    plan: Plan | None
    failed: Report | None = None


def solutions(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Python files and Solutions, those of folders included. Raises Failed where none are."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise _fail(f"{path}: no such file or folder; give solution files or their folder")
        found += _in_folder(path) if path.is_dir() else [path]
    if not found:
        raise _fail(f"{', '.join(map(str, paths))}: no *.py file and no Solution in JSON there")
    return tuple(dict.fromkeys(found))


def tasks(files: Iterable[Path], problems: Path, request: plan.Request) -> Iterator[Task]:
    """One task per file; a file without a problem, or with a broken one, is a task too.

    request: device, seed, cases and whether to time, for all of them.
    """
    if not problems.exists():
        raise _fail(f"{problems}: no such file or folder; give the problems of the solutions")
    for solution in files:
        reference = ""
        try:
            reference = str(_problem_for(solution, problems))
            one = dataclasses.replace(request, reference=reference, solution=str(solution))
            (made,) = plan.plans(one)
        except Failed as failed:
            report = Report(solution.stem, reference, str(solution), failure=failed.failure)
            yield Task(solution, _key(solution, reference, request), None, report)
            continue
        yield Task(solution, _key(solution, reference, request), made)


def judge_all(todo: Iterable[Task], rows: Rows, listen: run.Listener) -> None:
    """Judge what has no settled row yet, and append its row at once. Raises Failed(ENVIRONMENT)."""
    settled = {row.key: row for row in rows.rows if row.settled}
    named = {(row.key, row.report.solution) for row in rows.rows if row.settled}
    left = [task for task in todo if (task.key, str(task.solution)) not in named]
    for start in range(0, len(left), BUILT_TOGETHER):
        _judge_some(left[start : start + BUILT_TOGETHER], settled, rows, _shifted(listen, start))


def latest(rows: Iterable[Row], wanted: Iterable[Task]) -> tuple[Report, ...]:
    """The newest report of each task."""
    return tuple(report for _, report in _newest(rows, wanted))


def _newest(rows: Iterable[Row], wanted: Iterable[Task]) -> list[tuple[Task, Report]]:
    """Each task that has a report, with its newest."""
    newest = {(row.key, row.report.solution): row.report for row in rows}
    pairs = [(task, newest.get((task.key, str(task.solution)))) for task in wanted]
    return [(task, report) for task, report in pairs if report is not None]


def _in_folder(folder: Path) -> list[Path]:
    written = (p for p in folder.rglob("*.json") if flashinfer_solution.looks_like_one(p))
    return sorted((*folder.rglob("*.py"), *written))


def _problem_for(solution: Path, problems: Path) -> Path:
    if flashinfer_solution.is_solution(solution):
        return flashinfer_solution.definition_for(solution, problems)
    return kernelbench.problem_for(solution, problems)


def _judge_some(
    some: list[Task], settled: dict[str, Row], rows: Rows, listen: run.Listener
) -> None:
    for task in some:
        if task.failed is not None:
            rows.add(Row(task.key, task.failed))
    some = [task for task in some if task.plan is not None]
    first = {task.key: task for task in reversed(some) if task.key not in settled}
    ready = run.prepare(tuple(task.plan for task in first.values()), listen)
    prepared = dict(zip(first, ready, strict=True))
    for number, task in enumerate(some):
        row = settled.get(task.key)
        if row is None:
            report, same_as = _judged(prepared[task.key], listen, number), ""
        else:
            report, same_as = row.report, row.same_as or row.report.solution
        row = Row(task.key, dataclasses.replace(report, solution=str(task.solution)), same_as)
        rows.add(row)
        if row.settled:
            settled[task.key] = row


def _judged(one: run.Prepared, listen: run.Listener, number: int) -> Report:
    keep = Path(tempfile.mkdtemp(prefix="steelyard-batch-"))
    try:
        step = lambda text, partial: listen(  # noqa: E731
            run.Progress(one.plan.op, text, number, number)
        )
        return run.judge(one, step, keep)
    finally:
        shutil.rmtree(keep, ignore_errors=True)


def _shifted(listen: run.Listener, start: int) -> Callable[[run.Progress], None]:
    """Counts from the start of the batch rather than of its present part."""
    return lambda step: listen(
        dataclasses.replace(step, done=step.done + start, total=step.total + start)
    )


def _key(solution: Path, reference: str, request: plan.Request) -> str:
    """By content: the same solution against the same problem, judged in the same way."""
    place = request.device.split(":")[0]
    how = dataclasses.replace(request, root=Path(), device=place, reference="", solution="")
    digest = hashlib.sha256(json.dumps([FORMAT, repr(how)]).encode())
    for path in (solution, *_files_of(reference)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _files_of(reference: str) -> list[Path]:
    """Everything that a problem is made of; nothing where no problem was found."""
    if not reference:
        return []
    path = Path(reference)
    if flashinfer.is_problem(path):
        return _files_of_definition(path)
    if not gpumode.is_problem(path):
        return [path]
    task_files = [path / name for name in gpumode.TASK_FILES if (path / name).is_file()]
    try:
        return task_files + [source for _, source in gpumode.read(path).files]
    except Failed:
        return task_files


def _files_of_definition(path: Path) -> list[Path]:
    try:
        problem = flashinfer.read(path)
    except Failed:
        return [path]
    return [*problem.files, *problem.blobs]


def write_kernelbench(reports: tuple[Report, ...], beside: Path) -> tuple[Path, ...]:
    """eval_results.json as KernelBench has it, one for each level, next to the result file."""
    levels = kernelbench.eval_results(reports)
    written = []
    for level, content in sorted(levels.items()):
        part = f".level_{level}" if len(levels) > 1 else ""
        path = beside.with_name(f"{beside.stem}{part}.eval_results.json")
        output.put(json.dumps(content, indent=4) + "\n", str(path))
        written.append(path)
    return tuple(written)


def write_traces(todo: Iterable[Task], rows: Iterable[Row], beside: Path) -> tuple[str, ...]:
    """The newest verdict on each Solution as Traces, next to the result file; says what it did."""
    planned = [task for task in todo if task.plan and flashinfer.is_problem(task.plan.reference)]
    if not planned:
        return ()
    target = beside.with_name(f"{beside.stem}.traces.jsonl")
    return traces.write([(t.plan, report) for t, report in _newest(rows, planned)], str(target))


def _fail(message: str) -> Failed:
    return Failed(Outcome.DOES_NOT_LOAD, "batch", message)
