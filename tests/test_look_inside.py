"""Digests of Nsight Compute's raw page and compute-sanitizer's output, from written samples."""

import subprocess
import sys

import pytest

from harness import bare_call, ncu, plan, sanitizer
from harness.records import Case, Failed, Plan

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
COLUMNS = [  # name, unit, value
    ("ID", "", "0"),
    ("Kernel Name", "", "void move<uint4>(const uint4 *, int)"),
    ("Block Size", "", "(256, 1, 1)"),
    ("Grid Size", "", "(1024, 1, 1)"),
    ("gpu__time_duration.sum", "us", "150.5"),
    ("dram__bytes.sum.per_second", "Tbyte/s", "3.6"),
    ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%", "75.2"),
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "20.1"),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", "61.0"),
    ("sm__maximum_warps_per_active_cycle_pct", "%", "75"),
    ("launch__occupancy_limit_registers", "block", "6"),
    ("launch__occupancy_limit_warps", "block", "8"),
    ("launch__occupancy_limit_shared_mem", "block", "32"),
    ("launch__registers_per_thread", "register/thread", "40"),
    (STALL.format("long_scoreboard"), "inst", "21.4"),
    (STALL.format("wait"), "inst", "1.5"),
    (STALL.format("barrier"), "inst", "3.25"),
    ("derived__memory_l2_theoretical_sectors_global_excessive", "sector", "1,000,000"),
    ("memory_l2_theoretical_sectors_global", "sector", "4000000"),
    ("launch__func_cache_config", "", "CachePreferNone"),
]
RAW = "==PROF== Connected to process 1\n" + "\n".join(
    ",".join(f'"{column[part]}"' for column in COLUMNS) for part in range(3)
)


def test_digest_of_the_raw_page():
    (one,) = ncu.parse(RAW)
    assert one.kernel == "move<uint4>"
    text = "\n".join(ncu.digest(one))
    assert "150.50 µs" in text
    assert "3600 GB/s, 75 % of the peak" in text
    assert "61 % of 75 % possible; limited by registers" in text
    assert "long_scoreboard 21.4, barrier 3.2" in text
    assert "32.00 of 128.00 MB" in text


def test_a_metric_that_was_not_collected_is_left_out():
    few = ncu.Profile("k", "1", "1", {})
    assert list(ncu.digest(few)) == ["k: grid 1, block 1"]


def test_no_page_is_no_profile():
    assert ncu.parse("==ERROR== ERR_NVGPUCTRPERM") == ()


SOLUTION = '''CUDA = r"""
#include <cuda_runtime.h>
__global__ void k(float* x) {
  x[threadIdx.x + 4096] = 1;
}
"""
'''
GENERATED = ["#include <cuda.h>", *SOLUTION.splitlines()[1:-1]]
INVALID = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at k(float *)+0x70 in /build/cuda.cu:4
=========     by thread ({thread},0,0) in block (0,0,0)
=========     Address 0x7f00 is out of bounds
========="""
MEMCHECK = (
    "\n".join(INVALID.format(thread=i) for i in range(3)) + "\n========= ERROR SUMMARY: 3 errors"
)


def test_findings_are_counted_and_placed_at_the_users_line(write):
    path = write("s.py", SOLUTION)
    (finding,) = sanitizer.parse("memcheck", MEMCHECK)
    assert finding.count == 3
    assert finding.generated_lines == (4,)
    line = sanitizer.shown(finding, str(path), GENERATED)
    assert line == f"{path}:4: memcheck: Invalid __global__ write of size 4 bytes (3 times)"


def test_both_ends_of_a_race_are_placed():
    output = (
        "========= Error: Race reported between Write access at k(int*)+0x90 in cuda.cu:9\n"
        "=========     and Read access at k(int*)+0xb0 in cuda.cu:11 [8 hazards]\n"
        "=========\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
    )
    (finding,) = sanitizer.parse("racecheck", output)
    assert finding.generated_lines == (9, 11)
    assert finding.message == "Race reported between Write access"


def test_a_clean_run_has_no_findings():
    assert sanitizer.parse("memcheck", "========= ERROR SUMMARY: 0 errors") == ()


def test_a_call_that_fails_by_itself_is_told_with_its_last_words(tmp_path, write):
    solution = write("s.py", "raise ValueError('broken here')")
    one = Plan("toy", str(solution), str(solution), (Case("a"),), "cuda:0")
    with pytest.raises(Failed) as caught:
        bare_call.prepare(one, tmp_path)
    assert "fails by itself" in caught.value.failure.message
    assert caught.value.failure.details


@pytest.mark.parametrize("command", ["profile", "sanitize"])
def test_what_is_missing_is_said_in_one_sentence(command):
    done = subprocess.run(
        [sys.executable, plan.ROOT / "run_eval.py", command, "multihot_to_indices"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 3
    assert "a CUDA device is needed" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
