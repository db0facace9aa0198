"""From compiler output to a few lines: where in the user's file, what, and the likely cause."""

from __future__ import annotations

import re

from harness.build_cache import Entry
from harness.build_recipe import Request
from harness.build_steps import Done
from harness.records import Failed, Outcome


def refuse_early(request: Request, user_file: str | None) -> None:
    """Raise Failed for what no compiler needs to be asked about."""
    if request.python_module and not re.fullmatch(r"[A-Za-z_]\w*", request.name):
        raise _failed(f"{user_file or 'load_inline'}: name={request.name!r} is no C++ identifier")


def failure(request: Request, results: tuple[Done, ...], user_file: str | None, log: str) -> Failed:
    """The Failed of a build whose commands failed."""
    text = "\n".join(done.output for done in results if done.code)
    errors = [line for line in text.splitlines() if "error" in line][:10]
    first = errors[0] if errors else "the compiler failed without a message"
    return _failed(f"{user_file}: {first}", tuple(errors[1:]), log)


def load_failure(request: Request, entry: Entry, error: Exception, user_file: str | None) -> Failed:
    """The Failed of a library that was built and cannot be loaded."""
    return _failed(f"{user_file}: {error}", (), entry.log)


def _failed(message: str, details: tuple[str, ...] = (), log: str | None = None) -> Failed:
    return Failed(Outcome.DOES_NOT_BUILD, "build", message, details, log)
