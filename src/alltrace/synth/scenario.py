"""The inputs of a simulated run: layout, work, links, clocks, environment and faults, all plain frozen values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from alltrace.synth.kernels import VARIED_KERNELS
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from alltrace.synth.faults import Fault

LAYOUT_KINDS = ("data", "pipeline", "expert", "sharded")
"""How ranks may share the work; `alltrace.synth.layouts.LAYOUTS` has the program of each."""
RANK_SOURCES = ("environment", "file", "mpi")
_PAGE_SIZES = tuple(1 << power for power in range(9, 17))
SCHEMAS = ("3.7.2", "3.25.0")
_KINDS: dict[str, tuple[type, str]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "true or false"),
    "str": (str, "text"),
}
_LARGEST = 1e15
_BOUNDS = {
    "within_host_gb_per_s": (1e-3, _LARGEST),
    "between_hosts_gb_per_s": (1e-3, _LARGEST),
    "copy_gb_per_s": (1e-3, _LARGEST),
    "jitter": (0.0, 10.0),
    "host_jitter": (0.0, 10.0),
    "offset_ms": (0.0, 1e9),
    "stamp_error_ms": (0.0, 1e9),
    "outlier_ms": (0.0, 1e9),
    "start_spread_s": (1.0, 1e9),
    "drift_ppm": (0.0, 1e5),
    "gpu_metrics_hz": (0.0, 1e9),
}
"""Bounds of numbers for which 0 to `_LARGEST` will not do."""
STEP_NAMES = {"step": "step {}", "profiler": "ProfilerStep#{}", "iteration": "iteration {}", "none": ""}
"""How a step's range is named, by the name of the choice."""


@dataclass(frozen=True)
class Layout:
    kind: str = "data"  # one of `LAYOUT_KINDS`
    hosts: int = 2  # the number of hosts
    ranks_per_host: int = 8  # ranks of one host; ranks are numbered host by host, and each has its own device
    tensor_parallel: int = 1  # ranks of one host that share a layer; 1 for none. Only for `data`
    pipeline_stages: int = 4  # stages of a pipeline. Only for `pipeline`
    expert_parallel: int = 8  # number of neighbouring ranks with the experts of a layer. Only for `expert`

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    def host_of(self, rank: int) -> int:
        """The 0-based host of `rank`."""
        return rank // self.ranks_per_host

    def local_rank(self, rank: int) -> int:
        """The 0-based place of `rank` on its host."""
        return rank % self.ranks_per_host


@dataclass(frozen=True)
class Work:
    layers: int = 12  # layers of the model
    kernels_per_layer: int = 10  # kernels of a layer's forward pass; the backward pass has twice as many
    optimizer_kernels: int = 8
    kernel_ns: int = 60_000  # mean duration of a kernel
    jitter: float = 0.03  # standard deviation of the logarithm of a kernel's duration
    host_call_ns: int = 4_500  # mean duration of one CUDA API call
    # standard deviation of the logarithm of a call's duration; 0 for drawn evenly, a fifth around the mean
    host_jitter: float = 0.0
    host_gap_ns: int = 2_000  # host time between two calls; at least 1000, which leaves space for ranges around them
    extra_calls: int = 0  # additional API calls per launch that start nothing on the device
    kernels_per_range: int = 0  # launches in a range of the operator level; 0 for no such ranges
    data_ns: int = 300_000  # host time for the next batch of the data loader
    batch_bytes: int = 8 << 20  # bytes of the batch copied to the device
    gradient_bytes: int = 400_000_000
    buckets: int = 4  # all-reduces that the gradients are split into; at most `layers`
    # bytes that a rank shares at a layer's or stage's end: of a tensor parallel all-reduce, of a message between
    # stages, of all that an all-to-all sends
    activation_bytes: int = 8 << 20
    microbatches: int = 8  # microbatches of a pipeline in each step
    kernel_names: int = 0  # number of kernel names, up to 220, on three streams; 0 for a dozen names on one
    warmup_steps: int = 0  # the first steps that are slower: kernels take longer and memory is allocated
    warmup_factor: float = 1.6  # how much longer
    checkpoint_every: int = 0  # steps between checkpoints, which are copied to the host and written; 0 for never
    checkpoint_bytes: int = 200_000_000
    checkpoint_ns: int = 60_000_000  # host time to write it
    autograd_thread: bool = True  # the backward pass is launched from a second thread; not in a pipeline
    nvtx: bool = True  # ranges of the program are recorded


