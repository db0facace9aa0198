"""What flows through one evaluation. Frozen, units in the names, None for "not measured"."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from dataclasses import dataclass, field


class Outcome(str, enum.Enum):
    """The verdict on one row. Exactly one holds."""

    CORRECT = "correct"
    WRONG = "wrong"
    FLAKY = "flaky"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    REFUSED = "refused"
    DOES_NOT_LOAD = "does not load"
    DOES_NOT_BUILD = "does not build"
    NEEDS_GPU = "needs a GPU"
    ENVIRONMENT = "environment"
    SKIPPED = "skipped"
    REFERENCE_FAILED = "reference failed"


@dataclass(frozen=True)
class Failure:
    """Not getting an answer: one sentence (where, got, want, what next) and its details."""

    outcome: Outcome
    stage: str
    message: str
    details: tuple[str, ...] = ()
    log: str | None = None


class Failed(Exception):
    """The one exception of the stages; carries a Failure."""

    def __init__(
        self,
        outcome: Outcome,
        stage: str,
        message: str,
        details: tuple[str, ...] = (),
        log: str | None = None,
    ):
        super().__init__(message)
        self.failure = Failure(outcome, stage, message, tuple(details), log)


@dataclass(frozen=True)
class Case:
    """One set of input sizes and data shape: keyword arguments of get_inputs."""

    name: str
    sizes: dict[str, int | float | str] = field(default_factory=dict)
    backward: bool = False

    @property
    def label(self) -> str:
        return f"{self.name} backward" if self.backward else self.name


@dataclass(frozen=True)
class Tolerance:
    """An element passes when |got - want| <= atol + rtol * |want|; (0, 0) is exact.

    scaled: atol is in units of each output's root mean square.
    """

    rtol: float
    atol: float
    source: str = ""
    scaled: bool = False


@dataclass(frozen=True)
class KernelResources:
    """What ptxas said of one __global__ function for one architecture; bytes except registers."""

    kernel: str
    arch: str
    registers: int
    shared_bytes: int
    local_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int

    @property
    def spills(self) -> bool:
        return self.spill_store_bytes + self.spill_load_bytes > 0


@dataclass(frozen=True)
class Build:
    """One solution compiled: for the GPU (nvcc), for the CPU execution (simt), or both."""

    solution: str
    seconds: float
    cached: bool
    kernels: tuple[KernelResources, ...] = ()
    log: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """All trials of one case compared. `worst` is max |got-want|/(atol+rtol|want|); <= 1 passes.

    worst_rel: max |got-want|/|want|. mismatch: what a wrong result is wrong in, where it is one
    of dtype, shape and values.
    """

    ok: bool
    trials: int
    worst: float
    worst_abs: float
    message: str = ""
    reference_worst: float | None = None
    notes: tuple[str, ...] = ()
    worst_rel: float | None = None
    mismatch: str = ""


@dataclass(frozen=True)
class Stat:
    """A median in microseconds with its confidence interval, spread (IQR / median) and count."""

    median_us: float
    low_us: float
    high_us: float
    spread: float
    count: int


GRAPH_REPLAY = "graph replay"
ACTIVITY_RECORDS = "activity records"


@dataclass(frozen=True)
class Raw:
    """One whole call, microseconds. `call_us`: until the device was idle; `host_us`: until it
    returned; `late_us`: longest device work seen after the call had ended (0 for an honest one);
    `threads`: operating system threads it left behind."""

    call_us: float
    host_us: float
    late_us: float = 0.0
    threads: int = 0


@dataclass(frozen=True)
class Overhead:
    """What an empty kernel costs: whole call, host share, by graph replay (net); two events alone.

    Graph replay times are stated net: the time two neighbouring events take alone is subtracted.
    """

    call_us: float
    host_us: float
    replay_us: float | None = None
    events_us: float | None = None


@dataclass(frozen=True)
class Timing:
    """One contestant's times for one case; `who`: solution, eager, compile, control, peer:NAME."""

    who: str
    call: Stat | None = None
    device: Stat | None = None
    host: Stat | None = None
    device_method: str = ""
    not_timed: str = ""


@dataclass(frozen=True)
class Ratio:
    """Speed-up of the solution against one rival, > 1 when the solution is faster."""

    rival: str
    median: float
    low: float
    high: float
    verdict: str  # faster | same | slower | cannot tell
    basis: str = "call"  # call | device: which of the two times is compared


