"""Machine code: what is counted, and a real kernel's vector accesses."""

import subprocess
import sys

import pytest

from harness import plan, sass, toolchain_tools
from harness.records import Failed, KernelResources

TEXT = """
	code for sm_90
		Function : _Z4copyPK6float4PS_
        /*0000*/                   LDC R1, c[0x0][0x28] ;        /* 0x00000a00ff017b82 */
        /*0010*/               @P0 EXIT ;                        /* 0x000000000000094d */
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;  /* 0x0 */
        /*0030*/              @!P1 LDG.E.U16 R4, desc[UR4][R2.64] ;  /* 0x0 */
        /*0040*/                   STG.E desc[UR4][R2.64], R5 ;  /* 0x0 */
        /*0050*/                   LDS.64 R6, [R3] ;             /* 0x0 */
"""


def test_accesses_by_width():
    used = KernelResources("copy", "sm_90", 12, 64, 0, 0, 0)
    (kernel,) = sass.parse(TEXT, (used,))
    counts = {(a.kind, a.bits): a.count for a in kernel.accesses}
    assert counts[("global load", 128)] == 1
    assert counts[("global load", 16)] == 1
    assert counts[("global store", 32)] == 1
    assert counts[("shared load", 64)] == 1
    assert len(kernel.code) == 6
    first = next(sass.digest(kernel))
    assert "12 registers, 64 B shared, 0 B spilled, 6 instructions" in first


def test_a_missing_tool_is_one_sentence(monkeypatch):
    monkeypatch.setattr(toolchain_tools, "_folders", lambda: iter(()))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Failed, match="cuobjdump was not found; it comes with"):
        toolchain_tools.find("cuobjdump")


@pytest.mark.slow
def test_a_real_kernel():
    done = subprocess.run(
        [sys.executable, plan.ROOT / "run_eval.py", "sass", "pack_tokens", "--kernel", "uint4"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "128-bit global load" in done.stdout
    assert "128-bit global store" in done.stdout
    assert " registers, " in done.stdout
    assert "EXIT" in done.stdout