# Ends of one collective scatter by `scatter` times what was measured on real machines, or, where that is 0, by up to
# `end_jitter_ns`.
@dataclass(frozen=True)
class Links:
    """How fast collectives are; bandwidths in bytes per nanosecond, which is GB/s."""

    within_host_gb_per_s: float = 300.0
    between_hosts_gb_per_s: float = 100.0
    copy_gb_per_s: float = 25.0
    latency_ns: int = 15_000
    end_jitter_ns: int = 2_000
    scatter: float = 1.0


@dataclass(frozen=True)
class Clocks:
    """How wrong the clocks are. The first host's clock is true; the others are drawn from these bounds."""

    offset_ms: float = 500.0  # bound of a host's offset, drawn evenly from both sides
    drift_ppm: float = 20.0  # bound of a host's drift, likewise
    # standard deviation of the error of the UTC stamp in each report, independent for each rank
    stamp_error_ms: float = 2.0
    start_spread_s: float = 20.0  # profiling starts between 1 and this many seconds before the job, drawn for each rank
    outlier_share: float = 0.0  # the share of collectives' kernels with a wrong recorded end, drawn for each rank
    # bound of that error, drawn evenly from both sides; a kernel keeps a length of 1 microsecond at least
    outlier_ms: float = 10.0


@dataclass(frozen=True)
class Environment:
    schema: str = "3.25.0"  # version of the export schema, one of `SCHEMAS`
    # the source of the rank: launcher variables in the capture's environment, only the file name, or `MPI_RANKS`
    rank_source: str = "environment"
    visible_devices: bool = False  # `CUDA_VISIBLE_DEVICES` makes every rank's device 0
    shared_pids: bool = False  # containers: the same process numbers on every host
    unordered: bool = False  # rows come in no order, as newer exports have them
    page_bytes: int = 4096  # page size of SQLite files; nsys uses 4096
    secrets: bool = False  # made-up credentials are in the environment and in the captured output
    osrt: bool = True  # calls of the OS runtime are recorded
    gpu_metrics_hz: int = 0  # sampling rate of GPU metrics; 0 for none
    gpu_metrics_per_host: bool = True  # only the first rank of a host samples
    # the name of a step's range: `step` (`step 3`), `profiler` (`ProfilerStep#3`), `iteration` (`iteration 3`) or
    # `none` for no such range
    step_names: str = "step"
    # an all-to-all is a group of sends and receives, as before NCCL 2.28, and not one call
    grouped_all_to_all: bool = True
    operators: bool = False  # traces of the PyTorch profiler have operators with shapes, modules and frames
    payloads: bool = False  # the ranges of NCCL have payloads, which nsys exports only if it is asked to
    device_table: bool = False  # the newer schema has a table of the GPU that each CUDA device is; most exports lack it
    own_streams: bool = True  # each rank numbers its streams on its own
    # NCCL's kernels are named by the algorithm that suits the size, which in some communicators differs by rank
    own_kernels: bool = True
    # the share of events that is missing from each report, drawn for each event; nothing describes it
    dropped_share: float = 0.0


IDEAL: dict[str, Any] = {
    "payloads": True, "device_table": True, "own_streams": False, "own_kernels": False, "grouped_all_to_all": False,
    "scatter": 0.0,
}  # fmt: skip
"""A world that is kinder than any recording: all is named, and members of a collective end together."""

AS_RECORDED: dict[str, Any] = {
    f.name: f.default for part in (Links, Environment) for f in dataclasses.fields(part) if f.name in IDEAL
}
"""What profilers write by default, of machines as they were measured: the defaults."""


