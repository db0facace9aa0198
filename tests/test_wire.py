"""Frames and descriptors: what arrives is checked before it is used."""

import os
import socket
import struct

import pytest
import torch

from harness import wire, wire_memory


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    channels = wire.Channel(left), wire.Channel(right)
    yield channels
    for channel in channels:
        channel.close()


def test_a_message_arrives_as_it_was_sent(pair):
    pair[0].send({"a": [1, 2.5, None, "ü"], "nan": float("inf")})
    assert pair[1].receive(1)[0] == {"a": [1, 2.5, None, "ü"], "nan": float("inf")}


def test_descriptors_ride_along(pair):
    reader, writer = os.pipe()
    pair[0].send({"here": 1}, (writer,))
    message, (received,) = pair[1].receive(1)
    os.write(received, b"x")
    assert message == {"here": 1}
    assert os.read(reader, 1) == b"x"
    for fd in (reader, writer, received):
        os.close(fd)


def test_a_large_message_is_put_together(pair):
    import threading

    text = "x" * 3_000_000
    sender = threading.Thread(target=pair[0].send, args=({"text": text},))
    sender.start()
    assert pair[1].receive(5)[0]["text"] == text
    sender.join()


@pytest.mark.parametrize("frame", [b"not json", b"[1, 2]", b"\xff\xfe", b'"text"', b"[" * 5000])
def test_a_frame_that_is_no_object_is_refused(pair, frame):
    os.write(pair[0].fileno(), struct.pack("<I", len(frame)) + frame)
    with pytest.raises(wire.WireError):
        pair[1].receive(1)


def test_an_announced_size_beyond_the_limit_is_refused(pair):
    os.write(pair[0].fileno(), struct.pack("<I", 1 << 31))
    with pytest.raises(wire.WireError, match="at most"):
        pair[1].receive(1)


def test_silence_ends_in_time(pair):
    os.write(pair[0].fileno(), b"\x05")
    with pytest.raises(TimeoutError):
        pair[1].receive(0.05)


def test_the_other_side_gone(pair):
    pair[0].close()
    with pytest.raises(wire.Closed):
        pair[1].receive(1)


def rebuilt(values):
    packed = wire.pack(values)
    return wire.unpack(packed.tree, [i.clone().untyped_storage() for i in packed.storages])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4),
        torch.randn(4, 6).t(),
        torch.randn(4, 6)[:, 1::2],
        torch.randn(40)[3:].view(37, 1),
        torch.randn(1, 5).expand(4, 5),
        torch.empty(0, 7),
        torch.tensor(2.5),
        torch.randn(5).bfloat16(),
        torch.arange(6, dtype=torch.int64),
        torch.tensor([True, False]),
    ],
)
def test_a_tensor_keeps_values_and_layout(tensor):
    (copy,) = rebuilt([tensor])
    assert type(copy) is torch.Tensor
    assert copy.dtype == tensor.dtype
    assert copy.stride() == tensor.stride()
    assert torch.equal(copy, tensor)
    assert not copy._is_view()
    if tensor.numel():
        assert copy.storage_offset() == tensor.storage_offset()


def test_tensors_that_share_memory_still_do():
    whole = torch.arange(10.0)
    first, second = rebuilt([whole[:6], whole[4:]])
    second[0] = -1
    assert first[4] == -1


def test_plain_data_crosses_in_its_nesting():
    values = [1, 2.5, "a", None, True, (3, [4]), {"k": torch.float16}, torch.Size([2, 3])]
    assert rebuilt(values) == [1, 2.5, "a", None, True, (3, [4]), {"k": torch.float16}, (2, 3)]


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: 0, torch.randn(3).to_sparse()])
def test_nothing_else_crosses(value):
    with pytest.raises(wire.WireError):
        wire.pack([value])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"dtype": "float32", "shape": [-1], "stride": [1], "at": 0},
        {"dtype": "object", "shape": [1], "stride": [1], "at": 0},
        {"dtype": "float32", "shape": "x", "stride": [1], "at": 0},
        {"dtype": "float32", "shape": [1] * 100, "stride": [1], "at": 0},
    ],
)
def test_a_description_that_cannot_be_is_refused(body):
    with pytest.raises(wire.WireError):
        wire.leaf(body)


def test_a_mailbox_is_shared_and_cannot_be_shrunk():
    box = wire_memory.HostBox(1000)
    other = wire_memory.HostBox(1000, os.dup(box.fd))
    box.bytes.fill_(7)
    assert int(other.bytes.sum()) == 7000
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(box.fd, 10)
    other.close()
    box.close()
