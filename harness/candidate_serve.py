"""Answers the judge's requests, one at a time: load, build, call, time, hand back."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

import torch

from harness import candidate_memory, candidate_model, candidate_watch, wire, wire_memory
from harness.candidate_call import Call
from harness.candidate_launches import LastLaunch
from harness.candidate_memory import Inputs
from harness.candidate_result import Result
from harness.candidate_time import Stopwatch

WAKE_BYTES = 64 << 20  # larger calls take so long that a cold host does not show


class Server:
    """State of one candidate process. Every request gets one answer that repeats its id."""

    def __init__(self, channel: wire.Channel, role: str, device: str):
        self.channel, self.role, self.device = channel, role, torch.device(device)
        self.cuda = wire_memory.CudaRuntime() if self.device.type == "cuda" else None
        if self.cuda:
            torch.cuda.set_device(self.device)
        self.inbox = self.outbox = None
        self.path = ""
        self.kind: type | None = None
        self.models: dict[str, torch.nn.Module] = {}
        self.call: Call | None = None
        self.held: Result | None = None
        self.captured: Call | None = None
        self.queue: list[Call] = []
        self.launches: LastLaunch | None = None
        self.watch = Stopwatch(device)
        self.flags = candidate_watch.snapshot()
        self.handlers: dict[str, Callable[[dict, list[int]], dict]] = {
            "boxes": self._boxes,
            "unbox": self._unbox,
            "load": self._load,
            "model": self._model,
            "weights": self._weights,
            "call": self._call,
            "held": self._held,
            "time": self._time,
            "batch": self._batch,
            "ping": lambda message, fds: {},
        }

    def announce(self, in_force: tuple[str, ...]) -> None:
        self.channel.send({"ready": True, "sandbox": list(in_force), "pid": os.getpid()})

    def serve(self) -> int:
        while True:
            try:
                message, fds = self.channel.receive()
            except wire.Closed:
                return 0
            if message["do"] == "quit":
                return 0
            try:
                answer = self.handlers[message["do"]](message, fds)
            except BaseException as error:  # sys.exit() and KeyboardInterrupt are answers too
                answer = {"error": candidate_model.describe(error, self.path)}
                if self.launches and self.launches.kernel:
                    answer["error"]["kernel"] = self.launches.kernel[:300]
            answer["id"] = message["id"]
            with contextlib.suppress(wire.Closed):
                self.channel.send(answer)

    def _boxes(self, message: dict, fds: list[int]) -> dict:
        """Map the mailboxes that the judge made."""
        self._unbox(message, [])
        fds = list(fds)
        made = []
        for told in (message["inbox"], message["outbox"]):
            if told["kind"] == "ipc":
                handle = bytes.fromhex(told["handle"])
                made.append(wire_memory.DeviceBox(told["nbytes"], self.cuda, self.device, handle))
            else:
                made.append(wire_memory.HostBox(told["nbytes"], fds.pop(0), self.cuda))
        self.inbox, self.outbox = made
        return {}

    def _unbox(self, message: dict, fds: list[int]) -> dict:
        """Let go of the mailboxes before the judge frees them."""
        for box in (self.inbox, self.outbox):
            if box is not None:
                box.close()
        self.inbox = self.outbox = None
        return {}

    def _load(self, message: dict, fds: list[int]) -> dict:
        self.path = message["path"]
        self.watch.prepare()
        if self.cuda and os.environ.get("STEELYARD_NAME_KERNELS"):
            with contextlib.suppress(OSError):
                self.launches = LastLaunch()
        candidate_model.prepare(self.role, str(self.device))
        self.flags = candidate_watch.snapshot()
        self.kind = candidate_model.load(
            self.path, self.role, message.get("entry", "ModelNew"), message.get("beside", "")
        )
        return {"changes": self._changes()}

    def _model(self, message: dict, fds: list[int]) -> dict:
        """Build an instance and, for one known by name, keep it; the compiled one wraps it."""
        arguments = Inputs(message, torch.device("cpu"))
        if self.inbox is not None:
            arguments.fill(self.inbox.bytes)
            self._settle()
        self.call = self.captured = None
        model = candidate_model.build(
            self.kind, arguments.values, message["seed"], str(self.device)
        )
        self.models = {"plain": model}
        self._settle()
        return {"state": candidate_model.state(model)}

    def _weights(self, message: dict, fds: list[int]) -> dict:
        values = Inputs(message, self.device)
        values.fill(self.inbox.bytes)
        candidate_model.assign(self.models["plain"], values.values)
        self._settle()
        return {}

    def _pick(self, name: str) -> Callable:
        if name == "compile" and name not in self.models:
            torch._dynamo.reset()  # or its recompile limit would make later cases eager
            self.models[name] = torch.compile(self.models["plain"])
        return self.models[name]

    def _call(self, message: dict, fds: list[int]) -> dict:
        """One call: inputs in, result and what became of the inputs out."""
        if message.get("hold"):
            self.held = self.call.result if self.call else None
        elif not message.get("reuse"):
            self.held = None
        call = self._arguments(message)
        earlier = self.held
        sizes = message.get("expect", [])
        threads = candidate_watch.threads()
        with self._stream(message.get("stream", False)):
            call.inputs.fill(self.inbox.bytes)
            candidate_memory.poison(sizes, self.device)
            call.run()
            leaves = call.result.write(self.outbox.bytes)
        self._settle()
        call.inputs.give_back(self.inbox.bytes)
        facts = call.result.facts(call.inputs, earlier)
        answer = {
            "result": call.result.tree,
            "leaves": [{**leaf, "facts": f} for leaf, f in zip(leaves, facts, strict=True)],
            "grads": call.gradients_at(self.outbox.bytes, leaves),
            "guards": call.inputs.broken_guards(),
            "threads": candidate_watch.threads() - threads,
            "changes": self._changes(),
            **_simt_report(),
        }
        self._settle()
        return answer

    def _arguments(self, message: dict) -> Call:
        """A fresh Call, or the last one's storages with the new contents to come."""
        model = self._pick(message.get("which", "plain"))
        old = self.call
        if message.get("reuse") and old is not None and old.inputs.fits(message):
            self.call = Call(model, old.inputs, message)
        else:
            self.call = Call(model, Inputs(message, self.device), message)
        return self.call

    def _stream(self, other: bool):
        """A stream of its own that is busy at first: work put elsewhere will run too early."""
        if not other or self.cuda is None:
            return contextlib.nullcontext()
        stream = torch.cuda.Stream(self.device)
        context = torch.cuda.stream(stream)
        with context:
            torch.cuda._sleep(20_000_000)  # about 10 ms
        return context

    def _held(self, message: dict, fds: list[int]) -> dict:
        """The result that was held across a later call, as it is now."""
        leaves = self.held.write(self.outbox.bytes) if self.held else []
        self._settle()
        return {"leaves": leaves}

    def _time(self, message: dict, fds: list[int]) -> dict:
        """One timed call; a replay writes its new inputs where the captured call reads them."""
        if message["how"] == "overhead":
            return {"overhead": self.watch.overhead()}
        replay = message["how"] == "replay"
        if replay and not (self.captured and self.captured.inputs.fits(message)):
            return {"why": "the layout of the inputs changes from call to call"}
        previous = self.call
        call = self.captured if replay else self._arguments(message)
        if message["how"] == "capture":
            self.captured = call
        call.inputs.fill(self.inbox.bytes)
        candidate_memory.poison(message.get("expect", []), self.device)
        self._settle()
        if message["how"] == "call" and previous is not None and previous.model is call.model:
            self._wake(previous)
        answer = self.watch.time(message["how"], call, self.outbox.bytes)
        self._settle()
        return answer

    def _wake(self, previous: Call) -> None:
        """Run the model once on inputs of the past: between samples the host's caches went cold."""
        if previous.inputs.nbytes <= WAKE_BYTES:
            previous.run()
            self._settle()

    def _batch(self, message: dict, fds: list[int]) -> dict:
        """Back-to-back calls over several inputs, started and stopped by the judge's own clock."""
        step = message["step"]
        if step == "put":
            index = message["index"]
            if index == len(self.queue):
                inputs = Inputs(message, self.device)
                self.queue.append(Call(self._pick("plain"), inputs, message))
            self.queue[index].inputs.fill(self.inbox.bytes)
            self._settle()
        elif step == "run":
            values = [call.forward() for call in self.queue]
            self._settle()
            for call, value in zip(self.queue, values, strict=True):
                call.result = Result(value)
        elif step == "take":
            call = self.queue[message["index"]]
            leaves = call.result.write(self.outbox.bytes)
            self._settle()
            return {
                "result": call.result.tree,
                "leaves": [{**leaf, "facts": {}} for leaf in leaves],
            }
        else:
            self.queue = []
        return {}

    def _settle(self) -> None:
        """Wait for all streams. Raises RuntimeError with the error of a launch nobody checked."""
        if self.cuda:
            error = self.cuda.synchronize()
            if error:
                raise RuntimeError(f"CUDA error: {error}")

    def _changes(self) -> list[str]:
        now = candidate_watch.snapshot()
        found = candidate_watch.changes(self.flags, now)
        self.flags = now
        return found


def _simt_report() -> dict:
    """Kernels that ran on the CPU execution since the last call, and what it found in them."""

    simt = sys.modules.get("harness.simt")
    if simt is None:
        return {"kernels": 0, "findings": []}
    found = [
        {"severity": f.severity, "kind": f.kind, "message": f.message, "line": f.line}
        for f in simt.findings()
    ]
    return {"kernels": simt.kernels_run(), "findings": found[:50]}
