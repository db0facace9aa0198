"""Take one nvcc call apart so that its host pass and its device pass run at the same time.

nvcc runs preprocess, cudafe++ (host), preprocess, cicc, ptxas, fatbinary and the host compiler one
after another. The two halves share only a module id, which cudafe++ invents and cicc reads; given
beforehand, they are independent until the host compiler joins them. `nvcc --dryrun` names the
commands. Anything unexpected there, and nvcc runs as a whole.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from harness.build_steps import Step

VARIABLE = re.compile(r"^#\$ (\w+)=(.*)$")
OUTPUTS = re.compile(
    r"""(?:-o\s+|--gen_c_file_name\s+|--embedded-fatbin=|--create=)"([^"]+)"|-o\s+([^\s"]+)"""
)
MODULE_ID = re.compile(r'--gen_module_id_file\s+--module_id_file_name\s+"([^"]+)"')


def steps(
    command: tuple[str, ...], name: str, folder: Path, identity: str, listen_to: str
) -> tuple[Step, ...] | None:
    """Steps that do what `command` (an nvcc call) does; None where that is not understood.

    name: prefix of the step names, the last of which is `name` itself. identity: 16 hex digits,
    the same for equal inputs. Writes the module id into `folder`.
    """
    dry = _dry_run(command, folder)
    if dry is None:
        return None
    environment, lines = dry
    lines = [line for line in lines if not line.startswith("rm ")]
    found = next((m for line in lines if (m := MODULE_ID.search(line))), None)
    joins = [i for i, line in enumerate(lines) if " -c -x c++ " in line]
    if found is None or joins != [len(lines) - 1] or not all(_understood(x) for x in lines):
        return None
    source = re.sub(r"\W", "_", os.path.basename(name))
    module_id = f"_{identity[:8]}_{len(source)}_{source}_{identity[8:16]}"
    Path(folder, found.group(1)).write_text(module_id)
    lines = [line.replace("--gen_module_id_file", "") for line in lines]
    return _graph(lines, name, environment, listen_to)


def _dry_run(
    command: tuple[str, ...], folder: Path
) -> tuple[tuple[tuple[str, str], ...], list[str]] | None:
    try:
        done = subprocess.run(
            [command[0], "--dryrun", *command[1:]],
            cwd=folder,
            env={**os.environ, "TMPDIR": "."},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    environment, lines = {}, []
    for line in done.stderr.decode("utf-8", "replace").splitlines():
        variable = VARIABLE.match(line)
        if variable:
            environment[variable[1]] = variable[2]
        elif line.startswith("#$ "):
            lines.append(line[3:].strip())
        elif line.strip():
            return None
    kept = ("PATH", "LD_LIBRARY_PATH", "CICC_PATH", "NVVMIR_LIBRARY_DIR", "TOP", "_NVVM_BRANCH_")
    return tuple((k, v) for k, v in environment.items() if k in kept), lines


def _understood(line: str) -> bool:
    return bool(
        re.search(r"\bcudafe\+\+ |/cicc\" |^ptxas |^fatbinary | -E -x c\+\+ | -c -x c", line)
    )


def _graph(
    lines: list[str], name: str, environment: tuple[tuple[str, str], ...], show: str
) -> tuple[Step, ...]:
    """Each command after those whose outputs it names; the last one after all."""
    made: dict[str, str] = {}
    result = []
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        own = name if last else f"{name}#{number}"
        after = tuple(result_step.name for result_step in result)
        if not last:
            after = tuple(dict.fromkeys(made[f] for f in made if f in line))
        result.append(Step(own, line, after, environment, show if number == 0 else ""))
        for groups in OUTPUTS.findall(line):
            made.setdefault("".join(groups), own)
    return tuple(result)
