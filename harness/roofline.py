"""The least time a device needs: work() over measured bandwidth and datasheet peaks.

Bandwidth is measured once for each GPU (by UUID) and kept in the cache folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from harness import cache
from harness.records import Bound, from_dict, to_dict

MEASURE_BYTES = 8 << 30  # read plus written by one copy: what stays in L2 is under 2 %
SAMPLES = 9


@dataclass(frozen=True)
class Peak:
    """Datasheet: memory GB/s, dense TFLOP/s of plain fp32 and of the matrix units, source."""

    memory_gbs: float
    fp32: float
    tf32: float
    half: float
    fp8: float | None
    source: str


HOPPER = "https://www.nvidia.com/en-us/data-center"
PEAKS = {  # the first name that the device's name contains counts; no sparsity in any figure
    "H200": Peak(4800, 67, 494.5, 989.5, 1979, f"{HOPPER}/h200/ (SXM)"),
    "H100 PCIe": Peak(2000, 51, 378, 756, 1513, f"{HOPPER}/h100/ (PCIe)"),
    "H100 NVL": Peak(3900, 60, 417.5, 835.5, 1671, f"{HOPPER}/h100/ (NVL)"),
    "H100": Peak(3350, 67, 494.5, 989.5, 1979, f"{HOPPER}/h100/ (SXM)"),
    "A100-SXM4-80GB": Peak(2039, 19.5, 156, 312, None, f"{HOPPER}/a100/ (SXM 80 GB)"),
    "A100 80GB PCIe": Peak(1935, 19.5, 156, 312, None, f"{HOPPER}/a100/ (PCIe 80 GB)"),
    "A100": Peak(1555, 19.5, 156, 312, None, f"{HOPPER}/a100/ (40 GB)"),
    "L40S": Peak(864, 91.6, 183, 362, 733, f"{HOPPER}/l40s/"),
    "L4": Peak(300, 30.3, 60, 121, 242.5, f"{HOPPER}/l4/"),
}
HALF = ("half", "float16", "fp16", "bfloat16", "bf16")


@dataclass(frozen=True)
class DeviceFacts:
    """Measured once: GB/s of copy (read + written), read and write; L2 bytes, memory bytes."""

    name: str
    uuid: str
    l2_bytes: int
    memory_bytes: int
    copy_gbs: float
    read_gbs: float
    write_gbs: float
    torch: str = ""

    @property
    def best_gbs(self) -> float:
        """The fastest of the three, so that the floor is one."""
        return max(self.copy_gbs, self.read_gbs, self.write_gbs)

    @property
    def peak(self) -> Peak | None:
        """Datasheet figures, None for a device that is not in the table."""
        return next((peak for name, peak in PEAKS.items() if name in self.name), None)


def bound(work: dict | None, facts: DeviceFacts | None) -> Bound | None:
    """The Bound of `work` = dict(bytes=, flops=, unit=); None without work or facts.

    `unit` names the unit that does the operations: "fp32" (default), "tf32", "bf16", "fp8".
    """
    if work is None or facts is None:
        return None
    size, flops = int(work.get("bytes", 0)), int(work.get("flops", 0))
    rate = _rate(facts.peak, work.get("unit", "fp32"))
    compute_us = flops / (rate * 1e6) if rate else 0.0
    memory_us = size / (facts.best_gbs * 1e3)
    peak_gbs = facts.peak.memory_gbs if facts.peak else facts.best_gbs
    return Bound(
        bytes=size,
        flops=flops,
        floor_us=max(memory_us, compute_us),
        datasheet_us=max(size / (peak_gbs * 1e3), compute_us),
        limiter="compute" if compute_us > memory_us else "memory",
        l2_resident=size <= facts.l2_bytes,
        least_us=max(max(size - facts.l2_bytes, 0) / (peak_gbs * 1e3), compute_us),
    )


def _rate(peak: Peak | None, unit: str) -> float | None:
    """TFLOP/s of a unit; None when the device or the figure is not in the table."""
    if peak is None:
        return None
    return getattr(peak, "half" if unit in HALF else unit, None)


def facts(device: str, folder: Path | None = None) -> DeviceFacts:
    """What is known of "cuda:N": from the cache, else measured now (about a second) and kept."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    uuid = str(properties.uuid)
    path = (folder or cache.root()) / "devices" / f"{uuid}.json"
    kept = _kept(path, uuid)
    return kept or _keep(path, measure(device))


def _kept(path: Path, uuid: str) -> DeviceFacts | None:
    """Facts of an earlier run; None when there are none, or they are another device's."""
    try:
        found = from_dict(DeviceFacts, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return found if found.uuid == uuid and found.copy_gbs > 0 else None


def _keep(path: Path, found: DeviceFacts) -> DeviceFacts:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(to_dict(found)), encoding="utf-8")
    part.replace(path)
    return found


def measure(device: str) -> DeviceFacts:
    """Measure copy, read and write bandwidth of "cuda:N" by graph replay, now.

    All by kernels: a graph's copy node is slower than they are.
    """
    import torch

    from harness.clock import Clock

    properties = torch.cuda.get_device_properties(device)
    clock = Clock(device)
    free, _ = torch.cuda.mem_get_info(device)
    half = min(MEASURE_BYTES, free // 2) // 2 // 4096 * 4096
    source = torch.ones(half // 4, dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    largest = torch.empty((), dtype=torch.int32, device=device)
    speeds = {
        "copy_gbs": _gbs(clock, lambda: torch.bitwise_not(source, out=target), 2 * half),
        "read_gbs": _gbs(clock, lambda: torch.amax(source, 0, out=largest), half),
        "write_gbs": _gbs(clock, lambda: target.fill_(7), half),
    }
    return DeviceFacts(
        name=properties.name,
        uuid=str(properties.uuid),
        l2_bytes=properties.L2_cache_size,
        memory_bytes=properties.total_memory,
        torch=torch.__version__,
        **speeds,
    )


def _gbs(clock, work, moved: int) -> float:
    """Median bandwidth of `work`, which moves `moved` bytes."""
    replay = clock.capture(work)
    if isinstance(replay, str):
        raise RuntimeError(f"bandwidth was not measured: {replay}")
    times = [clock.sample_replay(replay) for _ in range(SAMPLES)]
    return moved / (median(t for t in times if t is not None) * 1e3)


def describe(found: DeviceFacts) -> str:
    """One line: bandwidths measured, share of the datasheet's."""
    line = (
        f"{found.name}: copy {found.copy_gbs:.0f}, read {found.read_gbs:.0f}, "
        f"write {found.write_gbs:.0f} GB/s measured"
    )
    if found.peak is None:
        return f"{line}; not in the datasheet table"
    return f"{line}; datasheet {found.peak.memory_gbs:.0f} GB/s ({found.peak.source})"
