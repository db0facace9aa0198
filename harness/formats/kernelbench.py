"""KernelBench's conventions: names of a run's files, problem folders, eval_results.json, fast_p."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.formats import gpumode
from harness.records import CaseReport, Failed, Outcome, Report, Timing
from harness.scores import THRESHOLDS, FastP

RUN_FILE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)(?:_kernel)?$")
NOT_COMPILED = (Outcome.DOES_NOT_LOAD, Outcome.DOES_NOT_BUILD)
ABSENT = -1.0  # KernelBench's runtime where there is none


@dataclass(frozen=True)
class Sample:
    """What a file name of a run folder says."""

    level: int
    problem: int
    sample: int


def sample_of(solution: str | Path) -> Sample | None:
    """The numbers of level_L_problem_P_sample_S_kernel.py; None for another name."""
    match = RUN_FILE.match(Path(solution).stem)
    return Sample(*map(int, match.groups())) if match else None


def problem_for(solution: Path, problems: Path) -> Path:
    """The problem of a solution: by level and number, else the file of the same name.

    problems: one problem (a file, or a folder of GPU MODE), a level's folder, or a folder of
    level folders (level1, ...).
    Raises Failed(DOES_NOT_LOAD) where there is none or more than one.
    """
    if problems.is_file() or gpumode.is_problem(problems):
        return problems
    sample = sample_of(solution)
    if sample is None:
        wanted, found = f"{solution.stem}.py", sorted(problems.rglob(f"{solution.stem}.py"))
    else:
        folder = problems / f"level{sample.level}"
        folder = folder if folder.is_dir() else problems
        wanted = f"{folder.name}/{sample.problem}_*.py"
        found = _numbered(folder, sample)
    if len(found) == 1:
        return found[0]
    what = "no problem" if not found else f"{len(found)} problems"
    raise Failed(
        Outcome.DOES_NOT_LOAD,
        "plan",
        f"{solution}: {what} {wanted} below {problems}; want exactly one",
    )


def eval_results(reports: Sequence[Report]) -> dict[int, dict]:
    """For each level the content of an eval_results.json; files with other names are left out.

    Times are milliseconds of whole calls, the median where KernelBench writes the mean.
    """
    levels: dict[int, dict] = {}
    for report in reports:
        sample = sample_of(report.solution)
        if sample is not None:
            problems = levels.setdefault(sample.level, {})
            problems.setdefault(str(sample.problem), []).append(_entry(report, sample))
    return levels


def fast_p(reports: Sequence[Report]) -> tuple[FastP, ...]:
    """KernelBench's own fast_p: share of all files that are right and more than p times as fast.

    Whole calls against eager PyTorch; a file without a time counts as not fast.
    """
    speeds = [ratio for ratio in map(_speed_up, reports) if ratio is not None]
    right, count = sum(report.ok for report in reports), len(reports)
    untimed = right - len(speeds)
    return tuple(
        FastP(p, (sum(s > p for s in speeds) if p else right) / count if count else None, count,
              untimed)
        for p in THRESHOLDS
    )  # fmt: skip


def _numbered(folder: Path, sample: Sample) -> list[Path]:
    own = re.fullmatch(r"level(\d+)", folder.name)
    if own and int(own[1]) != sample.level:
        return []
    return sorted(folder.glob(f"{sample.problem}_*.py"))


def _entry(report: Report, sample: Sample) -> dict:
    timed = _timed(report)
    failure = report.failure or next((c.failure for c in report.cases if c.failure), None)
    outcome = failure.outcome if failure else None
    messages = [c.check.message for c in report.cases if c.check and not c.check.ok]
    problem = failure.message if failure else (messages or [""])[0]
    hardware = report.environment.gpu or report.environment.device
    metadata = {"hardware": hardware, "device": report.environment.device}
    if problem:
        metadata["error"] = problem
    runtime = timed.speed.solution.call.median_us / 1e3 if timed else ABSENT
    eager = _eager(timed)
    return {
        "sample_id": sample.sample,
        "compiled": outcome not in NOT_COMPILED,
        "correctness": report.ok,
        "metadata": metadata,
        "runtime": runtime,
        "runtime_stats": _stats(timed.speed.solution, metadata) if timed else {},
        "ref_runtime": eager.call.median_us / 1e3 if eager else ABSENT,
        "ref_runtime_stats": _stats(eager, metadata) if eager else {},
    }


def _stats(timing: Timing, where: dict) -> dict:
    stat = timing.call
    return {
        "median": stat.median_us / 1e3,
        "num_trials": stat.count,
        "hardware": where["hardware"],
        "device": where["device"],
    }


def _timed(report: Report) -> CaseReport | None:
    if not report.ok:
        return None
    return next((c for c in report.cases if c.speed and c.speed.solution.call), None)


def _eager(case: CaseReport | None) -> Timing | None:
    if case is None:
        return None
    return next((t for t in case.speed.rivals if t.who == "eager" and t.call), None)


def _speed_up(report: Report) -> float | None:
    case = _timed(report)
    eager = _eager(case)
    return eager.call.median_us / case.speed.solution.call.median_us if eager else None
