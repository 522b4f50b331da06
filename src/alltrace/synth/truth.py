"""The truth of a simulated run: what a right analysis of its reports finds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alltrace.synth.faults import Fault
from alltrace.synth.identity import JOB_START_UTC_NS, Identity
from alltrace.synth.kernels import KERNELS
from alltrace.synth.recording import Recording
from alltrace.synth.simulate import SimulatedRun
from alltrace.synth.timeline import Timeline, covered_ns

TRUTH_FILE = "truth.json"
COLLECTIVES_FILE = "truth_collectives.parquet"


# True time is in nanoseconds since the job began, which is `job_start_utc_ns` in UTC; the first host's clock shows it.
@dataclass
class Truth:
    """What is true of a simulated run; `truth.json` holds the same values by the same names."""

    scenario: str  # the scenario's name
    seed: int
    schema: str  # the export schema's version
    job_start_utc_ns: int  # UTC at true time 0
    layout: dict[str, Any]  # the values of `Layout`
    # for each host `host`, `offset_ns` (how far its clock is ahead of the first host's at true time 0),
    # `drift_ppm`
    hosts: list[dict[str, Any]]
    # for each rank `rank`, `local_rank`, `host`, `pid`, `device_uuid`, `device_ordinal`, `report` (relative to
    # the folder), `session_start_ns` (true), `utc_stamp_ns`, `report_offset_ns` (how far the report's UTC is
    # ahead at true time 0), `start_ns`, `end_ns`, `compute_ns`, `communication_ns`, `exposed_ns` (communication
    # while no compute kernel runs), `copy_ns`, `idle_ns` (nothing of these on the device between its first and
    # last event), and `rows` by table of the report; with `operators` also `operators`: by name `calls`, `gpu_ns`
    # and `flops` of what the report of the PyTorch profiler has. A rank without a report has None for `report`
    # and no rows. Times are true times of the run, independent of the report
    ranks: list[dict[str, Any]]
    groups: list[dict[str, Any]]  # for each communicator `name`, `ranks`, `comm_hash`
    steps_ns: list[list[list[int]]]  # true start and end of each step by rank: `steps_ns[rank][step] == [start, end]`
    # each planted fault: `kind`, `finding` (what a diagnosis calls it), `ranks` (all of them, by name), `hosts`
    # (names of the hosts with only these ranks), `communicators` (names), `steps` (the first and the last, both
    # included), its own values, and `lost_ns` (how much earlier the run ends without it, of `launch-bound` with
    # as many kernels launched at the usual pace; 0 for faults of the capture)
    faults: list[dict[str, Any]]
    secrets: list[str] = field(default_factory=list)  # planted credentials of all ranks; none may survive an import
    folder: Path | None = None  # where the run was written; not in the file

    @property
    def reports(self) -> list[Path]:
        """The path of every rank's report, by rank; ranks without one are left out."""
        if self.folder is None:
            return []
        return [self.folder / rank["report"] for rank in self.ranks if rank["report"] is not None]

    def collectives(self) -> Any:
        """Every collective on every member as a `pyarrow.Table`, sorted by group, sequence and rank."""
        # Columns: `group` (name), `comm_hash`, `op`, `sequence`, `rank`, `bytes`, `launch_ns`, `arrival_ns`, `end_ns`,
        # true time, `step`, and `recorded`, whether the rank's report has the kernel.
        import pyarrow.parquet as pq

        if self.folder is None:
            raise RuntimeError("this truth was not written to a folder")
        return pq.read_table(self.folder / COLLECTIVES_FILE)

    def write(self, folder: Path) -> None:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "folder"}
        (folder / TRUTH_FILE).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Truth:
        return cls(**json.loads((folder / TRUTH_FILE).read_text(encoding="utf-8")), folder=folder)


