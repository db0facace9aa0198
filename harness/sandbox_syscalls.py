"""System call numbers that the sandbox refuses, by machine (Linux's asm/unistd tables)."""

# fmt: off
REFUSED = {
    "x86_64": (
        101, 310, 311, 312, 438, 434, 424,  # ptrace, process_vm_*, kcmp, pidfd_getfd/open/signal
        321, 298, 323, 425, 426, 427,       # bpf, perf_event_open, userfaultfd, io_uring_*
        165, 166, 155, 161, 272, 308,       # mount, umount2, pivot_root, chroot, unshare, setns
        428, 429, 430, 431, 432, 442,       # open_tree, move_mount, fs*, mount_setattr
        175, 313, 176, 246, 320, 169,       # modules, kexec, reboot
        248, 249, 250, 304, 167, 168, 170,  # keys, open_by_handle_at, swap, sethostname
    ),
    "aarch64": (
        117, 270, 271, 272, 438, 434, 424,
        280, 241, 282, 425, 426, 427,
        40, 39, 41, 51, 97, 268,
        428, 429, 430, 431, 432, 442,
        105, 273, 106, 104, 294, 142,
        217, 218, 219, 265, 224, 225, 161,
    ),
}
# kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, prlimit64, sched_setaffinity:
# the first argument is whom
TAKES_PID = {
    "x86_64": (62, 200, 234, 129, 297, 302, 203),
    "aarch64": (129, 130, 131, 138, 240, 261, 122),
}
SOCKET = {"x86_64": 41, "aarch64": 198}
# fmt: on
