"""Take from this process, for good, what a solution does not need. Call before threads start.

What the system does not offer is left out and named: the judge never depends on it alone.
Capabilities go, set-uid gains nothing, Landlock allows writing only below a few folders, seccomp
refuses other processes' memory, signals to the judge, the network and kernel set-up.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct

from harness.sandbox_syscalls import REFUSED, SOCKET, TAKES_PID

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 22, 24, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION, LANDLOCK_PATH_BENEATH = 1, 1
WRITE_FILE, REMOVE_DIR, REMOVE_FILE = 1 << 1, 1 << 4, 1 << 5
MAKE = sum(1 << bit for bit in range(6, 13))  # char, dir, regular, socket, fifo, block, symlink
REFER, TRUNCATE = 1 << 13, 1 << 14
NET, SCOPE = 0b11, 0b11  # bind and connect TCP; abstract sockets and signals outside

_libc = ctypes.CDLL(None, use_errno=True)


def confine(writable: tuple[str, ...], protected: tuple[int, ...]) -> tuple[str, ...]:
    """Returns what is in force, such as ("capabilities", "landlock 7", "seccomp").

    writable   folders below which files may be made and changed
    protected  processes that may not be signalled
    """
    if os.environ.get("STEELYARD_SANDBOX") == "off":
        return ()
    _limit()
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    steps = (
        ("capabilities", lambda: _drop_capabilities()),
        (f"landlock {_landlock_version()}", lambda: _landlock(writable)),
        ("seccomp", lambda: _seccomp(protected)),
    )
    return tuple(name for name, step in steps if step())


def hide() -> None:
    """Keep other processes of this user from reading this one's memory."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def die_with_parent() -> None:
    _libc.prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    largest = 8 << 30
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    bound = largest if hard == resource.RLIM_INFINITY else min(largest, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))


def limit_memory(share: float = 0.75) -> None:
    """Private memory of this process at most `share` of the machine's; not for CUDA processes."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    bound = int(whole * share)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def _drop_capabilities() -> bool:
    for capability in range(64):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("<Ii", 0x20080522, 0)  # version 3, this thread
    return _libc.capset(header, struct.pack("<6I", *[0] * 6)) == 0


def _landlock_version() -> int:
    return max(0, _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), LANDLOCK_VERSION))


def _landlock(writable: tuple[str, ...]) -> bool:
    version = _landlock_version()
    if version < 1:
        return False
    rights = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE
    rights |= (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    words = [rights, NET if version >= 4 else 0, SCOPE if version >= 6 else 0]
    used = 3 if version >= 6 else 2 if version >= 4 else 1
    attributes = struct.pack(f"<{used}Q", *words[:used])
    rules = _libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        return False
    try:
        devices = rights & (WRITE_FILE | TRUNCATE)
        for folder in writable:
            _allow(rules, folder, rights)
        for folder, allowed in (
            ("/dev", devices),
            ("/dev/shm", rights),
            (f"/proc/{os.getpid()}", devices),
        ):
            _allow(rules, folder, allowed)
        return _libc.syscall(LANDLOCK_RESTRICT, rules, 0) == 0
    finally:
        os.close(rules)


def _allow(rules: int, folder: str, rights: int) -> None:
    try:
        fd = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    beneath = struct.pack("<Qi", rights, fd)
    _libc.syscall(LANDLOCK_ADD, rules, LANDLOCK_PATH_BENEATH, beneath, 0)
    os.close(fd)


def _seccomp(protected: tuple[int, ...]) -> bool:
    arch = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(platform.machine())
    if arch is None:
        return False
    program = _filter(arch, platform.machine(), protected)
    code = ctypes.create_string_buffer(program)
    fprog = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    return _libc.prctl(PR_SET_SECCOMP, 2, fprog, 0, 0) == 0


def _filter(arch: int, machine: str, protected: tuple[int, ...]) -> bytes:
    """A classic BPF program: EPERM for what is refused, everything else allowed."""
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    allow, refuse = 0x7FFF0000, 0x00050001  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM
    number, architecture, first_argument = 0, 4, 16

    def op(code, value, yes=0, no=0):
        return struct.pack("<HBBI", code, yes, no, value & 0xFFFFFFFF)

    def refused_if(values):
        """After a load: refuse when the word is one of `values`."""
        return b"".join(op(equal, v, 0, 1) + op(give, refuse) for v in values)

    code = op(load, architecture) + op(equal, arch, 1, 0) + op(give, refuse)
    code += op(load, number) + op(at_least, 0x40000000, 0, 1) + op(give, refuse)
    code += refused_if(REFUSED[machine])
    targets = [-1, *protected, *(-pid for pid in protected)]
    by_argument = [(call, targets) for call in TAKES_PID[machine]]
    by_argument.append((SOCKET[machine], [2, 10]))  # AF_INET, AF_INET6
    for call, values in by_argument:
        body = op(load, first_argument) + refused_if(values) + op(give, allow)
        code += op(load, number) + op(equal, call, 0, len(body) // 8) + body
    return code + op(give, allow)
