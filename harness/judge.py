"""The trusted side: judge one solution against one reference, and write exactly one Report.

python -m harness.judge PLAN.json REPORT.json [wait]   ("-" for PLAN.json: standard input)
With "wait" all that does not depend on the solution is made ready, and the solution is looked at
when a line comes in on standard input; its end without one ends the process.
The Report is rewritten after each case; progress is JSON lines {"text": ...} on standard output.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import secrets
import shlex
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from harness import sandbox_confine
from harness.formats import flashinfer
from harness.plan import words
from harness.records import (
    Case,
    CaseReport,
    Environment,
    Failed,
    Failure,
    Outcome,
    Plan,
    Report,
    from_dict,
    to_dict,
)

GIVE_UP_AFTER = 2  # cases that timed out


def main(arguments: list[str]) -> int:
    plan_file, report_file, *wait = arguments
    sandbox_confine.hide()
    text = sys.stdin.read() if plan_file == "-" else Path(plan_file).read_text(encoding="utf-8")
    plan = from_dict(Plan, json.loads(text))
    writer = Writer(plan, Path(report_file))
    writer.write()
    before: dict[str, str] = {}
    try:
        evaluate(plan, writer, before, _wait_for_line if wait else None)
    except Failed as failed:
        writer.change(failure=failed.failure)
    except Exception as error:
        writer.change(failure=_internal(plan, error))
    changed = sorted(path for path, digest in before.items() if fingerprint(path) != digest)
    if changed:
        _report_changed(writer, changed)
    writer.finish()
    return 0


class Writer:
    """The one Report of this process. The seed stays out of the file until no candidate lives."""

    def __init__(self, plan: Plan, path: Path):
        self.path, self.plan, self.seed = path, plan, None
        self.report = Report(op=plan.op, reference=plan.reference, solution=plan.solution)

    def say(self, text: str) -> None:
        print(json.dumps({"text": text}), flush=True)

    def change(self, **fields) -> None:
        self.report = dataclasses.replace(self.report, **fields)
        self.write()

    def add(self, case: CaseReport) -> None:
        self.change(cases=(*self.report.cases, case))

    def write(self) -> None:
        """Whole or not at all."""
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(to_dict(self.report), indent=1), encoding="utf-8")
        os.replace(scratch, self.path)

    def finish(self) -> None:
        """Now that no candidate can read it: the seed, and how to run each failing case again."""
        cases = tuple(self._with_rerun(case) for case in self.report.cases)
        self.change(seed=self.seed, cases=cases)

    def _with_rerun(self, case: CaseReport) -> CaseReport:
        if case.check is None or case.check.ok or self.seed is None:
            return case
        one = self.plan
        files = words(one.op, one.reference, one.solution)
        again = f"{files} --case {shlex.quote(case.case.name)} --seed {self.seed}"
        hint = f" Rerun: python run_eval.py {again}"
        check = dataclasses.replace(case.check, message=case.check.message + "." + hint)
        return dataclasses.replace(case, check=check)


def _wait_for_line() -> None:
    if not sys.stdin.readline():
        raise SystemExit(0)


def evaluate(
    plan: Plan,
    writer: Writer,
    before: dict[str, str],
    wait: Callable[[], None] | None = None,
) -> None:
    """Load the reference, then check and time case after case.

    before: gets the hash of each file that a solution must leave as it is.
    wait: called before the solution is looked at, when all else is ready.
    """
    writer.say("loading the reference")
    from harness import judge_remote, judge_timing, problem
    from harness.judge_session import Session

    before.update((path, fingerprint(path)) for path in _guarded(plan, judge_timing))
    writer.seed = secrets.randbits(32) if plan.seed is None else plan.seed
    reference = problem.load(plan.reference)
    place = judge_remote.place(plan.device)
    if place.cuda is None:
        _build_cpu_runtime()
    session = Session(plan, reference, place, writer.seed, writer.say)
    writer.change(environment=environment(plan), notes=reference.notes)
    try:
        if wait is not None:
            session.prepare()
            wait()
            session.begin()
        for index, case in enumerate(plan.cases):
            writer.say(f"{case.label} ({index + 1} of {len(plan.cases)})")
            started = time.monotonic()
            row = judge_case(session, case, writer.report.cases)
            row = dataclasses.replace(row, seconds=round(time.monotonic() - started, 3))
            writer.add(row)
            if row.failure is not None and row.failure.outcome in WHOLE_FILE and index == 0:
                writer.change(failure=row.failure, cases=())
                break
    finally:
        session.close()
        _conclude(session, writer, place)


def _build_cpu_runtime() -> None:
    """A confined candidate cannot write to the cache; what fails here, it will meet and tell."""
    from harness.simt import compiler

    with contextlib.suppress(Exception):
        compiler.runtime_library()
        compiler.torch_allocator()


# Outcomes that hold for the file, whichever case showed them first.
WHOLE_FILE = (Outcome.DOES_NOT_LOAD, Outcome.DOES_NOT_BUILD, Outcome.ENVIRONMENT)


def judge_case(session, case: Case, earlier: tuple[CaseReport, ...]) -> CaseReport:
    """One row, whatever happens."""
    from harness import judge_timing
    from harness.judge_trials import Trials

    slow = sum(row.outcome is Outcome.TIMED_OUT for row in earlier)
    if session.out_of_time() or slow >= GIVE_UP_AFTER:
        why = f"{slow} cases before it timed out" if slow else "the run's time was used up"
        skipped = Failure(Outcome.SKIPPED, "judge", f"{session.plan.op}/{case.label}: {why}")
        return CaseReport(case, failure=skipped)
    try:
        check, labels = Trials(session, case).run()
    except Failed as failed:
        return CaseReport(case, failure=_placed(session, case, failed.failure))
    except Exception as error:
        return CaseReport(case, failure=_internal(session.plan, error))
    row = CaseReport(case, check=check, labels=labels)
    return judge_timing.add(session, row) if check.ok else row


def _placed(session, case: Case, failure: Failure) -> Failure:
    """The failure of a case, with the kernel's name where a blocking re-run tells it."""
    if failure.stage.endswith(":cuda"):
        from harness import judge_crash

        failure = judge_crash.name_kernel(session, case, failure)
    place = f"{session.plan.op}/{case.label}"
    if not failure.message.startswith(place):
        failure = dataclasses.replace(failure, message=f"{place}: {failure.message}")
    return dataclasses.replace(failure, stage=failure.stage.split(":")[0])


