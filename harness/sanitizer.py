"""compute-sanitizer's four tools over an op's cases, each finding at the user's line.

Written against the documented output; not yet run on a GPU by this module.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import bare_call, diagnose_lines, toolchain_tools
from harness.records import Failed, Outcome, Plan

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
START = re.compile(
    r"^=========\s+(?:(?:Error|Warning|ERROR|WARNING): )?(?P<what>Invalid __|Race reported|"
    r"Potential \w+ hazard|Uninitialized __|Barrier error|Program hit |Misaligned |Leaked )"
)
PLACE = re.compile(r"(?:^|[\s/])cuda\.cu:(?P<line>\d+)")
SUMMARY = re.compile(r"^=========\s+(?:ERROR|RACECHECK) SUMMARY:")


@dataclass(frozen=True)
class Finding:
    """One kind of finding: the tool's words, the lines of the generated .cu, how often."""

    tool: str
    message: str
    generated_lines: tuple[int, ...]
    count: int


def examine(one: Plan, folder: Path) -> Iterator[tuple[str, tuple[Finding, ...]]]:
    """Each tool and what it found, as it ends. Raises Failed where a tool cannot run."""
    program = toolchain_tools.require("compute-sanitizer", one.device)
    command = bare_call.prepare(one, folder)
    for tool in TOOLS:
        options = ["--tool", tool, "--target-processes", "application-only"]
        options += ["--racecheck-report", "all"] if tool == "racecheck" else []
        _, output = bare_call.run([program, *options, *command])
        (folder / f"{tool}.txt").write_text(output, encoding="utf-8")
        if not any(SUMMARY.match(line) for line in output.splitlines()):
            last = tuple(output.strip().splitlines()[-5:])
            raise Failed(
                Outcome.ENVIRONMENT, "sanitize", f"{one.op}: {tool} ended without a summary", last
            )
        yield tool, parse(tool, output)


def parse(tool: str, output: str) -> tuple[Finding, ...]:
    """Findings in the order of their first mention; equal ones are counted."""
    found: Counter[tuple[str, tuple[int, ...]]] = Counter()
    message, lines = "", []

    def close() -> None:
        if message:
            found[message, tuple(dict.fromkeys(lines))] += 1

    for line in output.splitlines():
        if START.match(line):
            close()
            message, lines = _words(line), _lines(line)
        elif SUMMARY.match(line) or not line.startswith("====") or line.strip() == "=========":
            close()
            message, lines = "", []
        elif message:
            lines = lines + _lines(line)
    close()
    return tuple(Finding(tool, text, at, count) for (text, at), count in found.items())


def shown(finding: Finding, solution: str, generated: list[str]) -> str:
    """The finding as one line at the solution's own line, where that can be told.

    generated: lines of the .cu that was compiled.
    """
    user = diagnose_lines.read(solution)
    own = [user.find(generated, line) for line in finding.generated_lines] if user else []
    places = ", ".join(str(line) for line in own if line is not None)
    where = f"{solution}:{places}" if places else solution
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    return f"{where}: {finding.tool}: {finding.message}{times}"


def _words(line: str) -> str:
    text = line.removeprefix("=========").strip()
    text = re.sub(r"^(?:Error|Warning|ERROR|WARNING): ", "", text)
    return re.sub(r"\s+(?:at|in) .*cuda\.cu:\d+.*$", "", text)


def _lines(line: str) -> list[int]:
    return [int(match["line"]) for match in PLACE.finditer(line)]
