"""The POP efficiencies of devices and hosts: how much of the time is useful, and what the rest is lost to.

Of the devices, `parallel_efficiency` (useful time of the devices' time) is the product of `load_balance`,
`communication_efficiency` and `orchestration_efficiency`. Of the hosts it is `mpi_parallel_efficiency` (itself
`load_balance` times `communication_efficiency`) times `offload_efficiency`; useful time is time outside of MPI and of
calls of the GPU runtime. Times are unions: streams of a device, threads of a rank and ranks that share a device count
once. What is useful and what is communication on a device differs between tools: `--convention` chooses, and a note
says which it was.

`--by rank` adds the rows of each rank (the tasks of POP, below the application) in the same region: a device that ranks
share is with the first of them. `instructions` and `instructions_per_cycle` are approximate, from the sampled issue
rate and clock, as `gpu-rates` explains; they are of the whole run or of the chosen `--steps`.

A region's time is from its first start to its last end on any rank. The region of a step on a device is the extent of
its work there; that of a range is its extent on the host over all instances of a rank; nested instances count once. A
range that was still open ends with the last of the rank's ranges. If records may be lost, the efficiencies of the
devices are null.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from alltrace.recipes.analysis.metric_samples import Executed, executed
from alltrace.recipes.analysis.nvtx_projection import close_ends
from alltrace.recipes.analysis.pop_efficiency import device_tree, host_tree, scalability
from alltrace.recipes.analysis.sampled import GPU_READS
from alltrace.recipes.analysis.unrecorded import unrecorded_of
from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts, alignment_of
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.arrays import is_one_of
from alltrace.trace.distinct import rows_by
from alltrace.trace.errors import UsageError
from alltrace.trace.intervals import Merged, difference, merge, overlap_ns, union
from alltrace.trace.kernel_rules import NOT_COMPUTE
from alltrace.trace.name_stems import stems

_FACTORS = tuple(
    "parallel_efficiency load_balance communication_efficiency orchestration_efficiency offload_efficiency".split()
)
_USEFUL, _MOVING, _MPI, _RUNTIME, _RANGE, _EXECUTED = range(6)
_STANDS_OUT = 0.01
_NO_CULPRIT = (
    "the culprit is the rank with the most useful time; `diagnose` and `stragglers` also find ranks that are late for"
    " other reasons"
)
_NOT_COUNTED = (
    "instructions are not known: no issue rate and clock of the devices were sampled, as `--gpu-metrics` of `capture"
    " exec` does"
)
_OF_THE_RUN = "instructions are only counted --per run; choose one step with --steps"
_CONVENTIONS = {
    "basic": "useful: compute kernels; communication: copies, fills and communication kernels; maxima over devices",
    "talp": (
        "useful: all kernels, including communication; communication: copies and fills; maxima over processes; "
        "a run lasts from its first event to its last"
    ),
    "extrae": "useful: all kernels, including communication; communication: copies without fills; maxima over devices",
}

COLUMNS: col.Columns = (
    col.text("side", "device or host"),
    col.whole("step", "number of the step; null for the run and for ranges"),
    col.text("range", "name of the ranges; null for the run and for steps"),
    col.rank("rank", "the rank; null for all together"),
    col.rank("count", "devices, or ranks on the host"),
    col.ns("span_ns", "the region's time"),
    col.ns("useful_ns", "useful time, summed over devices or ranks"),
    col.ns("communication_ns", "communication not hidden by useful work, or MPI, summed likewise"),
    col.ns("runtime_ns", "calls of the GPU runtime outside of MPI, summed over ranks; null for devices"),
    col.whole(
        "instructions",
        "approximate instructions executed by the warps of the devices; null if they were not sampled, and for hosts",
    ),
    col.real("instructions_per_cycle", "of each multiprocessor, 4 at most; null likewise", decimals=3),
    col.real("parallel_efficiency", "useful time as a share of the whole time, 0 to 1"),
    col.real(
        "load_balance", "mean divided by maximum useful time: below 1, time is lost by waiting for those with more work"
    ),
    col.rank("culprit", "the rank with the most useful time, if it leads by more than 1 %; null if none stands out"),
    col.real("communication_efficiency", "below 1, time is lost to exposed communication, or to MPI"),
    col.real("orchestration_efficiency", "below 1, time is lost while devices have no work; null for hosts"),
    col.real("mpi_parallel_efficiency", "time outside MPI as a share of the whole time; null for devices"),
    col.real("offload_efficiency", "of the time outside MPI, the share not in GPU runtime calls; null for devices"),
    col.real(
        "computation_scalability", "useful time of the reference divided by that of this run; null without --reference"
    ),
    col.real("global_efficiency", "parallel_efficiency times computation_scalability; null without --reference"),
)

CHART = Chart("bars", "side", _FACTORS, title="Components of the efficiency of devices and hosts")


def _chart(options: Options) -> Chart | None:
    if options["by"] == "rank":
        return Chart("bars", "rank", ("parallel_efficiency",), "side", title="Parallel efficiency of each rank")
    if options["per"] != "step":
        return CHART
    return Chart("lines", "step", ("parallel_efficiency",), "side", title="Parallel efficiency of each step")


def _prepared(options: Options, _run: RunFacts) -> Mapping[str, Any]:
    """The options. Raises `UsageError`: ranges are selected without a name, or named without being selected."""
    if options["per"] == "range" and not options["range"]:
        raise UsageError("efficiency --per range needs --range NAME, the name of the ranges")
    if options["per"] != "range" and options["range"]:
        raise UsageError(f"--range of efficiency needs --per range, but --per is {options['per']}")
    return options


def _map(rank: Rank, options: Options) -> Any:
    """The rank's time as sets of intervals: useful and communication by device, MPI and GPU runtime; and its ranges.

    What a device executed is a row of its own, with the instructions as `start` and the cycles as `end`.
    """
    sets = [*_device_sets(rank, options["convention"]), *_host_sets(rank)]
    if options["per"] == "run":
        sets += [
            (_EXECUTED, device, np.array([count.instructions]), np.array([count.cycles]))
            for device, count in executed(rank).items()
        ]
    if options["per"] == "range":
        sets += _range_sets(rank, options["range"])
    count = [len(s) for _, _, s, _ in sets]
    ends = [np.asarray(e, np.int64) for _, _, _, e in sets]
    starts = [np.asarray(s, np.int64) for _, _, s, _ in sets]
    return pa.table(
        {
            "what": pa.array(np.repeat([w for w, *_ in sets], count).astype(np.int8)),
            "device": pa.array(np.repeat([d for _, d, *_ in sets], count).astype(np.int32)),
            "start": np.concatenate([*starts, np.empty(0, np.int64)]),
            "end": np.concatenate([*ends, np.empty(0, np.int64)]),
        }
    )


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    rows = [row for region in _regions(parts, run, options) for row in region.all_rows(options)]
    notes = [f"convention {options['convention']}: {_CONVENTIONS[options['convention']]}"] if parts else []
    notes += [_NO_CULPRIT] if len(parts) > 1 else []
    notes += _missing(parts, rows, options)
    if any(row["side"] == "device" for row in rows) and not any(row.get("instructions") for row in rows):
        notes.append(_NOT_COUNTED if options["per"] == "run" else _OF_THE_RUN)
    if options["reference"] is not None and parts:
        notes += _scaled(rows, options)
    return Answer.of(rows, COLUMNS, tuple(notes))


def _most_useful(useful: Sequence[int], processes: Sequence[int]) -> int | None:
    """The rank with the device with the most useful time; None if the median of the others is nearly as large."""
    most = int(np.argmax(useful))
    return processes[most] if useful[most] - float(np.median(useful)) > _STANDS_OUT * useful[most] else None


_Set = tuple[int, int, "NDArray[Any]", "NDArray[Any]"]


def _device_sets(rank: Rank, convention: str) -> Iterator[_Set]:
    pieces: dict[int, list[Any]] = {_USEFUL: [], _MOVING: []}
    for name in ("kernels", "copies", "graphs"):
        columns = ("start", "end", "device", *(("kind",) if name != "graphs" else ()))
        table = rank.table(name, columns)
        start, end = (table.column(c).fill_null(0).to_numpy() for c in ("start", "end"))
        device = table.column("device").fill_null(-1).to_numpy()
        if name == "graphs":
            groups = {_USEFUL: np.ones(len(start), bool)}
        elif name == "copies":
            groups = {_MOVING: ~is_one_of(table.column("kind"), ("memset",)) | (convention != "extrae")}
        else:
            talks = is_one_of(table.column("kind"), NOT_COMPUTE) & (convention == "basic")
            groups = {_USEFUL: ~talks, _MOVING: talks}
        for what, chosen in groups.items():
            pieces[what].append((device[chosen], start[chosen], end[chosen]))
    for what, own in pieces.items():
        device, start, end = (np.concatenate(c) for c in zip(*own, strict=True))
        for number in np.unique(device).tolist():
            merged = merge(start[device == number], end[device == number])
            yield what, number, merged.starts, merged.ends


def _host_sets(rank: Rank) -> Iterator[_Set]:
    sets = {}
    for what, name in ((_MPI, "mpi"), (_RUNTIME, "api")):
        table = rank.table(name, ("start", "end"))
        start = table.column("start").fill_null(0).to_numpy()
        end = table.column("end").fill_null(0).to_numpy()
        sets[what] = merge(start, end)
    sets[_RUNTIME] = difference(sets[_RUNTIME], sets[_MPI])
    for what, merged in sets.items():
        yield what, -1, merged.starts, merged.ends


def _range_sets(rank: Rank, name: str) -> Iterator[_Set]:
    table = rank.table("ranges", ("start", "end", "name"))
    encoded = table.column("name").combine_chunks().dictionary_encode()
    texts = rank.texts(encoded.dictionary)
    both = zip(texts.to_pylist(), stems(texts).to_pylist(), strict=True)
    wanted = [code for code, known_as in enumerate(both) if name in known_as]
    rows = np.isin(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), wanted)
    start, end = (c.fill_null(0).to_numpy()[rows] for c in (table.column("start"), close_ends(table)))
    if not len(start):
        return
    end = np.maximum(start, end)
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    # those within one another are one; those that only touch are not, because ranks are compared instance by instance
    latest = np.maximum.accumulate(end)
    first = np.flatnonzero(np.append(True, start[1:] >= latest[:-1]))
    yield _RANGE, -1, start[first], latest[np.append(first[1:], len(start)) - 1]


@dataclass
class _Region:
    step: int | None  # its step, or None
    name: str | None  # the name of its ranges, or None
    span: tuple[int, int]  # its time on the devices, and on the hosts. useful, active: Of each device
    useful: list[int]
    active: list[int]
    processes: list[int]  # the rank of each device. mpi, runtime: Of each rank
    hosts: list[int]  # the ranks
    mpi: list[int]
    runtime: list[int]
    unrecorded_ns: dict[int, int] = field(default_factory=dict)  # how long work of ranks may have run without a record
    executed: dict[int, list[Executed]] = field(default_factory=dict)  # by the devices of each rank

    def all_rows(self, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of all ranks together, and of each if that is asked."""
        yield from self.rows(options["convention"])
        for rank in self.hosts if options["by"] == "rank" else ():
            yield from self._of(rank).rows(options["convention"], rank)

    def _of(self, rank: int) -> "_Region":
        """What one rank has of it, in its whole time."""
        its, own = (np.flatnonzero(np.equal(ranks, rank)).tolist() for ranks in (self.processes, self.hosts))
        device = ([values[i] for i in its] for values in (self.useful, self.active, self.processes))
        host = ([values[i] for i in own] for values in (self.hosts, self.mpi, self.runtime))
        counts = ({r: v for r, v in values.items() if r == rank} for values in (self.unrecorded_ns, self.executed))
        return _Region(self.step, self.name, self.span, *device, *host, *counts)  # type: ignore[arg-type]

    def rows(self, convention: str, rank: int | None = None) -> Iterator[dict[str, Any]]:
        """Its row for the devices and the one for the hosts."""
        where = {"step": self.step, "range": self.name, "rank": rank}
        tree = device_tree(
            self.useful, self.active, self.span[0], processes=self.processes if convention == "talp" else None
        )
        if self.useful:
            factors = {
                "parallel_efficiency": tree.parallel,
                "load_balance": tree.load_balance,
                "culprit": _most_useful(self.useful, self.processes) if rank is None else None,
                "communication_efficiency": tree.communication,
                "orchestration_efficiency": tree.orchestration,
            }
            yield {
                **where,
                "side": "device",
                "count": len(self.useful),
                "span_ns": self.span[0],
                "useful_ns": sum(self.useful),
                "communication_ns": sum(self.active) - sum(self.useful),
                **(dict.fromkeys(factors) if any(self.unrecorded_ns.values()) else factors),
                **self._counts(),
            }
        host = host_tree(self.mpi, self.runtime, self.span[1])
        yield {
            **where,
            "side": "host",
            "count": len(self.mpi),
            "span_ns": self.span[1],
            "useful_ns": len(self.mpi) * self.span[1] - sum(self.mpi) - sum(self.runtime),
            "communication_ns": sum(self.mpi),
            "runtime_ns": sum(self.runtime),
            "parallel_efficiency": host.parallel,
            "load_balance": host.load_balance,
            "communication_efficiency": host.communication,
            "mpi_parallel_efficiency": host.mpi_parallel,
            "offload_efficiency": host.offload,
        }

    def _counts(self) -> dict[str, Any]:
        """What its devices executed, if that is known of each of them."""
        counts = [count for counts in self.executed.values() for count in counts]
        cycles = sum(count.cycles for count in counts)
        if not cycles or len(counts) < len(self.useful):
            return {}
        instructions = sum(count.instructions for count in counts)
        return {"instructions": instructions, "instructions_per_cycle": instructions / cycles}