def describe(run: SimulatedRun, identities: list[Identity]) -> Truth:
    """The truth of a run, without what only the writer knows: reports, row counts and secrets."""
    scenario = run.scenario
    layout = scenario.layout
    firsts = [identities[host * layout.ranks_per_host] for host in range(layout.hosts)]
    return Truth(
        scenario=scenario.name,
        seed=scenario.seed,
        schema=scenario.environment.schema,
        job_start_utc_ns=JOB_START_UTC_NS,
        layout=dataclasses.asdict(layout),
        hosts=[{"host": i.host_name, "offset_ns": i.offset_ns, "drift_ppm": i.drift_ppm} for i in firsts],
        ranks=[_rank(identity, run.timelines[identity.rank]) for identity in identities],
        groups=[dataclasses.asdict(group) for group in run.groups],
        steps_ns=run.steps.tolist(),
        faults=[_fault(fault, run, identities) for fault in run.faults],
    )


def _fault(fault: Fault, run: SimulatedRun, identities: list[Identity]) -> dict[str, Any]:
    facts = fault.truth()
    hosts: dict[str, bool] = {}
    for identity in identities:
        hosts[identity.host_name] = hosts.get(identity.host_name, True) and identity.rank in fault.ranks
    last = run.scenario.steps - 1
    first, end = fault.steps or (0, last)
    return {
        **facts,
        "finding": fault.finding,
        "hosts": [host for host, whole in hosts.items() if whole],
        "communicators": list(facts.get("communicators", ())),
        "steps": [min(first, last), min(end, last)],
    }


def _rank(identity: Identity, line: Timeline) -> dict[str, Any]:
    start, end = line.bounds
    return {
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "host": identity.host_name,
        "pid": identity.pid,
        "device_uuid": identity.device_uuid,
        "device_ordinal": identity.ordinal,
        "session_start_ns": identity.session_start_ns,
        "utc_stamp_ns": identity.utc_stamp_ns,
        "report_offset_ns": identity.report_offset_ns,
        "start_ns": start,
        "end_ns": end,
        **_device_times(line),
    }


def _device_times(line: Timeline) -> dict[str, int]:
    def union(*parts: tuple[NDArray[np.int64], NDArray[np.int64]]) -> int:
        return covered_ns(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))

    starts, ends = line.kernels["start"], line.kernels["end"]
    is_compute = line.kernels["kernel"] < len(KERNELS)
    graphs = line.graphs
    compute = (np.concatenate((starts[is_compute], graphs["start"])), np.concatenate((ends[is_compute], graphs["end"])))
    communication = (starts[~is_compute], ends[~is_compute])
    copies = [(rows["start"], rows["end"]) for rows in (line.copies, line.memsets)]
    everything = [compute, communication, *copies]
    span = max(int(p[1].max()) for p in everything if len(p[1])) - min(int(p[0].min()) for p in everything if len(p[0]))
    return {
        "compute_ns": union(compute),
        "communication_ns": union(communication),
        "exposed_ns": union(compute, communication) - union(compute),
        "copy_ns": union(*copies),
        "idle_ns": span - union(*everything),
    }


def write_collectives(run: SimulatedRun, recordings: Sequence[Recording], folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    recorded = [set(r.timeline.kernels["correlation"].tolist()) if r.timeline else set() for r in recordings]
    rows = [
        (
            group.name,
            group.comm_hash,
            one.op,
            one.sequence,
            rank,
            one.size_bytes,
            one.launches[rank],
            one.arrivals[rank],
            one.ends[rank],
            one.step,
            one.correlations[rank] in recorded[rank],
        )
        for one in run.collectives
        for group in (run.groups[one.group],)
        for rank in group.ranks
    ]
    names = tuple("group comm_hash op sequence rank bytes launch_ns arrival_ns end_ns step recorded".split())
    types = ("string", "int64", "string", "int64", "int32", "int64", "int64", "int64", "int64", "int32", "bool_")
    layout = pa.schema([(name, getattr(pa, kind)()) for name, kind in zip(names, types, strict=True)])
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, layout.types, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=layout), folder / COLLECTIVES_FILE)
