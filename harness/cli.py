"""Words of the command line to calls, and what goes wrong to one sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys

import typer

from harness.commands import exit_codes, files, inside, judging, past
from harness.records import Failed, Outcome


def doctor() -> int:
    """Show what was found of the toolchain, what fits, what does not and the remedy."""
    from harness import doctor as report

    return report.show()


_ALL = (
    *(judging.evaluate, judging.compare, doctor),
    *(past.history, past.best, past.table),
    *(inside.lint, inside.sass, inside.profile, inside.sanitize),
    *(files.batch, files.repair, files.submit),
)
COMMANDS = tuple(command.__name__ for command in _ALL)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Judge and time inline CUDA solutions. Without a command: evaluate (all ops, all cases).",
)
for command in _ALL:
    app.command()(command)


def _end_politely(number, frame) -> None:
    """A closed terminal or `kill`: as Ctrl-C, so that every process started here is ended."""
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; returns the exit code. STEELYARD_DEBUG=1 shows tracebacks."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_politely)
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or (words[0] not in (*COMMANDS, "--help", "-h")):
        words.insert(0, "evaluate")
    try:
        code = app(words, prog_name="run_eval.py", standalone_mode=False)
        return code if isinstance(code, int) else exit_codes.OK
    except Failed as failed:
        if os.environ.get("STEELYARD_DEBUG"):
            raise
        _say(failed)
        environment = failed.failure.outcome is Outcome.ENVIRONMENT
        return exit_codes.ENVIRONMENT if environment else exit_codes.USAGE
    except typer.Abort:
        return exit_codes.USAGE
    except KeyboardInterrupt:
        print("interrupted; the finished rows are kept", file=sys.stderr)
        return 130
    except Exception as error:
        if not hasattr(error, "exit_code"):
            raise
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        print(f"run_eval.py: {message}; see run_eval.py --help", file=sys.stderr)
        return error.exit_code


def _say(failed: Failed) -> None:
    print(f"{failed.failure.outcome.value}: {failed.failure.message}", file=sys.stderr)
    for line in failed.failure.details:
        print(f"    {line}", file=sys.stderr)
