"""Files of a flashinfer-trace data set: where each lies, and JSON whose every fault is a sentence.

A data set has a root with definitions/, workloads/, solutions/, traces/ and blob/ below it.
SOL-ExecBench keeps definition.json and workload.jsonl in one folder instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness.records import Failed, Outcome

DEFINITIONS, WORKLOADS = "definitions", "workloads"
BESIDE = ("workload.jsonl", "workloads.jsonl")
LONGEST = 60  # characters of a wrong value that are shown


def definition_path(op_type: str, name: str) -> str:
    """Relative to the root, as the three below."""
    return f"{DEFINITIONS}/{op_type}/{name}.json"


def workloads_path(op_type: str, name: str) -> str:
    return f"{WORKLOADS}/{op_type}/{name}.jsonl"


def solution_path(author: str, op_type: str, definition: str, name: str) -> str:
    return f"solutions/{author}/{op_type}/{definition}/{name}.json"


def blob_path(op_type: str, definition: str, name: str) -> str:
    return f"blob/workloads/{op_type}/{definition}/{name}.safetensors"


def root_of(definition: Path) -> Path:
    """The data set's root: what holds definitions/, else the folder of the file."""
    above = [folder for folder in definition.absolute().parents if folder.name == DEFINITIONS]
    return above[0].parent if above else definition.absolute().parent


def workloads_of(definition: Path) -> Path:
    """The file with the workloads of a definition. Raises Failed(REFERENCE_FAILED)."""
    definition, root = definition.absolute(), root_of(definition)
    places = [definition.parent / name for name in (*BESIDE, f"{definition.stem}.jsonl")]
    if root / DEFINITIONS in definition.parents:
        below = definition.relative_to(root / DEFINITIONS).with_suffix(".jsonl")
        places.insert(0, root / WORKLOADS / below)
    for place in places:
        if place.is_file():
            return place
    raise Failed(
        Outcome.REFERENCE_FAILED,
        "load",
        f"{definition}: no workloads; put them into {places[0]}, one JSON object a line",
    )


def blob_of(root: Path, path: str) -> Path | None:
    """Where a blob lies: below the root, whose own first folders may be missing or said twice."""
    parts = Path(path).parts
    places = [root.joinpath(*parts[start:]) for start in range(len(parts))]
    return next((place for place in places if place.is_file()), None)


@dataclass(frozen=True)
class Fields:
    """One JSON object; a field that is missing or wrong raises Failed(outcome) with a sentence.

    where: the file, with the line in a file of lines. at: the fields that lead here, "spec.".
    """

    where: str
    body: dict
    outcome: Outcome
    at: str = ""

    def text(self, key: str, default: str | None = None) -> str:
        """default: what stands for a missing field or null; without one it must be there."""
        found = self._get(key, str, "a text, not empty", default)
        return found if found or default is not None else self.refuse(key, "a text, not empty")

    def whole(self, key: str) -> int:
        wanted = "a whole number from 0 on"
        found = self._get(key, int, wanted)
        return found if found >= 0 else self.refuse(key, wanted)

    def number(self, key: str, default: float) -> float:
        return float(self._get(key, int | float, "a number", default))

    def flag(self, key: str, default: bool) -> bool:
        return self._get(key, bool, "true or false", default)

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        wanted = "a list of texts"
        found = self._get(key, list | tuple, wanted, default)
        return tuple(found) if all(isinstance(x, str) for x in found) else self.refuse(key, wanted)

    def one_of(self, key: str, known: tuple[str, ...]) -> str:
        found = self.body.get(key)
        return found if found in known else self.refuse(key, " or ".join(known))

    def child(self, key: str) -> Fields:
        found = self._get(key, dict, "an object {...}")
        return Fields(self.where, found, self.outcome, f"{self.at}{key}.")

    def children(self, key: str) -> tuple[tuple[str, Fields], ...]:
        """Names and objects of an object of objects, in the file's order."""
        inside = self.child(key)
        return tuple((name, inside.child(name)) for name in inside.body)

    def items(self, key: str) -> tuple[Fields, ...]:
        """Objects of a list that must not be empty."""
        wanted = "a list of objects, not empty"
        found = self._get(key, list, wanted)
        if not found or not all(isinstance(item, dict) for item in found):
            self.refuse(key, wanted)
        return tuple(
            Fields(self.where, item, self.outcome, f"{self.at}{key}[{number}].")
            for number, item in enumerate(found)
        )

    def refuse(self, key: str, wanted: str) -> NoReturn:
        """Raises Failed: file and field, what is there, what is wanted."""
        if key not in self.body:
            self.fail(f"no {self.at}{key}; want {wanted}")
        got = json.dumps(self.body[key])
        got = got if len(got) <= LONGEST else got[: LONGEST - 3] + "..."
        self.fail(f"{self.at}{key} is {got}; want {wanted}")

    def fail(self, sentence: str) -> NoReturn:
        raise Failed(self.outcome, "load", f"{self.where}: {sentence}")

    def _get(self, key: str, kind: Any, wanted: str, default: Any = None) -> Any:
        found = self.body.get(key)
        if found is None and default is not None:
            return default
        is_flag = isinstance(found, bool) and kind is not bool
        if is_flag or not isinstance(found, kind):
            self.refuse(key, wanted)
        return found


def load(path: Path, outcome: Outcome) -> Fields:
    """The one object of a JSON file. Raises Failed(outcome)."""
    return _parsed(path, _text(path, outcome), outcome)


def load_lines(path: Path, outcome: Outcome) -> tuple[Fields, ...]:
    """One object for each line of a JSONL file that is not blank. Raises Failed(outcome)."""
    lines = enumerate(_text(path, outcome).split("\n"), 1)
    return tuple(_parsed(path, line, outcome, number) for number, line in lines if line.strip())


def _parsed(path: Path, text: str, outcome: Outcome, line: int | None = None) -> Fields:
    where = f"{path}:{line}" if line else f"{path}"
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        spot = f"{path}:{(line or 1) + error.lineno - 1}:{error.colno}"
        sentence = f"{spot}: not valid JSON ({error.msg}); mend the file there"
        raise Failed(outcome, "load", sentence) from None
    except RecursionError:
        raise Failed(outcome, "load", f"{where}: nested too deep; want plain JSON") from None
    if not isinstance(body, dict):
        got = json.dumps(body)[:LONGEST]
        raise Failed(outcome, "load", f"{where}: holds {got}; want one JSON object {{...}}")
    return Fields(where, body, outcome)


def _text(path: Path, outcome: Outcome) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError:
        reason = "not UTF-8"
    raise Failed(outcome, "load", f"{path}: cannot be read ({reason}); give a JSON file")
