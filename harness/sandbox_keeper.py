"""Runs one command and makes sure that none of its descendants outlives it or this process.

python sandbox_keeper.py PARENT_PID COMMAND...  Standard library only, so that it starts in 20 ms.
The command ends with this process, this process with its parent, however either of them dies.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    prctl = ctypes.CDLL(None).prctl
    signals = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # ignored by default, then never waited for
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        sys.exit(1)
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        run(command, prctl, keeper, signals)
    os.close(1)
    os.close(2)
    ending = watch(child, signals)
    kill_all()
    if os.getppid() != parent:
        remove_scratch()  # nobody else will
    if ending is not None and os.WIFSIGNALED(ending):
        number = os.WTERMSIG(ending)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(ending) if ending is not None else 0)


def run(command: list, prctl, keeper: int, signals: set) -> None:
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where memory runs out, this process goes first
    try:
        os.execv(command[0], command)
    finally:
        os._exit(127)


def watch(child: int, signals: set) -> "int | None":
    """The command's wait status, or None when this process is asked to end."""
    while True:
        got = signal.sigwait(signals)
        if got == signal.SIGTERM:
            return None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid == child:
                return status
            if pid == 0:
                break


def kill_all(rounds: int = 1000) -> None:
    """Kill children until there are none; the orphans of those come here, as to a subreaper."""
    for _ in range(rounds):
        for pid in children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def remove_scratch() -> None:
    folder = os.getcwd()
    if os.path.basename(folder).startswith("steelyard-"):
        shutil.rmtree(folder, ignore_errors=True)


def children() -> list:
    """Direct children that still run; each one killed hands its own over."""
    found, mine = [], str(os.getpid())
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{entry}/stat") as stat:
                state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
                if parent == mine and state != "Z":
                    found.append(int(entry))
    return found


if __name__ == "__main__":
    main()