@dataclass(frozen=True)
class Scenario:
    name: str  # short name, also the beginning of the reports' names
    about: str  # one line for a person
    steps: int = 8  # training steps, numbered from 0
    seed: int = 1  # everything random follows from this number
    layout: Layout = field(default_factory=Layout)  # ranks and hosts
    work: Work = field(default_factory=Work)  # the work of a step
    links: Links = field(default_factory=Links)  # the network
    clocks: Clocks = field(default_factory=Clocks)  # the clocks' errors
    environment: Environment = field(default_factory=Environment)  # the look of the reports
    faults: tuple[Fault, ...] = ()  # what is wrong with the run

    def override(self, **changes: Any) -> Scenario:
        """This scenario with some values changed, checked."""
        # `**changes`: a field of the scenario or of one of its parts by its own name (`steps=3`, `hosts=1`,
        # `schema="3.7.2"`), or `ranks`, which keeps the hosts and changes the ranks per host, or `ideal`, which sets
        # the values of `IDEAL` or, if false, of `AS_RECORDED`, unless they are given. Faults move to ranks that exist.
        # New `faults` may be texts, see `alltrace.synth.faults.parse`. Returns a new, valid scenario. Raises
        # `UsageError`: there is no such field, or the values do not fit together.
        if "ideal" in changes:
            ideal = changes.pop("ideal")
            _check_kind_of("ideal", ideal, "bool")
            changes = {**(IDEAL if ideal else AS_RECORDED), **changes}
        if "ranks" in changes:
            hosts = _whole(changes.get("hosts", self.layout.hosts))
            ranks = _whole(changes.pop("ranks"))
            for name, value in (("hosts", hosts), ("ranks", ranks)):
                _check_kind_of(name, value, "int")
            if hosts < 1 or ranks % hosts:
                raise UsageError(
                    f"{ranks} ranks cannot be spread evenly over {hosts} hosts; give a multiple of the hosts"
                )
            changes["ranks_per_host"] = ranks // hosts
        parts = {name: getattr(self, name) for name in ("layout", "work", "links", "clocks", "environment")}
        homes = {f.name: part for part, value in parts.items() for f in dataclasses.fields(value)}
        own = {f.name for f in dataclasses.fields(self)}
        inner: dict[str, dict[str, Any]] = {}
        outer: dict[str, Any] = {}
        whole = {f.name for part in (self, *parts.values()) for f in dataclasses.fields(part) if f.type == "int"}
        for name, given in changes.items():
            value = _whole(given) if name in whole else given
            if name in own:
                outer[name] = value
            elif name in homes:
                inner.setdefault(homes[name], {})[name] = value
            else:
                raise UsageError.unknown("scenario value", name, [*own, *homes, "ranks", "ideal"])
        for part, value in parts.items():
            if not isinstance(outer.get(part, value), type(value)):
                raise UsageError(f"{part} must be a {type(value).__name__}; its values are set by their own names")
        for part, values in inner.items():
            outer[part] = dataclasses.replace(outer.get(part, parts[part]), **values)
        if "faults" in outer:
            if isinstance(outer["faults"], str) or not isinstance(outer["faults"], Iterable):
                raise UsageError("faults must be a list of faults; on the command line use --fault")
            outer["faults"] = tuple(_fault(fault) for fault in outer["faults"])
        changed = dataclasses.replace(self, **outer)
        if changed.layout.ranks > 0 and "faults" not in outer:
            changed = dataclasses.replace(
                changed, faults=tuple(fault.moved(changed.layout) for fault in changed.faults)
            )
        changed.check()
        return changed

    def check(self) -> None:
        """Nothing, if the values fit together."""
        # Raises `UsageError`: they do not; the message names the value, its bounds and the input.
        layout, work, environment = self.layout, self.work, self.environment
        for part in (self, layout, work, self.links, self.clocks, environment):
            _check_kinds(part)
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise UsageError(
                f"name must be letters, digits, '.', '_' and '-', because it becomes part of file names; {self.name!r}"
                " was given"
            )
        if layout.kind not in LAYOUT_KINDS:
            raise UsageError.unknown("layout", layout.kind, LAYOUT_KINDS)
        _at_least("hosts", layout.hosts, 1)
        _at_least("ranks_per_host", layout.ranks_per_host, 1)
        _at_least("steps", self.steps, 1)
        _at_least("seed", self.seed, 0)
        _at_least("layers", work.layers, 1)
        _at_least("microbatches", work.microbatches, 1)
        for name, share in (("outlier_share", self.clocks.outlier_share), ("dropped_share", environment.dropped_share)):
            if not 0 <= share <= 1:
                raise UsageError(f"{name} must be 0 to 1; {share} was given")
        _at_least("kernels_per_layer", work.kernels_per_layer, 1)
        _at_least("host_gap_ns", work.host_gap_ns, 1_000)
        _at_least("start_spread_s", self.clocks.start_spread_s, 1)
        if layout.tensor_parallel < 1 or layout.ranks_per_host % layout.tensor_parallel:
            raise UsageError(
                f"tensor_parallel must divide the {layout.ranks_per_host} ranks of a host; {layout.tensor_parallel} was"
                " given"
            )
        self._check_kind()
        if not 1 <= work.buckets <= work.layers:
            raise UsageError(f"buckets must be 1 to the {work.layers} layers; {work.buckets} was given")
        if environment.schema not in SCHEMAS:
            raise UsageError.unknown("schema", environment.schema, SCHEMAS)
        if environment.page_bytes not in _PAGE_SIZES:
            raise UsageError(f"page_bytes must be a power of two from 512 to 65536; {environment.page_bytes} was given")
        if environment.rank_source not in RANK_SOURCES:
            raise UsageError.unknown("rank source", environment.rank_source, RANK_SOURCES)
        if environment.step_names not in STEP_NAMES:
            raise UsageError.unknown("step name", environment.step_names, STEP_NAMES)
        for part in (layout, work, self.links, self.clocks, environment):
            _check_bounds(part)
        for fault in self.faults:
            fault.check(self)

    def _check_kind(self) -> None:
        layout, work = self.layout, self.work
        if layout.kind != "data" and layout.tensor_parallel > 1:
            raise UsageError(f"tensor_parallel is only for the layout 'data'; this one is {layout.kind!r}")
        if layout.kind == "pipeline":
            if layout.pipeline_stages < 2 or layout.ranks % layout.pipeline_stages:
                raise UsageError(
                    f"pipeline_stages must be 2 or more and divide the {layout.ranks} ranks; {layout.pipeline_stages}"
                    " was given"
                )
            _at_least("layers", work.layers, layout.pipeline_stages)
        if layout.kind == "expert" and (layout.expert_parallel < 2 or layout.ranks % layout.expert_parallel):
            raise UsageError(
                f"expert_parallel must be 2 or more and divide the {layout.ranks} ranks; {layout.expert_parallel} was"
                " given"
            )
        if layout.kind == "sharded" and layout.ranks < 2:
            raise UsageError("the layout 'sharded' needs at least 2 ranks; 1 was given")
        if not 0 <= work.kernel_names <= VARIED_KERNELS:
            raise UsageError(f"kernel_names must be 0 to {VARIED_KERNELS}; {work.kernel_names} was given")


