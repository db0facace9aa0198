"""Make an op's solution into what a receiver wants, try it in a clean process, then write it.

Nothing is written where the receiver would turn it away.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import problem, source, submit_flashinfer, submit_gpumode, submit_scan
from harness.receivers import RECEIVERS, Finding, Level, Receiver
from harness.records import Failed, Outcome
from harness.submit_facts import ROOT, Facts, gather
from harness.submit_preflight import try_out


@dataclass(frozen=True)
class Package:
    """What is written. `texts`: by path below the root; `send`: the one that goes out.

    `scanned`: the Python text the receiver runs. `extra`: only for the preflight, not written.
    """

    texts: dict[str, str]
    send: str
    scanned: str
    blobs: tuple[submit_flashinfer.Blob, ...] = ()
    extra: dict[str, str] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """What came of it. `path` is None where nothing was written; `ran`: what a GPU confirmed."""

    path: Path | None
    send: Path | None
    findings: tuple[Finding, ...]
    ran: str | None = None


def submit(reference: Path, solution: Path, to: str, out: Path | None, device: str) -> Written:
    """Write the submission of a solution; raises Failed for what cannot be exported at all."""
    receiver = _receiver(to)
    read = source.read(solution)
    source.compare(read, source.read(reference, "Model"))
    _free_entry(read, receiver)
    problem_text = _complete(reference.read_text(encoding="utf-8-sig"))
    facts = gather(str(reference))
    own = read.text.replace("\r\n", "\n")
    package = _package(receiver, own, problem_text, facts, reference)
    findings = (
        *_mended(solution),
        *(Finding(Level.NOTE, text) for text in package.notes),
        *submit_scan.scan(Path(package.send).name, package.scanned, receiver),
        *submit_scan.shared_names(solution.name, read.text, problem_text, receiver),
        *_fitting(receiver, facts),
    )
    if _refused(findings):
        return Written(None, None, findings)
    with tempfile.TemporaryDirectory(prefix="submit-") as name:
        folder = Path(name)
        _fill(folder, package, reference)
        tried = try_out(receiver.name, folder, device)
        findings = (*findings, *tried.findings)
        if _refused(findings):
            return Written(None, None, findings)
        for extra in package.extra or {}:
            (folder / extra).unlink()
        target = _place(folder, package, out or _default(receiver, package, facts))
    send = target / package.send if target.is_dir() else target
    return Written(target, send, findings, tried.ran)


def _complete(problem_text: str) -> str:
    """The receivers call get_init_inputs; here a reference may leave it out."""
    if any(name == "get_init_inputs" for name, _ in submit_scan.top_level(problem_text)):
        return problem_text
    return problem_text.rstrip() + "\n\n\ndef get_init_inputs():\n    return []\n"


def _mended(solution: Path) -> tuple[Finding, ...]:
    """What is taken out on the way: bytes that mean nothing here and break loaders elsewhere."""
    raw = solution.read_bytes()
    marks = {"byte order mark": raw.startswith(b"\xef\xbb\xbf"), "carriage returns": b"\r\n" in raw}
    found = " and ".join(mark for mark, there in marks.items() if there)
    if not found:
        return ()
    return (Finding(Level.NOTE, f"{solution.name}: {found} were taken out of what is sent"),)


def _receiver(to: str) -> Receiver:
    if to not in RECEIVERS:
        raise _fail(f"no receiver {to!r}; --to takes {', '.join(RECEIVERS)}")
    return RECEIVERS[to]


def _free_entry(read: source.Source, receiver: Receiver) -> None:
    if receiver.entry == source.SOLUTION_CLASS:
        return
    for name, line in submit_scan.top_level(read.text):
        if name == receiver.entry:
            raise _fail(
                f"{read.path}:{line}: {name} is what {receiver.title} calls and is added "
                "here; rename yours"
            )


def _package(
    receiver: Receiver, solution: str, problem_text: str, facts: Facts, reference: Path
) -> Package:
    if receiver.name == "kernelbench":
        file = f"{facts.op}.py"
        return Package({file: solution}, file, solution, extra={"problem.py": problem_text})
    if receiver.name == "gpumode":
        return _gpumode(solution, problem_text, facts, reference)
    made = submit_flashinfer.data_set(solution, problem_text, facts)
    send = submit_flashinfer.solution_path(facts.op)
    text = submit_flashinfer.main_text(made.texts[send])
    notes = (f"left out, for one Definition has one set of types: {', '.join(made.left_out)}",)
    return Package(made.texts, send, text, made.blobs, notes=notes if made.left_out else ())


def _gpumode(solution: str, problem_text: str, facts: Facts, reference: Path) -> Package:
    text = submit_gpumode.submission(solution, facts)
    gpu_only = problem.declared(reference).gpu_only
    small = [i for i, case in enumerate(facts.cases) if case.name not in gpu_only]
    number = small[0] if small else 0
    note = "data = inputs" if facts.bare else "data = (*inputs, weights, arguments)"
    return Package(
        {
            "submission.py": text,
            "task.py": submit_gpumode.TASK_PY,
            "reference.py": submit_gpumode.reference(problem_text, facts),
            "task.yml": submit_gpumode.task_yml(facts, gpu_only),
        },
        "submission.py",
        text,
        extra={"case.txt": f"{number} {submit_gpumode.SEED + number}"},
        notes=(f"custom_kernel takes {note}, as generate_input beside it makes it",),
    )


def _fitting(receiver: Receiver, facts: Facts) -> tuple[Finding, ...]:
    """What the receiver cannot express of this problem."""
    found = []
    case = facts.described[0] if facts.described else None
    if case and receiver.one_tensor and len(case.outputs) != 1:
        found.append(
            f"{facts.op} has {len(case.outputs)} outputs, and {receiver.title} compares one tensor"
        )
    integers = (
        [v.name for v in case.inputs if "int" in v.dtype and v.shape is not None] if (case) else []
    )
    if receiver.casts_inputs and integers:
        found.append(
            f"{receiver.title} hands every tensor over as floating point, {', '.join(integers)} "
            "too; the solution must take that"
        )
    return tuple(Finding(Level.WARNING, text) for text in found)


def _refused(findings: tuple[Finding, ...]) -> bool:
    return any(finding.level is Level.REFUSED for finding in findings)


def _fill(folder: Path, package: Package, reference: Path) -> None:
    for name, text in {**package.texts, **(package.extra or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    if not package.blobs:
        return
    asked = {
        "reference": str(reference),
        "root": str(folder),
        "blobs": [{"path": b.path, "case": b.case, "names": b.names} for b in package.blobs],
    }
    done = subprocess.run(
        [sys.executable, "-m", "harness.submit_tensors"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        outcome = Outcome.ENVIRONMENT if done.returncode == 3 else Outcome.REFERENCE_FAILED
        raise Failed(outcome, "submit", last)


def _default(receiver: Receiver, package: Package, facts: Facts) -> Path:
    name = package.send if len(package.texts) == 1 else facts.op
    return Path("submissions") / receiver.name / name


def _place(folder: Path, package: Package, out: Path) -> Path:
    """Copy to where it was asked for; a single file goes to that path, or into that folder."""
    try:
        if len(package.texts) == 1:
            target = out / package.send if out.is_dir() else out
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / package.send, target)
            return target
        shutil.copytree(folder, out, dirs_exist_ok=True)
        return out
    except OSError as error:
        raise _fail(f"{out}: cannot be written ({error.strerror}); give --out a path") from None


def _fail(message: str) -> Failed:
    return Failed(Outcome.DOES_NOT_LOAD, "submit", message)
