"""The judge's end of one candidate process: requests, mailboxes, and what its failures mean."""

from __future__ import annotations

import secrets
import signal
from dataclasses import dataclass, field
from pathlib import Path

import torch

from harness import sandbox, wire, wire_memory
from harness.records import Failed, Failure, Outcome, from_dict

LEAST_BOX = 1 << 20  # bytes
START_S = 120.0  # importing torch on a busy machine


@dataclass
class Place:
    """Where candidates run: torch device, CUDA runtime of the judge, kind of mailbox.

    `ipc` turns False when the first candidate cannot open what the judge has exported.
    """

    device: torch.device
    cuda: wire_memory.CudaRuntime | None = None
    ipc: bool = False
    notes: list[str] = field(default_factory=list)

    def without_ipc(self, why: str) -> None:
        self.ipc = False
        self.notes.append(f"tensors go through pinned host memory: no CUDA IPC here ({why})")


def place(device: str) -> Place:
    """Find out how tensors can be shared on this machine."""
    where = torch.device(device)
    if where.type != "cuda":
        return Place(where)
    torch.cuda.set_device(where)
    cuda = wire_memory.CudaRuntime()
    found = Place(where, cuda, True)
    try:
        wire_memory.DeviceBox(1 << 21, cuda, where).close()
    except MemoryError as error:
        found.without_ipc(str(error))
    return found


