import ctypes

import pytest

from harness import activity
from harness.activity import Activity


def test_overlaps_count_once_and_gaps_not_at_all():
    records = [
        Activity(10, 1000, 3000),
        Activity(10, 2000, 2500),
        Activity(1, 2900, 4000),
        Activity(2, 9000, 10000),
    ]
    assert activity.busy_us(records) == 4.0
    assert activity.busy_us([]) == 0.0


def record(kind, start, end, name=None):
    """Bytes laid out as in cupti_activity.h."""
    memory = (ctypes.c_uint8 * 160)()
    base = ctypes.addressof(memory)
    ctypes.c_uint32.from_address(base).value = kind
    ctypes.c_uint64.from_address(base + 16).value = start
    ctypes.c_uint64.from_address(base + 24).value = end
    if name is not None:
        ctypes.c_char_p.from_address(base + 104).value = name
    return memory


@pytest.mark.parametrize(
    ("kind", "name"),
    [(activity.CONCURRENT_KERNEL, "k"), (activity.COPY, ""), (activity.FILL, "")],
)
def test_a_record_is_read_at_cuptis_offsets(kind, name):
    memory = record(kind, 5, 9, name.encode() if name else None)
    assert activity._parse(ctypes.addressof(memory)) == Activity(kind, 5, 9, name)


def test_other_kinds_are_left_out():
    memory = record(46, 5, 9)
    assert activity._parse(ctypes.addressof(memory)) is None
