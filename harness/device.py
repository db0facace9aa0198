"""The card's state through NVML: clocks, power, temperature, throttle reasons. Read only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.records import Failed, Outcome

MISSING = (
    "nvidia-ml-py is not installed: clocks, power and throttling are not watched "
    "(pip install nvidia-ml-py)"
)
SLOWING = {  # NVML's clock event reasons that make a card slower than it could be
    0x0004: "power cap",
    0x0008: "hardware slowdown",
    0x0020: "software thermal slowdown",
    0x0040: "hardware thermal slowdown",
    0x0080: "power brake",
}
MOVED = 0.05  # a clock that differs by more than this share within a run is reported


@dataclass(frozen=True)
class Snapshot:
    """The card at one moment. MHz, watts, °C; `slowed`: reasons that hold its clocks down."""

    sm_mhz: int
    memory_mhz: int
    power_w: float
    power_limit_w: float
    temperature_c: int
    slowed: tuple[str, ...] = ()


class Card:
    """One GPU as NVML sees it. `uuid` as torch gives it, with or without the prefix "GPU-".

    Raises Failed(ENVIRONMENT) with a sentence when there is no nvidia-ml-py, driver or such card.
    """

    def __init__(self, uuid: str | None = None, index: int = 0):
        try:
            import pynvml
        except ImportError:
            raise Failed(Outcome.ENVIRONMENT, "device", MISSING) from None
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = (
                pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
                if uuid
                else pynvml.nvmlDeviceGetHandleByIndex(index)
            )
        except pynvml.NVMLError as error:
            message = f"NVML: {error}: clocks, power and throttling are not watched"
            raise Failed(Outcome.ENVIRONMENT, "device", message) from None

    def snapshot(self) -> Snapshot:
        nvml, handle = self._nvml, self._handle
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return Snapshot(
            sm_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            memory_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            power_limit_w=nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
            temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            slowed=tuple(text for bit, text in SLOWING.items() if reasons & bit),
        )

    def driver(self) -> str:
        """Version of the driver."""
        return _text(self._nvml.nvmlSystemGetDriverVersion())

    def strangers(self, mine: Sequence[int]) -> int:
        """Processes that compute on the card and are not among `mine` (process ids)."""
        running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return sum(process.pid not in mine for process in running)


class Watch:
    """Snapshots taken during one measurement, and what of them a reader must know."""

    def __init__(self, card: Card):
        self._card = card
        self._seen: list[Snapshot] = []

    def look(self) -> None:
        self._seen.append(self._card.snapshot())

    def warnings(self) -> tuple[str, ...]:
        return warnings(self._seen)


def watch(uuid: str | None = None, index: int = 0) -> tuple[Watch | None, str]:
    """A Watch and "", or None and the reason why the card is not watched."""
    try:
        return Watch(Card(uuid, index)), ""
    except Failed as failed:
        return None, failed.failure.message


def warnings(seen: Sequence[Snapshot]) -> tuple[str, ...]:
    """Sentences for clocks that moved and for reasons that slowed the card."""
    found = [
        f"{name} clock moved from {min(values)} to {max(values)} MHz while timing"
        for name, values in (
            ("SM", [s.sm_mhz for s in seen]),
            ("memory", [s.memory_mhz for s in seen]),
        )
        if values and max(values) - min(values) > MOVED * max(values)
    ]
    reasons = dict.fromkeys(reason for s in seen for reason in s.slowed)
    for reason in reasons:
        count = sum(reason in s.slowed for s in seen)
        found.append(f"the card was slowed by its {reason} in {count} of {len(seen)} looks")
    return tuple(found)


def _text(value) -> str:
    return value.decode() if isinstance(value, bytes) else value
