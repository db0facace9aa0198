import builtins
import sys
from types import SimpleNamespace

import pytest

from harness import device
from harness.device import Snapshot
from harness.records import Failed

COOL = Snapshot(1980, 3201, 300.0, 700.0, 40)


class FakeNVML(SimpleNamespace):
    """The part of pynvml that device.py uses, of one card."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __getattr__(self, name):
        if name.startswith("nvmlDeviceSet"):
            raise AssertionError(f"{name}: nothing on the card may be changed")
        answers = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1500, 2: 3201}[kind],
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x4 | 0x1,
            "nvmlDeviceGetPowerUsage": lambda handle: 690_000,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetTemperature": lambda handle, sensor: 71,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
                SimpleNamespace(pid=1),
                SimpleNamespace(pid=2),
            ],
            "nvmlSystemGetDriverVersion": lambda: "580.1",
        }
        return answers[name]


def test_a_snapshot_names_what_slows_the_card(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNVML())
    card = device.Card("1234")
    assert card._handle == "GPU-1234"
    assert card.snapshot() == Snapshot(1500, 3201, 690.0, 700.0, 71, ("power cap",))
    assert card.strangers([1]) == 1
    assert card.driver() == "580.1"


def test_without_the_package_the_reason_is_a_sentence(monkeypatch):
    real = builtins.__import__

    def missing(name, *arguments, **keywords):
        if name == "pynvml":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert device.watch() == (None, device.MISSING)
    with pytest.raises(Failed, match="pip install nvidia-ml-py"):
        device.Card()


def test_without_a_driver_the_reason_is_nvmls(monkeypatch):
    nvml = FakeNVML()
    error = nvml.NVMLError("Driver Not Loaded")

    def fail():
        raise error

    nvml.nvmlInit = fail
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    watch, why = device.watch()
    assert watch is None
    assert "Driver Not Loaded" in why


def test_steady_clocks_give_no_warning():
    assert device.warnings([COOL, COOL]) == ()
    assert device.warnings([]) == ()


def test_moved_clocks_and_throttling_are_sentences():
    slow = Snapshot(1500, 3201, 699.0, 700.0, 80, ("power cap",))
    first, second = device.warnings([COOL, slow, slow])
    assert first == "SM clock moved from 1500 to 1980 MHz while timing"
    assert second == "the card was slowed by its power cap in 2 of 3 looks"


@pytest.mark.gpu
def test_a_watch_on_the_real_card():
    pytest.importorskip("pynvml")
    import torch

    watch, why = device.watch(str(torch.cuda.get_device_properties(0).uuid))
    assert why == ""
    watch.look()
    assert watch._seen[0].sm_mhz > 0
    assert watch._seen[0].power_limit_w > 50
