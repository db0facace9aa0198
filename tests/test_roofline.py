import json

import pytest

from harness import roofline
from harness.records import to_dict
from harness.roofline import DeviceFacts

H200 = DeviceFacts("NVIDIA H200", "u-1", 60 << 20, 141 << 30, 4200.0, 4400.0, 4000.0)
UNKNOWN = DeviceFacts("Some Card", "u-2", 60 << 20, 141 << 30, 4200.0, 4400.0, 4000.0)


def test_floor_is_bytes_over_the_fastest_measured_bandwidth():
    found = roofline.bound(dict(bytes=4_400_000_000, flops=0), H200)
    assert found.floor_us == pytest.approx(1000.0)
    assert found.datasheet_us == pytest.approx(4.4e9 / 4.8e6)
    assert (found.limiter, found.l2_resident) == ("memory", False)
    assert found.least_us < found.datasheet_us < found.floor_us


def test_what_fits_l2_is_marked_and_has_no_impossible_time():
    found = roofline.bound(dict(bytes=1 << 20, flops=0), H200)
    assert found.l2_resident
    assert found.least_us == 0.0


@pytest.mark.parametrize(("unit", "rate"), [("fp32", 67), ("bf16", 989.5), ("fp8", 1979)])
def test_operations_over_the_peak_of_their_unit(unit, rate):
    found = roofline.bound(dict(bytes=1, flops=10**12, unit=unit), H200)
    assert found.floor_us == pytest.approx(1e12 / (rate * 1e6))
    assert found.limiter == "compute"


def test_a_card_that_is_not_in_the_table_has_a_measured_floor_only():
    found = roofline.bound(dict(bytes=4_400_000_000, flops=10**15), UNKNOWN)
    assert found.floor_us == found.datasheet_us == pytest.approx(1000.0)
    assert "not in the datasheet table" in roofline.describe(UNKNOWN)


def test_no_work_or_no_device_is_no_bound():
    assert roofline.bound(None, H200) is None
    assert roofline.bound(dict(bytes=1), None) is None


@pytest.mark.parametrize(
    ("name", "gbs"),
    [
        ("NVIDIA H200", 4800),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA H100 PCIe", 2000),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA A100 80GB PCIe", 1935),
        ("NVIDIA A100-SXM4-40GB", 1555),
        ("NVIDIA L40S", 864),
        ("NVIDIA L4", 300),
    ],
)
def test_names_that_cuda_gives_find_their_datasheet(name, gbs):
    assert DeviceFacts(name, "", 0, 0, 0, 0, 0).peak.memory_gbs == gbs


def test_facts_are_kept_and_read_back(tmp_path):
    path = tmp_path / "devices" / "u-1.json"
    assert roofline._keep(path, H200) == roofline._kept(path, "u-1") == H200


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}', json.dumps(to_dict(UNKNOWN))])
def test_a_broken_or_foreign_file_is_measured_again(tmp_path, text):
    path = tmp_path / "u-1.json"
    path.write_text(text)
    assert roofline._kept(path, "u-1") is None


@pytest.mark.gpu
def test_measured_bandwidth_is_near_the_datasheet(tmp_path):
    found = roofline.facts("cuda:0", tmp_path)
    assert found == roofline.facts("cuda:0", tmp_path)
    if found.peak is not None:
        for gbs in (found.copy_gbs, found.read_gbs, found.write_gbs):
            assert 0.7 < gbs / found.peak.memory_gbs < 1.03
