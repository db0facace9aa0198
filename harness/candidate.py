"""The untrusted side. Holds one solution and the inputs of the call it is making; nothing else.

python -m harness.candidate ROLE DEVICE   ROLE: solution, peer or baseline (the reference, timed)
Speaks on the socket whose descriptor is in STEELYARD_CHANNEL. Its exit code decides nothing.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from harness import sandbox_confine


def main(arguments: list[str]) -> int:
    role, device = arguments
    channel_fd = int(os.environ.pop("STEELYARD_CHANNEL"))
    os.set_inheritable(channel_fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    in_force = _confine(role, device)
    from harness import candidate_serve, wire  # torch starts threads; the limits come first

    channel = wire.Channel(socket.socket(fileno=channel_fd))
    _leave_the_project()
    server = candidate_serve.Server(channel, role, device)
    server.announce(in_force)
    return server.serve()


def _confine(role: str, device: str) -> tuple[str, ...]:
    """Only a solution is confined: references and peers are the project's own."""
    if role != "solution":
        return ()
    from harness import cache

    cache.root()  # remembered while it can still be written to
    keeper = os.getppid()
    in_force = sandbox_confine.confine((os.getcwd(),), (keeper, *_ancestors(keeper)))
    if not device.startswith("cuda"):
        sandbox_confine.limit_memory()
    return in_force


def _ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        if pid > 1:
            found.append(pid)
    return found


def _leave_the_project() -> None:
    """A solution cannot import the reference by accident; this package stays loaded."""
    root = str(Path(__file__).resolve().parent.parent)
    sys.path[:] = [entry for entry in sys.path if entry not in (root, "")]
    os.environ.pop("PYTHONPATH", None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
