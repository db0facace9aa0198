"""After a CUDA error: the same call again, each launch waited for, to name the kernel."""

from __future__ import annotations

import dataclasses

from harness import inputs, wire
from harness.judge_session import Session
from harness.records import Case, Failed, Failure

BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1", "STEELYARD_NAME_KERNELS": "1"}


def name_kernel(session: Session, case: Case, failure: Failure) -> Failure:
    """The failure with the kernel's name, where the blocking re-run meets the same error."""
    try:
        remote = session.start(BLOCKING)
    except Failed:
        return failure
    try:
        _call(session, remote, case)
    except Failed as failed:
        return _told(failure, failed.failure)
    finally:
        remote.kill()
    text = "with every launch waited for, the same call did not fail: a race or a wrong stream"
    return dataclasses.replace(failure, details=(*failure.details, text))


def _call(session: Session, remote, case: Case) -> None:
    oracle, _ = session.model(remote, case, session.seed_for(case, "weights"))
    values = [session.inputs(case, inputs.NORMAL, 0)]
    if case.backward:
        values.append(oracle.output_gradients(values[0], 1, "random"))
    packed = wire.pack(values, session.place.device)
    answer = oracle.answer(packed, 1)
    remote.boxes(packed.nbytes, answer.nbytes + (1 << 16))
    floats = [i for i, t in enumerate(wire.tensors_of(values[0])) if t.is_floating_point()]
    remote.request(
        "call",
        session.left(),
        do="call",
        seed=1,
        backward=case.backward,
        requires=floats if case.backward else [],
        **remote.post(packed),
    )


def _told(first: Failure, again: Failure) -> Failure:
    """The kernel's name and the line of the blocking run, which is where the launch is."""
    kernel = next((d for d in again.details if d.startswith("in kernel ")), "")
    message = first.message
    if kernel:
        message = f"{message}; {kernel} (found by a run that waits for each launch)"
    details = tuple(d for d in again.details if d != kernel) or first.details
    return dataclasses.replace(first, message=message, details=details)