@dataclass
class Remote:
    """One candidate process. Raises Failed with the stage it was in, whatever happens to it."""

    role: str
    path: str
    place: Place
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        self.name = Path(self.path).name
        self.inbox = self.outbox = None
        self.changes: list[str] = []
        self.alive = True
        self.child = sandbox.Child(self.role, str(self.place.device), self.extra)
        hello = self._receive("start", START_S)
        if not hello.get("ready"):
            raise self._refused("start", "its first frame is not the expected one")
        self.sandbox = tuple(str(s) for s in hello.get("sandbox", []))[:8]

    def request(self, stage: str, limit_s: float, fds: tuple[int, ...] = (), **fields) -> dict:
        """One question, one answer."""
        number = secrets.token_hex(8)
        try:
            self.child.channel.send({"id": number, **fields}, fds)
        except wire.Closed:
            raise self._gone(stage) from None
        answer = self._receive(stage, limit_s)
        if answer.get("id") != number:
            raise self._refused(stage, "a frame that answers no request came out of its channel")
        error = answer.get("error")
        if error is not None:
            raise self._failed(stage, error if isinstance(error, dict) else {})
        for change in answer.get("changes", []):
            if change not in self.changes and len(self.changes) < 20:
                self.changes.append(str(change)[:120])
        return answer

    def boxes(self, inbox: int, outbox: int) -> None:
        """Make sure that the mailboxes hold at least so many bytes."""
        if self.inbox and self.inbox.nbytes >= inbox and self.outbox.nbytes >= outbox:
            return
        if self.inbox:  # memory that the other side still maps must not be freed
            inbox = max(inbox, self.inbox.nbytes)
            outbox = max(outbox, self.outbox.nbytes)
            self.request("start", 60, do="unbox")
        self._close_boxes()
        try:
            self._share(inbox, outbox)
        except Failed as failed:
            if not (self.place.ipc and self.alive):
                raise
            self.place.without_ipc(failed.failure.message[:160])
            self._close_boxes()
            self._share(inbox, outbox)

    def _share(self, inbox: int, outbox: int) -> None:
        try:
            self.inbox, self.outbox = self._box(inbox), self._box(outbox)
        except (MemoryError, OSError) as error:
            raise Failed(
                Outcome.OUT_OF_MEMORY,
                "judge",
                f"the judge has no room for mailboxes of {inbox + outbox} bytes ({error}); "
                "not the solution's doing",
            ) from None
        pair = (self.inbox, self.outbox)
        fds = tuple(box.fd for box in pair if box.kind == "host")
        told = [box.describe() for box in pair]
        self.request("start", 60, fds, do="boxes", inbox=told[0], outbox=told[1])

    def post(self, packed: wire.Packed) -> dict:
        """Put arguments into the inbox; returns the fields that describe them."""
        for slot, image in zip(packed.slots, packed.storages, strict=True):
            self.inbox.bytes[slot.at : slot.at + slot.nbytes].copy_(image)
        self._settle()
        return {"tree": packed.tree, "slots": [[s.at, s.nbytes] for s in packed.slots]}

    def inbox_images(self, packed: wire.Packed) -> list[torch.Tensor]:
        """What the candidate left of the arguments, as copies."""
        return [self.inbox.bytes[s.at : s.at + s.nbytes].clone() for s in packed.slots]

    def collect(self, stage: str, leaves: object) -> list[tuple[wire.Leaf, torch.Tensor | None]]:
        """Tensors from the outbox as private copies; None for one that did not fit."""
        if not isinstance(leaves, list) or len(leaves) > 4096:
            raise self._refused(stage, "its answer has no list of tensors")
        self._settle()
        found = []
        for body in leaves:
            if body is None:
                found.append((None, None))
                continue
            try:
                leaf = wire.leaf(body)
            except wire.WireError as error:
                raise self._refused(stage, str(error)) from None
            found.append((leaf, self._copy(stage, leaf)))
        return found

    def kill(self) -> None:
        """End the process and its descendants and free the mailboxes."""
        if self.alive:
            self.alive = False
            self.child.kill()
            self._close_boxes()

    def printed(self) -> str:
        return self.child.output.text()

    def _box(self, nbytes: int):
        nbytes = wire.aligned(max(nbytes, LEAST_BOX))
        if self.place.ipc:
            return wire_memory.DeviceBox(nbytes, self.place.cuda, self.place.device)
        return wire_memory.HostBox(nbytes, None, self.place.cuda)

    def _close_boxes(self) -> None:
        for box in (self.inbox, self.outbox):
            if box is not None:
                box.close()
        self.inbox = self.outbox = None

    def _copy(self, stage: str, leaf: wire.Leaf) -> torch.Tensor | None:
        if leaf.at is None:
            return None
        if leaf.at < 0 or leaf.at % wire.ALIGN or leaf.at + leaf.nbytes > self.outbox.nbytes:
            raise self._refused(stage, "its answer points outside of the mailbox")
        data = self.outbox.bytes[leaf.at : leaf.at + leaf.nbytes].to(self.place.device, copy=True)
        contiguous = torch.empty(leaf.shape, device="meta").stride()
        layout = {"offset": 0, "shape": leaf.shape, "stride": contiguous}
        return wire.over_storage(data.untyped_storage(), wire.DTYPES[leaf.dtype], layout)

    def _settle(self) -> None:
        if self.place.cuda:
            error = self.place.cuda.synchronize()
            if error:
                raise Failed(Outcome.ENVIRONMENT, "judge", f"the judge's own CUDA fails: {error}")

    def _receive(self, stage: str, limit_s: float) -> dict:
        try:
            answer, fds = self.child.channel.receive(limit_s)
        except TimeoutError:
            self.kill()
            raise Failed(
                Outcome.TIMED_OUT,
                stage,
                f"{self.name}: no answer within {limit_s:.0f} s; it and all that it started "
                "were ended",
            ) from None
        except wire.Closed:
            raise self._gone(stage) from None
        except wire.WireError as error:
            raise self._refused(stage, str(error)) from None
        if fds:
            raise self._refused(stage, "it sent file descriptors")
        return answer

    def _gone(self, stage: str) -> Failed:
        """The process ended by itself: say how."""
        code = self.child.ended(5)
        printed = [line for line in self.printed().splitlines() if line.strip()]
        self.kill()
        how = f"ended with exit code {code}"
        if code is None:
            how = "closed its channel to the judge"
        elif code < 0:
            how = f"was ended by {_signal_name(-code)}"
            if -code == signal.SIGKILL:
                how += " (as the system does when memory runs out)"
        outcome = Outcome.DOES_NOT_LOAD if stage == "load" else Outcome.CRASHED
        if code == -signal.SIGKILL and stage not in ("start", "load"):
            outcome = Outcome.CRASHED
        return Failed(
            outcome,
            stage,
            f"{self.name}: the solution's process {how} during {stage}, before it had answered",
            tuple(printed[-5:]),
        )

    def _refused(self, stage: str, why: str) -> Failed:
        self.kill()
        return Failed(Outcome.REFUSED, stage, f"{self.name}: {why}")

    def _failed(self, stage: str, error: dict) -> Failed:
        """What an exception in the candidate means for the verdict."""
        kind, where = str(error.get("kind")), str(error.get("where", ""))
        if kind == "build" and error.get("failure"):
            failure = from_dict(Failure, error["failure"])
            return Failed(Outcome.DOES_NOT_BUILD, *_fields(failure))
        message = str(error.get("message", ""))
        first = message.strip().splitlines()[0] if message.strip() else ""
        text = f"{where or self.name}: {error.get('type')}: {first}"
        details = tuple(str(line) for line in error.get("trace", []))
        if error.get("kernel"):
            details = (f"in kernel {str(error['kernel'])[:300]}", *details)
        if kind == "oom":
            text = f"{where or self.name}: the solution ran out of memory: {first}"
        elif kind == "exit":
            text = f"{where or self.name}: the solution calls exit during {stage}"
        elif kind == "needs_gpu":
            text = f"{self.name}: {first}"
        at_load = Outcome.DOES_NOT_LOAD if stage in ("load", "model") else Outcome.CRASHED
        outcome = {
            "oom": Outcome.OUT_OF_MEMORY,
            "cuda": Outcome.CRASHED,
            "fault": Outcome.CRASHED,
            "needs_gpu": Outcome.NEEDS_GPU,
            "build": Outcome.DOES_NOT_BUILD,
            "environment": Outcome.ENVIRONMENT,
        }.get(kind, at_load)
        if kind == "cuda":
            self.kill()
        return Failed(outcome, f"{stage}:{kind}", text[:600], details)


def _fields(failure: Failure) -> tuple:
    return failure.stage, failure.message, failure.details, failure.log


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
