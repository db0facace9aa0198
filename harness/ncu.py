"""Nsight Compute on one call of a solution: its raw page, digested for a kernel's author.

Written against the documented CSV of `ncu --page raw`; not yet run on a GPU.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import bare_call, toolchain_tools
from harness.build_resources import short
from harness.records import Failed, Outcome, Plan

SECTOR = 32  # bytes
TO_BASE = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "threads per block",
    "launch__occupancy_limit_blocks": "blocks per multiprocessor",
    "launch__occupancy_limit_barriers": "barriers",
}
STALL = "smsp__average_warps_issue_stalled_"
STALL_END = "_per_issue_active.ratio"
DENIED = "ERR_NVGPUCTRPERM"


@dataclass(frozen=True)
class Profile:
    """One kernel launch. Metrics by ncu's names: seconds, bytes, per second, or plain numbers."""

    kernel: str
    grid: str
    block: str
    metrics: dict[str, float]

    def get(self, *names: str) -> float | None:
        """The first of these metrics that was collected."""
        return next((self.metrics[n] for n in names if n in self.metrics), None)

    @property
    def stalls(self) -> list[tuple[str, float]]:
        """Reasons and how many warps wait for each per issued instruction, most first."""
        found = [
            (name.removeprefix(STALL).removesuffix(STALL_END), value)
            for name, value in self.metrics.items()
            if name.startswith(STALL) and name.endswith(STALL_END) and "not_issued" not in name
        ]
        return sorted(found, key=lambda item: -item[1])

    @property
    def occupancy_limiter(self) -> str:
        limits = {LIMITS[n]: v for n, v in self.metrics.items() if n in LIMITS}
        least = min(limits.values(), default=None)
        return ", ".join(name for name, value in limits.items() if value == least)


def profile(one: Plan, report: Path) -> tuple[Profile, ...]:
    """Profile one call of the plan's case; the report file is kept. Raises Failed."""
    program = toolchain_tools.require("ncu", one.device)
    command = bare_call.prepare(one, report.parent)
    collect = [program, "--profile-from-start", "off", "--set", "full", "--import-source", "yes"]
    code, output = bare_call.run([*collect, "--force-overwrite", "-o", str(report), *command])
    if code or not report.exists():
        raise _failed(one, output)
    code, text = bare_call.run([program, "--import", str(report), "--csv", "--page", "raw"])
    found = parse(text) if code == 0 else ()
    if not found:
        raise _failed(one, text)
    return found


def parse(text: str) -> tuple[Profile, ...]:
    """Launches of the raw page: a row of names, a row of units, one row for each launch."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return ()
    names, units, *rows = csv.reader(io.StringIO("\n".join(lines[start:])))
    found = []
    for row in rows:
        if len(row) != len(names):
            continue
        cells = dict(zip(names, row, strict=True))
        metrics = {
            name: value
            for name, unit, cell in zip(names, units, row, strict=True)
            if "_" in name and " " not in name and (value := _number(cell, unit)) is not None
        }
        kernel = short(cells.get("Kernel Name", "?"))
        grid, block = cells.get("Grid Size", "?"), cells.get("Block Size", "?")
        found.append(Profile(kernel, grid, block, metrics))
    return tuple(found)


def digest(one: Profile) -> Iterator[str]:
    """What an author can act on; a metric that was not collected leaves its line out."""
    time = one.get("gpu__time_duration.sum")
    took = f", {time * 1e6:.2f} µs" if time is not None else ""
    yield f"{one.kernel}: grid {one.grid}, block {one.block}{took}"
    rate = one.get("dram__bytes.sum.per_second")
    share = one.get(
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    )
    if rate is not None and share is not None:
        yield f"  memory       {rate / 1e9:.0f} GB/s, {share:.0f} % of the peak"
    busy = one.get("sm__throughput.avg.pct_of_peak_sustained_elapsed")
    if busy is not None:
        yield f"  compute      {busy:.0f} % of the peak"
    held = one.get("sm__warps_active.avg.pct_of_peak_sustained_active")
    could = one.get("sm__maximum_warps_per_active_cycle_pct")
    if held is not None and could is not None:
        yield (
            f"  occupancy    {held:.0f} % of {could:.0f} % possible; limited by "
            f"{one.occupancy_limiter or 'nothing known'}"
        )
    registers = one.get("launch__registers_per_thread")
    if registers is not None:
        yield f"  registers    {registers:.0f} per thread"
    if one.stalls:
        top = ", ".join(f"{reason} {value:.1f}" for reason, value in one.stalls[:3])
        yield f"  stalls       {top} (warps waiting per issued instruction)"
    excess = one.get("derived__memory_l2_theoretical_sectors_global_excessive")
    whole = one.get("memory_l2_theoretical_sectors_global")
    if excess is not None:
        of = f" of {whole * SECTOR / 1e6:.2f}" if whole is not None else ""
        yield f"  uncoalesced  {excess * SECTOR / 1e6:.2f}{of} MB of global accesses"


def _number(cell: str, unit: str) -> float | None:
    """A cell in base units: seconds, bytes, per second; None where it is no number."""
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    if unit in ("second", "s", "msecond", "usecond", "nsecond", "ms", "us", "ns"):
        return value * (TO_BASE[unit[0]] if unit not in ("second", "s") else 1.0)
    if len(unit) > 1 and unit[1:].startswith(("byte", "B")) and unit[0] in TO_BASE:
        return value * TO_BASE[unit[0]]
    return value


def _failed(one: Plan, output: str) -> Failed:
    if DENIED in output:
        why = (
            "the driver keeps its counters from this user; run as root, or load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )
    elif "No kernels were profiled" in output:
        why = "the call launched no kernel"
    else:
        why = "ncu gives no report"
    last = tuple(line for line in output.strip().splitlines()[-5:] if line)
    return Failed(Outcome.ENVIRONMENT, "profile", f"{one.op}: {why}", last)