def _fault(fault: Fault | str) -> Fault:
    from alltrace.synth.faults import Fault
    from alltrace.synth.faults.parse import parse_fault

    if not isinstance(fault, (str, Fault)):
        raise UsageError(f"a fault must be a text or a Fault; {fault!r} was given")
    return parse_fault(fault) if isinstance(fault, str) else fault


def is_text(name: str) -> bool:
    return any(f.name == name and f.type == "str" for part in _PARTS for f in dataclasses.fields(part))


_PARTS = (Scenario, Layout, Work, Links, Clocks, Environment)


def _whole(value: Any) -> Any:
    """The same number as an integer if it is whole, such as `8e8`."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_kinds(part: Any) -> None:
    for one in dataclasses.fields(part):
        _check_kind_of(one.name, getattr(part, one.name), str(one.type))


def _check_kind_of(name: str, value: Any, kind: str) -> None:
    if kind not in _KINDS:
        return
    accepted, expected = _KINDS[kind]
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind == "bool"):
        raise UsageError(f"{name} must be {expected}; {value!r} was given")


def _check_bounds(part: Any) -> None:
    for one in dataclasses.fields(part):
        if one.type in ("int", "float"):
            value, (least, most) = getattr(part, one.name), _BOUNDS.get(one.name, (0.0, _LARGEST))
            if not least <= value <= most:
                raise UsageError(f"{one.name} must be {least:g} to {most:g}; {value} was given")


def _at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise UsageError(f"{name} must be at least {least:g}; {value} was given")