@dataclass(frozen=True)
class Bound:
    """The least time the device needs: bytes over measured bandwidth, operations over peak."""

    bytes: int
    flops: int
    floor_us: float
    datasheet_us: float
    limiter: str  # memory | compute
    l2_resident: bool = False
    least_us: float = 0.0  # nothing is faster: datasheet peak, an L2 of traffic left out


@dataclass(frozen=True)
class Speed:
    """All contestants of one case, timed interleaved under the same conditions."""

    solution: Timing
    rivals: tuple[Timing, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    bound: Bound | None = None
    noise: float | None = None  # half-width of the A/A ratio's interval, 0.02 = 2 %
    launch_us: float | None = None
    launch_bound: bool = False
    warnings: tuple[str, ...] = ()
    call_ratios: tuple[Ratio, ...] = ()  # whole calls, where `ratios` compares device times
    control: Timing | None = None  # the solution against itself, gives `noise`

    @property
    def of_floor(self) -> float | None:
        """Floor over the solution's device time: 1.0 is at the limit."""
        stat = self.solution.device or self.solution.call
        if self.bound is None or stat is None or not stat.median_us > 0:
            return None
        return self.bound.floor_us / stat.median_us


@dataclass(frozen=True)
class CaseReport:
    """One row of the table."""

    case: Case
    check: Check | None = None
    speed: Speed | None = None
    failure: Failure | None = None
    not_timed: str = ""
    labels: tuple[str, ...] = ()  # observations such as "no kernel of yours ran"
    seconds: float = 0.0

    def __post_init__(self):
        if self.speed is not None and not (self.check and self.check.ok):
            raise ValueError(f"{self.case.label}: a speed needs a passed check")

    @property
    def outcome(self) -> Outcome:
        if self.failure is not None:
            return self.failure.outcome
        if self.check is None:
            return Outcome.SKIPPED
        return Outcome.CORRECT if self.check.ok else Outcome.WRONG


@dataclass(frozen=True)
class Environment:
    """Where a run happened, as far as it changes numbers."""

    device: str = "cpu"
    gpu: str = ""
    driver: str = ""
    torch: str = ""
    cuda: str = ""
    commit: str = ""
    python: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """One solution judged against one reference: one per solution file, whatever happens."""

    op: str
    reference: str
    solution: str
    environment: Environment = Environment()
    seed: int | None = None
    build: Build | None = None
    cases: tuple[CaseReport, ...] = ()
    failure: Failure | None = None
    stdout: str = ""  # what the candidate printed, bounded
    notes: tuple[str, ...] = ()
    started: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return (
            self.failure is None
            and bool(self.cases)
            and all(c.outcome is Outcome.CORRECT for c in self.cases)
        )


@dataclass(frozen=True)
class Plan:
    """What a judge process is asked to do: one solution against one reference."""

    op: str
    reference: str
    solution: str
    cases: tuple[Case, ...]
    device: str  # cpu | cuda:N
    left_out: tuple[str, ...] = ()  # names of cases that want a GPU, where there is none
    seed: int | None = None  # None: fresh and secret
    timing: bool = True
    rivals: tuple[str, ...] = ("eager", "compile")
    peers: tuple[str, ...] = ()  # paths of peers/<op>__<peer>.py
    time_limit_s: float = 300.0
    entry: str = "ModelNew"  # what the solution defines: this class, or a function of one argument
    beside: str = ""  # folder of modules that the problem puts beside a solution


def to_dict(record) -> dict:
    """A record as plain JSON data; NaN and infinities become strings."""
    return _plain(dataclasses.asdict(record))


def _plain(value):
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def from_dict(kind, data):
    """The inverse of to_dict, by the type annotations of `kind`; unknown keys are ignored."""
    if data is None:
        return None
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        known = [a for a in args if a is not type(None)]
        return from_dict(known[0], data) if len(known) == 1 else data
    if origin is tuple:
        return tuple(from_dict(args[0], item) for item in data)
    if origin is dict:
        return dict(data)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{k: from_dict(hints[k], v) for k, v in data.items() if k in hints})
    if kind is float:
        return float(data)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    return data
