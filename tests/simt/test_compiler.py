"""What the host compiler refuses, and what nobody built before the solution was confined."""

import contextlib

import pytest

from harness.simt import BuildFailed, NeedsGPU, compiler

BROKEN = compiler.Part("int f() { return nowhere; }\n", compiler.Recipe(()))


@contextlib.contextmanager
def denied(path):
    raise PermissionError(13, "Permission denied", f"{path}.lock")
    yield


@pytest.mark.slow
def test_what_the_host_compiler_refused_takes_a_gpu_where_nothing_can_be_built(monkeypatch):
    with pytest.raises(BuildFailed, match="nowhere"):
        compiler.extension([BROKEN], [], "broken")
    monkeypatch.setattr(compiler, "_locked", denied)
    monkeypatch.setattr(compiler, "runtime_library", lambda: None)
    with pytest.raises(NeedsGPU, match=r"the host compiler refuses broken .*nowhere"):
        compiler.extension([BROKEN], [], "broken")


def test_what_was_not_built_ahead_says_so(monkeypatch):
    monkeypatch.setattr(compiler, "_locked", denied)
    monkeypatch.setattr(compiler, "runtime_library", lambda: None)
    with pytest.raises(BuildFailed, match="late was not built ahead: call load_inline when"):
        compiler.extension([BROKEN], ["-DLATE"], "late")
