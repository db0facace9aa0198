"""What confines a candidate, and that nothing it starts outlives it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import sandbox, sandbox_confine

ROOT = Path(__file__).resolve().parent.parent
PROBE = """
import os, sys
sys.path.insert(0, {root!r})
from harness import sandbox_confine
print(*sandbox_confine.confine(({folder!r},), (os.getppid(),)))
{body}
"""


def confined(tmp_path, body: str) -> subprocess.CompletedProcess:
    """Runs `body` in a process that may write below tmp_path/mine only."""
    (tmp_path / "mine").mkdir()
    text = PROBE.format(root=str(ROOT), folder=str(tmp_path / "mine"), body=body)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)


def has(mechanism: str) -> bool:
    return (
        sandbox_confine._landlock_version() > 0
        if mechanism == "landlock"
        else Path("/proc/sys/kernel/seccomp").exists()
    )


needs_landlock = pytest.mark.skipif(not has("landlock"), reason="this kernel has no Landlock")
needs_seccomp = pytest.mark.skipif(not has("seccomp"), reason="this kernel has no seccomp")


@needs_landlock
def test_files_can_be_written_in_its_own_folder_only(tmp_path):
    target = tmp_path / "theirs.py"
    target.write_text("kept")
    ran = confined(tmp_path, f"open({str(tmp_path / 'mine' / 'x')!r}, 'w').write('1')")
    assert ran.returncode == 0, ran.stderr
    for body in (
        f"open({str(target)!r}, 'w')",
        f"os.unlink({str(target)!r})",
        f"os.rename({str(target)!r}, {str(tmp_path / 'mine' / 'y')!r})",
    ):
        (tmp_path / "mine" / "x").unlink(missing_ok=True)
        (tmp_path / "mine").rmdir()
        assert "Error" in confined(tmp_path, body).stderr
    assert target.read_text() == "kept"


@needs_seccomp
@pytest.mark.parametrize(
    "body",
    [
        "os.kill(os.getppid(), 0)",
        "os.kill(-1, 0)",
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_INET6)",
        "os.pidfd_open(os.getppid())",
    ],
)
def test_refused_system_calls(tmp_path, body):
    assert "not permitted" in confined(tmp_path, body).stderr


@needs_seccomp
def test_what_honest_work_needs_is_left(tmp_path):
    body = (
        "import socket, subprocess, threading; socket.socketpair(); os.kill(os.getpid(), 0)\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "print(subprocess.check_output(['echo', 'child']))"
    )
    ran = confined(tmp_path, body)
    assert ran.returncode == 0, ran.stderr
    assert "thread" in ran.stdout
    assert "child" in ran.stdout


@needs_seccomp
def test_memory_of_a_hidden_parent_cannot_be_read(tmp_path):
    (tmp_path / "mine").mkdir()
    probe = PROBE.format(
        root=str(ROOT),
        folder=str(tmp_path / "mine"),
        body="open(f'/proc/{os.getppid()}/mem', 'rb')",
    )
    parent = (
        f"import sys, subprocess; sys.path.insert(0, {str(ROOT)!r})\n"
        "from harness import sandbox_confine; sandbox_confine.hide()\n"
        f"sys.exit(subprocess.run([sys.executable, '-c', {probe!r}]).returncode)"
    )
    ran = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True)
    assert "Permission denied" in ran.stderr


def keeper(*command: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(sandbox.KEEPER), str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def running(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if words == f"sleep\0{marker}\0".encode():
            found.append(entry.name)
    return found


def gone(marker: str) -> bool:
    for _ in range(100):
        if not running(marker):
            return True
        time.sleep(0.05)
    return False


LEAVE = "sleep {m} & (setsid sleep {m} &) ; nohup sleep {m} & exec {then}"


def test_grandchildren_end_with_the_command():
    marker = f"4{os.getpid()}"
    with keeper("/bin/sh", "-c", LEAVE.format(m=marker, then="true")) as process:
        assert process.wait(20) == 0
        assert gone(marker)


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_all_ends_when_the_keeper_is_told_to(number):
    marker = f"5{os.getpid()}"
    with keeper("/bin/sh", "-c", LEAVE.format(m=marker, then=f"sleep {marker}")) as process:
        time.sleep(0.4)
        assert running(marker)
        process.send_signal(number)
        process.wait(20)
        assert gone(marker)


def test_all_ends_when_the_judge_is_killed():
    marker = f"6{os.getpid()}"
    judge = (
        "import subprocess, sys, os, time\n"
        f"subprocess.Popen([sys.executable, '-I', '-S', {str(sandbox.KEEPER)!r}, str(os.getpid()),"
        f" '/bin/sh', '-c', {LEAVE.format(m=marker, then='sleep ' + marker)!r}],"
        " start_new_session=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", judge]) as process:
        for _ in range(100):
            if len(running(marker)) == 4:
                break
            time.sleep(0.05)
        assert running(marker)
        process.kill()
        process.wait()
        assert gone(marker)


@pytest.mark.parametrize(
    ("command", "code"), [("exit 7", 7), ("kill -9 $$", -9), ("kill -SEGV $$", -11)]
)
def test_the_end_of_the_command_is_passed_on(command, code):
    with keeper("/bin/sh", "-c", command) as process:
        assert process.wait(20) == code


def test_output_is_bounded_and_drained():
    with subprocess.Popen(
        [sys.executable, "-c", "print('a' * 5_000_000); print('the end')"], stdout=subprocess.PIPE
    ) as process:
        output = sandbox.Output(process.stdout)
        assert process.wait(20) == 0
        text = output.text(2)
        output.close()
    assert len(text) < 3 * sandbox.KEPT_BYTES
    assert text.endswith("the end\n")
    assert "bytes not kept" in text
