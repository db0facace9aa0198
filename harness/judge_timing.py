"""Timing of a case that is right: fresh inputs for every sample, every timed output verified."""

from __future__ import annotations

import dataclasses
import random
import traceback

from harness import judge_physics, roofline, timing
from harness.judge_contest import Contest
from harness.judge_remote import Remote
from harness.judge_session import Session
from harness.records import CaseReport, Failed, Failure, Outcome, Overhead, Speed

# A wrong or impossible time is the solution's; anything else only means "correct, not timed".
VERDICTS = (
    Outcome.REFUSED,
    Outcome.CRASHED,
    Outcome.TIMED_OUT,
    Outcome.OUT_OF_MEMORY,
    Outcome.FLAKY,
)


def add(session: Session, row: CaseReport) -> CaseReport:
    """The row with its Speed, or with the reason why there is none."""
    if session.place.cuda is None:
        return dataclasses.replace(row, not_timed="no GPU")
    if not session.plan.timing:
        return dataclasses.replace(row, not_timed="timing was switched off")
    if row.case.name not in session.reference.timed:
        return dataclasses.replace(row, not_timed="an edge case, checked only")
    if session.out_of_time():
        return dataclasses.replace(row, not_timed="the run's time was used up by the checks")
    try:
        contest = Contest(session, row.case)
        speed = _measure(session, contest)
        labels = judge_physics.labels(session, contest)
        return dataclasses.replace(row, speed=speed, labels=(*row.labels, *labels))
    except Failed as failed:
        return _without_speed(session, row, failed.failure)
    except Exception as error:
        session.note(f"{row.case.label}: {traceback.format_exc(limit=-3)}")
        why = f"the judge's timing stopped with {type(error).__name__}: {error}"
        return dataclasses.replace(row, not_timed=why)


def _measure(session: Session, contest: Contest) -> Speed:
    bound = roofline.bound(contest.work(), roofline.facts(session.plan.device))
    conditions = timing.Conditions(launch=_overhead(session), watch=_watch(session))
    session.say(f"{contest.case.label}: timing")
    rng = random.Random(session.seed_for(contest.case, "order"))
    speed = timing.measure(contest.contestants(), bound, rng=rng, conditions=conditions)
    if not contest.case.backward:
        judge_physics.contradict(session, contest, speed)
    warnings = (*speed.warnings, *contest.notes)
    return dataclasses.replace(speed, warnings=warnings)


def _without_speed(session: Session, row: CaseReport, failure: Failure) -> CaseReport:
    place = f"{session.plan.op}/{row.case.label}"
    message = (
        failure.message if failure.message.startswith(place) else f"{place}: {failure.message}"
    )
    failure = dataclasses.replace(failure, message=message, stage=failure.stage.split(":")[0])
    if failure.outcome is Outcome.WRONG:
        check = dataclasses.replace(row.check, ok=False, message=message, mismatch="values")
        return dataclasses.replace(row, check=check)
    if failure.outcome in VERDICTS:
        return dataclasses.replace(row, failure=failure)
    return dataclasses.replace(row, not_timed=failure.message)


def _overhead(session: Session) -> Overhead | None:
    """An empty kernel's time, asked of the baseline's process: the solution has no say in it."""
    if "overhead" not in session.kept:
        try:
            reply = baseline(session).request("timing", 60, do="time", how="overhead")
            session.kept["overhead"] = Overhead(**reply["overhead"])
        except (Failed, TypeError, KeyError):
            session.kept["overhead"] = None
    return session.kept["overhead"]


def _watch(session: Session):
    import torch

    from harness import device

    properties = torch.cuda.get_device_properties(session.plan.device)
    found, why = device.watch(str(properties.uuid))
    if why:
        session.note(why)
    return found


def baseline(session: Session) -> Remote:
    """The process that runs the reference, eager and compiled; replaced when it has ended."""
    return session.rival("baseline", session.plan.reference)
