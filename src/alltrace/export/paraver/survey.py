"""What names occur in the selection, before anything is written: the values and labels of the trace."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from alltrace.export.columns import UNKNOWN, numbers
from alltrace.export.paraver.pcf import values_of
from alltrace.export.selection import Selection
from alltrace.readers.paraver import labels as ev
from alltrace.readers.paraver.labels import EventType, Profile
from alltrace.trace.arrays import Int64

NAMED = ("api", "kernels", "ranges", "marks", "mpi", "openacc", "openmp", "osrt", "ucx", "syscalls")
_VALUE_BITS = 32
_VERSION = re.compile(r"_v[0-9]{4}$")  # as nsys stats cuts it, which keeps five digits


class Values:
    """From ids of names to values of events."""

    def __init__(self, ids: Int64, values: Int64) -> None:
        order = np.argsort(ids)
        self.ids: Int64 = ids[order]  # the ids, ascending
        self.values: Int64 = values[order]

    def of(self, ids: Int64) -> Int64:
        if not len(self.ids):
            return np.zeros(len(ids), np.int64)
        return np.asarray(self.values[self.places(ids)])

    def places(self, ids: Int64) -> Int64:
        return np.asarray(np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1))


# `domains`: from ids of NVTX domains to their index among the domains. `range_types`: the type of the ranges of each
# domain.
class Survey:
    """The names in a selection."""

    def __init__(
        self, selection: Selection, profile: Profile, *, demangled: bool, details: bool, base: Path | None
    ) -> None:
        self._selection = selection
        self._known = {t: e for e in (ev.read_pcf(base) if base else ()) for t in e.types}
        self.events: list[EventType] = []  # the content of the .pcf
        # for each table of `NAMED` from ids of names to values; `ranges` has those of start/end ranges and
        # marks too, `collectives` has those of operations
        self.values: dict[str, Values] = {}
        kernel_name = "name" if demangled else "short_name"
        ids = {t: self._ids(t, kernel_name if t == "kernels" else "name") for t in NAMED}
        self._name_values("api", ids["api"], {ev.CALL: "CUDA library call"}, strip=True)
        self._name_values("kernels", ids["kernels"], {ev.KERNEL: "CUDA kernel", profile.nccl: "NCCL kernel"})
        self._ranges(profile, np.union1d(ids["ranges"], ids.pop("marks")))
        mpi = {ev.MPI_P2P: "MPI Point-to-point", ev.MPI_COLLECTIVE: "MPI Collective Comm", ev.MPI_REST: "MPI Other"}
        self._name_values("mpi", ids["mpi"], mpi, fixed=ev.MPI_VALUES, first=ev.OTHER_MPI)
        acc = {ev.OPENACC_OTHER: "OpenACC other", ev.OPENACC_DATA: "OpenACC data", ev.OPENACC_LAUNCH: "OpenACC launch"}
        self._name_values("openacc", ids["openacc"], acc)
        for table, number, label in (
            ("openmp", ev.OPENMP, "OpenMP construct"),
            ("osrt", ev.OSRT, "OS runtime call"),
            ("ucx", ev.UCX, "UCX operation"),
            ("syscalls", ev.SYSCALL, "System call"),
        ):
            self._name_values(table, ids[table], {number: label})
        self._plain(profile, details)
        self._operations()
        # from ids of metrics of GPUs to their index; `nic` for network adapters
        self.metrics: Values = self._metrics(
            "gpu_metrics", profile.metrics, "GPU", ev.PRECISION if profile.exact else 0
        )
        self.nic: Values = self._metrics("nic_metrics", ev.NIC_METRICS, "NIC", ev.PRECISION if profile.exact else 0)
        # the last end, ns from the zero of the selection
        self.end_ns: int = max(1, selection.end_ns - selection.zero_ns)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_selection", "_known")}

    def _ids(self, table: str, column: str) -> Int64:
        ids = np.empty(0, np.int64)
        for rank in self._selection.ranks:
            for batch in self._selection.distinct(rank, table, [column]):
                new = numbers(batch, column)
                if len(ids):  # most have been seen, and are looked up in less time than sorted
                    new = new[ids[np.minimum(np.searchsorted(ids, new), len(ids) - 1)] != new]
                if len(new):
                    ids = np.union1d(ids, new)
        return ids

    def _labels(self, ids: Int64, *, strip: bool = False) -> list[str]:
        import pyarrow as pa

        texts = self._selection.run.texts(pa.array(ids, pa.int64())).to_pylist()
        return [ev.label_of(_VERSION.sub("", t) if strip and t else t) for t in texts]

    def _number(
        self, types: dict[int, str], names: list[str], fixed: Mapping[str, int] | None, first: int
    ) -> dict[str, int]:
        value_of = dict(fixed or {})
        for number in types:
            if number in self._known:
                base = self._known[number]
                labels = ev.our_values(base.types[number], base.values)
                value_of.update({label: v for v, label in labels.items() if 0 < v <= ev.LARGEST_LABELLED})
        return values_of(names, value_of, first)

    def _name_values(
        self,
        table: str,
        ids: Int64,
        types: dict[int, str],
        *,
        strip: bool = False,
        fixed: Mapping[str, int] | None = None,
        first: int = 1,
    ) -> None:
        names = self._labels(ids, strip=strip)
        values = self._number(types, names, fixed, first)
        self.values[table] = Values(ids, np.array([values[n] for n in names], np.int64))
        if len(ids):
            self.events.append(ev.EventType(types, {0: ev.END, **{v: n for n, v in values.items()}}))

    def _ranges(self, profile: Profile, ids: Int64) -> None:
        domains = self._ids("ranges", "domain")
        texts = [
            n if d != UNKNOWN else ev.DEFAULT_DOMAIN
            for d, n in zip(domains.tolist(), self._labels(domains), strict=True)
        ]
        ordered = sorted(set(texts), key=lambda n: (not profile.default_first or n != ev.DEFAULT_DOMAIN, n))
        place = {n: p for p, n in enumerate(ordered)}
        self.domains: Values = Values(domains, np.array([place[t] for t in texts], np.int64))
        apart = [n for n in ordered if profile.nccl_ranges is not None and n == ev.NCCL_DOMAIN]
        number = {
            n: profile.ranges + profile.range_step * p for p, n in enumerate(n for n in ordered if n not in apart)
        }
        number |= dict.fromkeys(apart, profile.nccl_ranges or 0)
        self.range_types: list[int] = [number[n] for n in ordered]
        names = self._labels(ids)
        types = {number[n]: f"NVTX {n}" for n in ordered}
        other = {ev.RANGE_STARTEND: "NVTX start/end range", ev.MARK: "NVTX mark"}
        values = self._number({**types, **other}, names, None, 1)
        self.values["ranges"] = Values(ids, np.array([values[n] for n in names], np.int64))
        if not len(ids):
            return
        shown = {v: n for n, v in values.items()}
        places, mine = self._used_in_domains()
        for p, (kind, label) in enumerate(types.items()):
            self.events.append(
                ev.EventType({kind: label}, {0: ev.OUTSIDE, **{v: shown[v] for v in mine[places == p].tolist()}})
            )
        self.events.append(ev.EventType(other, {0: ev.OUTSIDE, **shown}))
        self.events.append(ev.EventType({ev.DEPTH + p: f"NVTX depth {n}" for n, p in place.items()}))

    def _used_in_domains(self) -> tuple[Int64, Int64]:
        """The places of domains, and the values of the names of the ranges that they have, pair by pair."""
        pairs = np.empty(0, np.int64)
        for rank in self._selection.ranks:
            for batch in self._selection.distinct(rank, "ranges", ["domain", "name"]):
                place = self.domains.of(numbers(batch, "domain"))
                pairs = np.union1d(pairs, place << _VALUE_BITS | self.values["ranges"].of(numbers(batch, "name")))
        return pairs >> _VALUE_BITS, pairs & (1 << _VALUE_BITS) - 1

    def _plain(self, profile: Profile, details: bool) -> None:
        copies = {0: ev.END, **dict(ev.COPIES.values())}
        self.events.append(ev.EventType({ev.MEMORY_OP: "CUDA memory transfer"}, copies))
        self.events.append(ev.EventType({ev.MEMORY_BYTES: "CUDA memory transfer size (bytes)"}))
        self.events.append(ev.EventType({ev.LENGTH: "Length of what begins and overlaps (ns)"}))
        self._graphs(profile)
        self.events.append(
            ev.EventType({ev.MPI_SENT: "MPI send size (bytes)", ev.MPI_RECEIVED: "MPI receive size (bytes)"})
        )
        if details:
            self.events.append(ev.EventType({n: f"Kernel {label}" for n, (_, label) in ev.GEOMETRY.items()}))
            self.events.append(ev.EventType({ev.CORRELATION: "Correlation id"}))

    def _graphs(self, profile: Profile) -> None:
        ids = self._ids("graphs", "graph_exec")
        names = ["CUDA graph" if n == UNKNOWN else f"Graph Exec {n}" for n in ids.tolist()]
        values = self._number({profile.graph: ""}, names, None, 1)
        self.values["graphs"] = Values(ids, np.array([values[n] for n in names], np.int64))
        self.events.append(
            ev.EventType({profile.graph: "CUDA graph"}, {0: ev.END, **{v: n for n, v in values.items()}})
        )
        self.events.append(ev.EventType({ev.GRAPH_ID: "CUDA graph id", ev.GRAPH_EXEC: "CUDA graph executable id"}))

    def _operations(self) -> None:
        ids = self._ids("collectives", "op")
        self._name_values("collectives", ids, {ev.NCCL_OP: "NCCL operation"})
        if len(ids):
            sizes = {
                ev.NCCL_BYTES: "NCCL size (bytes)",
                ev.NCCL_COUNT: "NCCL elements",
                ev.NCCL_SEQUENCE: "NCCL sequence number",
            }
            self.events.append(ev.EventType(sizes))

    def _metrics(self, table: str, first: int, what: str, precision: int) -> Values:
        ids = self._ids(table, "metric")
        names = self._labels(ids)
        place = {n: first + p for p, n in enumerate(sorted(set(names)))}
        if place:
            types = {number: f"{what} {n}" for n, number in place.items()}
            self.events.append(ev.EventType(types, precision=precision))
        return Values(ids, np.array([place[n] for n in names], np.int64))
