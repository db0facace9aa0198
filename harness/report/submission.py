"""What came of a submission, in lines."""

from __future__ import annotations

from collections.abc import Iterator


def lines(written) -> Iterator[str]:
    """Findings, then where it lies, which file to send, and what was confirmed (submit.Written)."""
    for finding in written.findings:
        yield f"{finding.level.value}: {finding.text}"
    if written.path is None:
        yield "not written: mend what was refused, then run this again"
        return
    yield f"wrote {written.path}"
    if written.send != written.path:
        yield f"send {written.send}"
    if written.ran:
        yield f"checked in a clean process: built, and right on the GPU ({written.ran})"
    else:
        yield "checked in a clean process: it builds and loads; without a GPU it was not run"