def environment(plan: Plan) -> Environment:
    import torch

    gpu = torch.cuda.get_device_name(plan.device) if plan.device.startswith("cuda") else ""
    return Environment(
        device=plan.device,
        gpu=gpu,
        driver=_driver(),
        commit=_commit(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        python=platform.python_version(),
    )


def _driver() -> str:
    """Version of the GPU's kernel driver, as Linux shows it; empty without one."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
    except OSError:
        return ""
    return next((w for w in words if w.count(".") >= 1 and w.replace(".", "").isdigit()), "")


def _commit() -> str:
    """This checkout's commit, with a mark where files differ from it; empty outside of git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _conclude(session, writer: Writer, place) -> None:
    """What the candidate printed, what it changed in its own process, what confined it."""
    sandbox = ", ".join(session.sandbox) or "none"
    notes = (*place.notes, *session.notes, f"candidate confined by: {sandbox}")
    changed = tuple(f"in its own process the solution {text}" for text in session.changes)
    writer.change(
        stdout=session.printed,
        environment=dataclasses.replace(writer.report.environment, notes=notes),
        notes=(*writer.report.notes, *changed),
    )


def _guarded(plan: Plan, *_loaded) -> list[str]:
    """The reference and every module of the harness that this process runs."""
    modules = [m for name, m in sys.modules.items() if name.startswith("harness.")]
    files = [getattr(module, "__file__", None) for module in modules]
    reference = Path(plan.reference)
    own = [str(path) for path in reference.glob("*")] if reference.is_dir() else [str(reference)]
    if flashinfer.is_problem(reference):
        own = [str(path) for path in flashinfer.read(reference).files]
    return [*own, *(file for file in files if file)]


def fingerprint(path: str) -> str:
    """Hash of a file's bytes; "" where there is none."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _report_changed(writer: Writer, changed: list[str]) -> None:
    """Files that changed under the run: a note where the solution cannot have done it."""
    names = ", ".join(changed[:3])
    notes = writer.report.environment.notes
    if any("landlock" in note for note in notes):
        text = f"changed during the run, not by the solution (it cannot write there): {names}"
        writer.change(notes=(*writer.report.notes, text))
        return
    failure = Failure(
        Outcome.REFUSED,
        "judge",
        f"{writer.plan.op}: {names} changed during the run, and without Landlock it is not known "
        "who wrote there; restore the file (git checkout) and run again",
    )
    writer.change(failure=failure)


def _internal(plan: Plan, error: Exception) -> Failure:
    lines = traceback.format_exception(error)
    return Failure(
        Outcome.ENVIRONMENT,
        "judge",
        f"{plan.op}: the judge itself stopped with {type(error).__name__}: {error}; not the "
        "solution's doing",
        tuple("".join(lines).splitlines()[-12:]),
    )


if __name__ == "__main__":
    sandbox_confine.die_with_parent()
    sys.exit(main(sys.argv[1:]))
