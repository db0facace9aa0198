"""Record the author's loop on a GPU: watch mode through two edits, then profile and sanitize.

python bench/loop_session.py OUT_FOLDER [OP]   writes watch.txt, profile.txt and sanitize.txt
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN = [sys.executable, str(ROOT / "run_eval.py")]
WAITING = "Waiting for the next save"
LIMIT_S = 400


def main(arguments: list[str]) -> int:
    out, op = Path(arguments[0]), (arguments[1:] or ["pack_tokens"])[0]
    out.mkdir(parents=True, exist_ok=True)
    watched = watch(op, out / "watch.txt")
    for command in ("profile", "sanitize"):
        with open(out / f"{command}.txt", "wb") as file:
            subprocess.run([*RUN, command, op], stdout=file, stderr=subprocess.STDOUT)
    return 0 if watched else 1


def watch(op: str, file: Path) -> bool:
    """Two edits of a copy: one that does not build, one that is the solution with a comment."""
    text = (ROOT / "solutions" / f"{op}.py").read_text(encoding="utf-8")
    broken = text.replace("__global__", "oops;\n__global__", 1)
    commented = text.replace("__global__", "// another source, the same kernel\n__global__", 1)
    with tempfile.TemporaryDirectory() as folder, open(file, "wb") as log:
        copy = Path(folder) / f"{op}.py"
        copy.write_text(text, encoding="utf-8")
        command = [*RUN, op, "--solution", str(copy), "--watch"]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            good = _shown(file, 1)
            for number, edit in enumerate((broken, commented), 2):
                copy.write_text(edit, encoding="utf-8")
                started = time.monotonic()
                good = good and _shown(file, number)
                print(f"edit {number - 1}: whole result after {time.monotonic() - started:.1f} s")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
    return good


def _shown(file: Path, times: int) -> bool:
    deadline = time.monotonic() + LIMIT_S
    while file.read_text(encoding="utf-8", errors="replace").count(WAITING) < times:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
