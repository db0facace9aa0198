"""Where a candidate's inputs live: private allocations between guard bands, at fresh addresses."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

from harness import wire, wire_memory

GUARD = 4096  # bytes on each side
SHIFTS = 128  # of 512 bytes: no two allocations of a recycled block start alike
PATTERN = 0xA5
POISON = 0xFF  # NaN in every float format, -1 in every signed integer


@dataclass
class Guarded:
    """One storage image: `data` lies inside `block`, everything around it is PATTERN."""

    block: torch.Tensor
    start: int
    nbytes: int
    data: torch.Tensor = field(init=False)

    def __post_init__(self):
        pointer = self.block.data_ptr() + self.start
        if self.block.device.type == "cuda":
            self.data = wire_memory.device_bytes(pointer, self.nbytes, self.block.device)
        else:
            self.data = wire_memory.host_bytes(pointer, self.nbytes)

    def guard(self) -> None:
        self.block[: self.start].fill_(PATTERN)
        self.block[self.start + self.nbytes :].fill_(PATTERN)

    def broken(self) -> str:
        """Where something was written outside, in bytes from the data; "" for nowhere."""
        before = (self.block[: self.start] != PATTERN).nonzero()
        after = (self.block[self.start + self.nbytes :] != PATTERN).nonzero()
        if before.numel():
            return f"{self.start - int(before[-1])} bytes before its start"
        if after.numel():
            return f"{int(after[0]) + 1} bytes past its end"
        return ""

    def contains(self, pointer: int, nbytes: int) -> bool:
        mine = self.block.data_ptr() + self.start
        return nbytes > 0 and pointer < mine + self.nbytes and mine < pointer + nbytes


def allocate(nbytes: int, device: torch.device) -> Guarded:
    shift = random.randrange(SHIFTS) * wire.ALIGN
    room = 2 * GUARD + SHIFTS * wire.ALIGN + wire.aligned(nbytes)
    block = torch.empty(room, dtype=torch.uint8, device=device)
    skew = -block.data_ptr() % wire.ALIGN
    made = Guarded(block, GUARD + shift + skew - (wire.ALIGN if skew else 0), nbytes)
    made.guard()
    return made


class Inputs:
    """The arguments of one call, rebuilt from the inbox. `storages` are private and guarded."""

    def __init__(self, message: dict, device: torch.device):
        self.tree = message["tree"]
        self.slots = [wire.Slot(int(at), int(nbytes)) for at, nbytes in message["slots"]]
        self.blocks = [allocate(slot.nbytes, device) for slot in self.slots]
        storages = [block.data.untyped_storage() for block in self.blocks]
        self.values = wire.unpack(self.tree, storages)

    @property
    def nbytes(self) -> int:
        return sum(slot.nbytes for slot in self.slots)

    def fits(self, message: dict) -> bool:
        """Whether another call's arguments may be written into these same storages."""
        slots = [wire.Slot(int(at), int(nbytes)) for at, nbytes in message["slots"]]
        return message["tree"] == self.tree and slots == self.slots

    def fill(self, inbox: torch.Tensor) -> None:
        """Copy through the raw bytes: the tensors' version counters do not move."""
        for slot, block in zip(self.slots, self.blocks, strict=True):
            block.data.copy_(inbox[slot.at : slot.at + slot.nbytes], non_blocking=True)

    def give_back(self, inbox: torch.Tensor) -> None:
        """Copy what the call left of its inputs to where they came from, for the judge to see."""
        for slot, block in zip(self.slots, self.blocks, strict=True):
            inbox[slot.at : slot.at + slot.nbytes].copy_(block.data, non_blocking=True)

    def broken_guards(self) -> list[str]:
        found = []
        for index, block in enumerate(self.blocks):
            where = block.broken()
            if where:
                found.append(f"input storage {index}: {where}")
                block.guard()
        return found

    def owner(self, tensor: torch.Tensor) -> list[int]:
        """Which input storages `tensor`'s memory lies in."""
        pointer, nbytes = extent(tensor)
        return [i for i, block in enumerate(self.blocks) if block.contains(pointer, nbytes)]


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Address of a tensor's first element and bytes to the end of its last one."""
    offset = tensor.storage_offset() * tensor.element_size()
    return tensor.data_ptr(), max(0, wire.span(tensor) - offset)


def poison(sizes: list[int], device: torch.device) -> None:
    """Overwrite the allocator's free blocks of these sizes, so that torch.empty holds no answer.

    On the CPU the C library does it (MALLOC_PERTURB_).
    """
    if device.type != "cuda":
        return
    for nbytes in {size for size in sizes if size}:
        held, reserved = [], torch.cuda.memory_reserved(device)
        for _ in range(8):
            if held and torch.cuda.memory_reserved(device) > reserved:
                break
            held.append(torch.full((nbytes,), POISON, dtype=torch.uint8, device=device))
        del held