def _regions(parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Iterator[_Region]:
    work = _Work(parts, run)
    if not parts:
        return
    if options["per"] == "run":
        span = run.span_ns if options["convention"] == "talp" else work.span()
        if span[1] > span[0]:
            whole = {p.rank: np.array([span]) for p in parts}
            yield replace(work.region(None, None, whole, whole), executed=work.executed)
    elif options["per"] == "range":
        ranges = {p.rank: work.host[p.rank][_RANGE] for p in parts if len(work.host[p.rank].get(_RANGE, ()))}
        if ranges:
            yield work.region(None, options["range"], ranges, ranges)
    else:
        steps = alignment_of(run).steps
        yield from work.steps(steps.filter(pa.array(np.isin(steps.column("rank").to_numpy(), [p.rank for p in parts]))))


class _Work:
    """All ranks' sets of intervals; devices that ranks share are one device."""

    def __init__(self, parts: Sequence[Part], run: RunFacts) -> None:
        identities = {(r.rank, d.device): d.identity for r in run.ranks for d in r.devices}
        devices_of = {r.rank: [d.device for d in r.devices] for r in run.ranks}
        self.host: dict[int, dict[int, Any]] = {}
        sets: dict[Any, dict[int, list[Merged]]] = {}
        self._owners: dict[Any, int] = {}
        counted: dict[Any, Executed] = {}
        for part in parts:
            what, device = (part.table.column(c).to_numpy() for c in ("what", "device"))
            times = np.stack([part.table.column(c).to_numpy() for c in ("start", "end")], axis=1)
            self.host[part.rank] = {w: times[what == w] for w in (_MPI, _RUNTIME, _RANGE)}
            of_device = (what == _USEFUL) | (what == _MOVING)
            for number in {*np.unique(device[of_device]).tolist(), *devices_of.get(part.rank, ())}:
                identity = identities.get((part.rank, number), (part.rank, number))
                self._owners.setdefault(identity, part.rank)
                for counts in times[(what == _EXECUTED) & (device == number)].tolist():
                    counted.setdefault(identity, Executed(*counts))
                for kind in (_USEFUL, _MOVING):
                    own = times[(what == kind) & (device == number)]
                    sets.setdefault(identity, {}).setdefault(kind, []).append(
                        Merged(own[:, 0].copy(), own[:, 1].copy())
                    )
        self.executed: dict[int, list[Executed]] = {}
        for identity, count in counted.items():
            self.executed.setdefault(self._owners[identity], []).append(count)
        self._unrecorded = unrecorded_of(run)
        self._devices: dict[Any, tuple[Merged, Merged]] = {}
        for identity, own_sets in sets.items():
            useful = union(own_sets[_USEFUL])
            self._devices[identity] = useful, difference(union(own_sets[_MOVING]), useful)

    def span(self) -> tuple[int, int]:
        """First start and last end of any device's work; of calls if there is none."""
        extents = [(m.starts[0], m.ends[-1]) for pair in self._devices.values() for m in pair if len(m.starts)]
        if not extents:
            extents = [
                (t[0, 0], t[-1, 1]) for own in self.host.values() for w, t in own.items() if w != _RANGE and len(t)
            ]
        return (int(min(s for s, _ in extents)), int(max(e for _, e in extents))) if extents else (0, 0)

    def region(
        self, step: int | None, name: str | None, device: Mapping[int, NDArray[Any]], host: Mapping[int, NDArray[Any]]
    ) -> _Region:
        """The times within a region, from each rank's intervals (n, 2) on the device and on the host."""
        region = _Region(step, name, (_time(device), _time(host)), [], [], [], [], [], [])
        region.unrecorded_ns = {r: _within(s, device[r]) for r, s in self._unrecorded.items() if r in device}
        for identity, (useful, moving) in self._devices.items():
            rank = self._owners[identity]
            if rank in device:
                busy = _within(useful, device[rank])
                region.useful.append(busy)
                region.active.append(busy + _within(moving, device[rank]))
                region.processes.append(rank)
        for rank, spans in host.items():
            own = self.host[rank]
            region.hosts.append(rank)
            region.mpi.append(_within(Merged(own[_MPI][:, 0].copy(), own[_MPI][:, 1].copy()), spans))
            region.runtime.append(_within(Merged(own[_RUNTIME][:, 0].copy(), own[_RUNTIME][:, 1].copy()), spans))
        return region

    def steps(self, steps: Any) -> Iterator[_Region]:
        """The region of each step; how much of a rank's steps its sets cover is worked out for all of them at once."""
        rank = steps.column("rank").to_numpy()
        host = np.stack([steps.column(c).to_numpy() for c in ("start", "end")], axis=1)
        device = np.stack([steps.column(c).fill_null(0).to_numpy() for c in ("device_start", "device_end")], axis=1)
        there = np.array(steps.column("device_start").is_valid())
        of_step, of_rank = rows_by(steps.column("step").to_numpy()), rows_by(rank)
        for rows in of_step.values():
            if not there[rows].any():
                device[rows], there[rows] = host[rows], True
        place = np.empty(len(rank), np.int64)
        for rows in of_rank.values():
            place[rows] = np.arange(len(rows))

        def covered(of: int, spans: NDArray[Any], merged: Merged) -> list[int]:
            first, last = spans[of_rank[of]].T
            lengths: list[int] = overlap_ns(first, np.maximum(first, last), merged).tolist()
            return lengths

        busy = [
            (owner, covered(owner, device, useful), covered(owner, device, moving))
            for owner, (useful, moving) in ((self._owners[i], sets) for i, sets in self._devices.items())
            if owner in of_rank
        ]
        hidden = {r: covered(r, device, spans) for r, spans in self._unrecorded.items() if r in of_rank}
        calls = {
            r: [covered(r, host, Merged(own[w][:, 0].copy(), own[w][:, 1].copy())) for w in (_MPI, _RUNTIME)]
            for r, own in self.host.items()
            if r in of_rank
        }
        for number, rows in of_step.items():
            of = dict(zip(rank[rows].tolist(), rows.tolist(), strict=True))
            shown = rows[there[rows]]
            on = dict(zip(rank[shown].tolist(), shown.tolist(), strict=True))
            spans = (int(s[:, 1].max() - s[:, 0].min()) for s in (device[list(on.values())], host[list(of.values())]))
            region = _Region(number, None, (next(spans), next(spans)), [], [], [], [], [], [])
            region.unrecorded_ns = {r: hidden[r][place[row]] for r, row in on.items() if r in hidden}
            for owner, useful, moving in busy:
                if owner in on:
                    at = place[on[owner]]
                    region.useful.append(useful[at])
                    region.active.append(useful[at] + moving[at])
                    region.processes.append(owner)
            for r, row in of.items():
                mpi, runtime = calls[r]
                region.hosts.append(r)
                region.mpi.append(mpi[place[row]])
                region.runtime.append(runtime[place[row]])
            yield region


def _time(spans: Mapping[int, NDArray[Any]]) -> int:
    """The time of a region: of its k-th interval on all ranks from the first start to the last end, summed over k."""
    total = 0
    for k in range(max(len(s) for s in spans.values())):
        those = [s[k] for s in spans.values() if len(s) > k]
        total += int(max(s[1] for s in those) - min(s[0] for s in those))
    return total


def _within(merged: Merged, spans: NDArray[Any]) -> int:
    whole = merge(spans[:, 0].copy(), spans[:, 1].copy())
    return int(overlap_ns(whole.starts, whole.ends, merged).sum())


def _missing(parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> list[str]:
    if not parts or rows:
        counts = (
            {len(p.table.filter(pc.equal(p.table.column("what"), _RANGE))) for p in parts}
            if options["per"] == "range"
            else set()
        )
        return [f"ranks have {min(counts)} to {max(counts)} ranges {options['range']!r}"] if len(counts) > 1 else []
    if options["per"] == "range":
        return [f"no rank has a range {options['range']!r}, so the answer is empty"]
    return ["no steps were found, so the answer is empty"] if options["per"] == "step" else ["nothing took any time"]


def _scaled(rows: Sequence[dict[str, Any]], options: Mapping[str, Any]) -> list[str]:
    """Adds the scalability against the reference to the rows; returns what must be known of it."""
    from alltrace.recipes.execution.ask import ask
    from alltrace.run.resolve import resolve
    from alltrace.run.store import Run

    reference = Run(resolve([options["reference"]]))
    answer = ask(reference, QUESTION, {**options, "reference": None})
    by_row = {(r["side"], r["step"], r["range"], r["rank"]): r for r in answer.table.to_pylist()}
    without = 0
    for row in rows:
        other = by_row.get((row["side"], row["step"], row["range"], row["rank"]))
        if other is None:
            without += 1
            continue
        weak = options["scaling"] == "weak"
        grown = scalability(other["useful_ns"], other["count"], row["useful_ns"], row["count"], weak=weak)
        row["computation_scalability"] = grown
        if grown is not None and row["parallel_efficiency"] is not None:
            row["global_efficiency"] = grown * row["parallel_efficiency"]
    notes = [
        f"scalability against {options['reference']}, {options['scaling']} scaling: all of the reference run is counted"
    ]
    return [*notes, *([f"{without} rows have no counterpart in it"] if without else [])]


QUESTION = Question(
    "efficiency",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={
        "kernels": ("start", "end", "device", "kind"),
        "copies": ("start", "end", "device", "kind"),
        "graphs": ("start", "end", "device"),
        "api": ("start", "end"),
        "mpi": ("start", "end"),
        "ranges": ("start", "end", "name"),
        "gpu_metrics": GPU_READS,
    },
    requires=(("kernels", "copies", "graphs", "api", "mpi", "ranges"),),
    options=(
        Option(
            "per",
            str,
            "run",
            "one row for the run, for each step, or for the ranges named --range",
            ("run", "step", "range"),
        ),
        Option("range", str, None, "for --per range: name of the ranges, as in the program"),
        Option("by", str, "run", "the efficiencies of all ranks together, or of each rank too", ("run", "rank")),
        Option("convention", str, "basic", "what counts as useful and as communication", tuple(_CONVENTIONS)),
        Option("reference", str, None, "a reference run for scalability: a run directory or reports", reads="run"),
        Option(
            "scaling",
            str,
            "strong",
            "whether the reference did the same total work (strong), or the same work per device (weak)",
            ("strong", "weak"),
        ),
    ),
    chart=_chart,
    clock="aligned",
    prepare=_prepared,
    worth_processes=sys.maxsize,
    host_samples=True,
    important=tuple("side parallel_efficiency load_balance step range rank culprit communication_efficiency".split()),
)
