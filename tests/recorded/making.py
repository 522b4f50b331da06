"""Makes the recorded runs: reports of a simulation or of a program, imported as a user would import them."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from alltrace.run.importer import import_reports
from alltrace.run.manifest import read_manifest, write_manifest
from alltrace.synth import Scenario, write_run
from alltrace.synth.identity import Identity, identities
from alltrace.synth.kernels import ALL_KERNELS
from alltrace.synth.simulate import simulate
from alltrace.synth.timeline import Timeline
from alltrace.synth.truth import COLLECTIVES_FILE, TRUTH_FILE
from tests.readers.rocpd.database import Database, sizes
from tests.recorded.worlds import BASE, WORLDS, World

HERE = Path(__file__).parent
RUNS = HERE / "runs"
MOST_RUN_BYTES, MOST_BYTES = 600_000, 5_000_000
MPI_RANKS = 3


def make(name: str, folder: Path, scratch: Path) -> Path:
    """Makes the run directory `folder/run` of a world, and its truth beside it.

    Args:
        name: The world.
        folder: Where; replaced.
        scratch: An empty folder for the reports.
    """
    world = WORLDS[name]
    {"synth": _synth, "kineto": _kineto, "rocpd": _rocpd, "mpi": _mpi}[world.kind](name, world, scratch)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    logs: dict[str, Any] = (
        {"nccl_logs": [str(p) for p in sorted((scratch / "logs").glob("nccl*.log"))]} if world.logs else {}
    )
    training: dict[str, Any] = {"training_logs": [str(scratch / "logs" / "train.log")]} if world.logs else {}
    reports = [p for p in sorted(scratch.iterdir()) if p.name not in ("logs", TRUTH_FILE, COLLECTIVES_FILE, "work")]
    import_reports([str(p) for p in reports], folder / "run", jobs=1, **logs, **training)
    _without_paths(folder / "run")
    truth = json.loads((scratch / TRUTH_FILE).read_text())
    truth.pop("secrets", None)  # they look like credentials, and are nothing that an answer has
    (folder / TRUTH_FILE).write_text(json.dumps(truth) + "\n")
    if (scratch / COLLECTIVES_FILE).exists():
        shutil.copy(scratch / COLLECTIVES_FILE, folder / COLLECTIVES_FILE)
    return folder / "run"


def scenario_of(name: str) -> Scenario:
    """The scenario of a simulated world."""
    world = WORLDS[name]
    values = {**BASE, "kind": world.layout, **world.values}
    return Scenario(name=name, about=world.about).override(**values, faults=world.faults)


def _synth(name: str, world: World, scratch: Path) -> None:
    write_run(scenario_of(name), scratch, "sqlite", logs=world.logs)


def _kineto(name: str, world: World, scratch: Path) -> None:
    """Traces with what PyTorch writes besides: ids of graphs, 0 where there is none, and the allocator's blocks."""
    write_run(scenario_of(name), scratch, "kineto")
    for trace in sorted(scratch.glob("*.pt.trace.json")):
        lines = trace.read_text(encoding="utf-8").splitlines()
        events, node = [], 0
        for line in lines[1:-1]:
            if '"cat": "kernel"' in line:
                in_graph = "FusedAdam" in line or "LerpFunctor" in line
                node += in_graph
                about = f'"graph id": {7 if in_graph else 0}, "graph node id": {1000 + node if in_graph else 0}, '
                line = line.replace('"args": {', '"args": {' + about)
            events.append(line.rstrip(","))
        last = lines[0].partition('"traceEvents": [')
        events = [last[2].rstrip(",")] * bool(last[2]) + events
        events += _blocks([json.loads(e) for e in events if '"cat": "cpu_op"' in e and "aten::" in e])
        text = last[0] + last[1] + ",\n".join(events) + "\n" + lines[-1] + "\n"
        with gzip.GzipFile(trace.with_name(trace.name + ".gz"), "wb", mtime=0) as file:
            file.write(text.encode())
        trace.unlink()


def _blocks(operators: list[dict[str, Any]]) -> list[str]:
    """A block that each operator allocates, which the third operator after it frees."""
    lines, live, total = [], [], 0
    for number, operator in enumerate(sorted(operators, key=lambda e: (e["ts"], e["name"]))):
        changes = [(0x7F0000000000 + (number << 21), (1 + number % 5) << 20)]
        live += changes
        if len(live) > 3:
            address, size = live.pop(0)
            changes.append((address, -size))
        for place, (address, size) in enumerate(changes):
            total += size
            about = {
                "Total Reserved": 64 << 20, "Total Allocated": total, "Bytes": size, "Addr": address,
                "Device Id": 0, "Device Type": 1,
            }  # fmt: skip
            where = {"pid": operator["pid"], "tid": operator["tid"], "ts": round(operator["ts"] + 0.1 + 0.1 * place, 3)}
            event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **where, "args": about}
            lines.append(json.dumps(event))
    return lines


def _rocpd(name: str, world: World, scratch: Path) -> None:
    """Databases of rocprofv3, a rank each; odd ranks by the later version of its schema."""
    scenario = scenario_of(name)
    write_run(scenario, scratch, "sqlite")  # for the truth
    for report in scratch.glob("*.sqlite"):
        report.unlink()
    run = simulate(scenario)
    for who, line in zip(identities(scenario), run.timelines, strict=True):
        write_rocpd(scratch / f"{who.host_name}_{who.pid}_results.db", who, line, len(run.timelines))


_HIP = {"cudaLaunchKernel": "hipLaunchKernel", "cudaMemcpyAsync": "hipMemcpyAsync", "cudaMemsetAsync": "hipMemsetAsync"}
_COPY = {1: "MEMORY_COPY_HOST_TO_DEVICE", 2: "MEMORY_COPY_DEVICE_TO_HOST", 8: "MEMORY_COPY_DEVICE_TO_DEVICE"}


def write_rocpd(path: Path, who: Identity, line: Timeline, ranks: int) -> None:
    """Writes a database of rocprofv3 with the events of a rank; odd ranks by the later version of its schema."""
    variables = {
        "RANK": str(who.rank),
        "LOCAL_RANK": str(who.local_rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": "2",
    }
    made = Database(path, tracks=bool(who.rank % 2), pid=who.pid, **variables)
    made.connection.execute(f'UPDATE "rocpd_info_node{made.suffix}" SET hostname = ?', (who.host_name,))
    location = {"domain": 0, "location_id": (0x10 + who.device) << 8, "cu_count": 304}
    made.connection.execute(
        f'UPDATE "rocpd_info_agent{made.suffix}" SET type_index = ?, extdata = ? WHERE id = 4',
        (who.device, json.dumps(location)),
    )

    def rows(table: Any, *columns: str) -> Any:
        times = [who.system_clock_ns + who.stamps(table[c]) for c in ("start", "end")]
        return zip(*(t.tolist() for t in times), *(table[c].tolist() for c in columns), strict=True)

    symbols: dict[int, int] = {}
    for number, (start, end, stream, call, kernel) in enumerate(rows(line.kernels, "stream", "correlation", "kernel")):
        known = ALL_KERNELS[kernel]
        if kernel not in symbols:
            about = {
                "kernel_name": known.mangled + ".kd",
                "display_name": known.demangled,
                "arch_vgpr_count": known.registers,
            }
            symbols[kernel] = made.add("info_kernel_symbol", nid=9, pid=who.pid, **about)
        grid = tuple(g * b for g, b in zip(known.grid, known.block, strict=True))
        shape = sizes(known.block, grid)
        about = {
            "kernel_id": symbols[kernel],
            "dispatch_id": number,
            "group_segment_size": known.static_shared_bytes,
            **shape,
        }
        place = {"agent_id": 4, "queue_id": stream % 4, "stream_id": stream}
        event = made.event("kernel_dispatch", start, end, category="KERNEL_DISPATCH", call=call, **place, **about)
        if number == 0:
            made.add("info_pmc", id=11, nid=9, pid=who.pid, agent_id=4, name="SQ_WAVES", symbol="SQ_WAVES")
        made.add("pmc_event", event_id=event, pmc_id=11, value=float(64 * (number % 7 + 1)))
    for start, end, stream, call, size, kind in rows(line.copies, "stream", "correlation", "bytes", "kind"):
        about = {"name_id": made.string(_COPY[kind]), "size": size, "queue_id": 6, "stream_id": stream}
        agents = {"dst_agent_id": 4 if kind == 1 else 0, "src_agent_id": 0 if kind == 1 else 4}
        made.event("memory_copy", start, end, category="MEMORY_COPY", call=call, **about, **agents)
    for start, end, call, name in rows(line.api, "correlation", "name"):
        called = line.names.texts[name].partition("_v")[0]
        text = _HIP.get(called, called.replace("cuda", "hip", 1))
        made.event("region", start, end, category="HIP_RUNTIME_API_EXT", call=call, name_id=made.string(text))
    program = line.ranges.where(line.ranges["domain"] == 0)
    for number, (start, end, name) in enumerate(rows(program, "name")):
        about = {"category": "MARKER_CORE_RANGE_API", "call": 900_000 + number}
        made.event("region", start, end, **about, name_id=made.string(line.names.texts[name]))
        block = {"type": "ALLOC", "level": "REAL", "address": 0x7000 + 4096 * number, "size": 1 << (12 + number % 8)}
        made.event(
            "memory_allocate",
            start,
            start + 500,
            category="MEMORY_ALLOCATION",
            call=950_000 + number,
            agent_id=4,
            **block,
        )
    made.close()


def _mpi(name: str, world: World, scratch: Path) -> None:
    """Records `mpi_program.c` on this machine."""
    tool = os.environ.get("ALLTRACE_NSIGHT")
    nsys = shutil.which("nsys") if tool is None else str(Path(tool) / "nsys" / "target-linux-x64" / "nsys")
    if nsys is None or not Path(nsys).is_file() or not shutil.which("mpicc") or not shutil.which("mpirun"):
        raise SystemExit(f"the run {name} needs Nsight Systems (ALLTRACE_NSIGHT), mpicc and mpirun")
    work = scratch / "work"
    work.mkdir()
    include = Path(nsys).resolve().parent / "nvtx" / "include" / "nvtx3"
    program = str(work / "ring")
    subprocess.run(["mpicc", "-O1", f"-I{include}", str(HERE / "mpi_program.c"), "-o", program, "-ldl"], check=True)
    root = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl_base_warn_component_unused": "0",
    }
    record = [nsys, "profile", "--trace=mpi,nvtx", "--mpi-impl=openmpi", "--sample=none", "--cpuctxsw=none"]
    record += ["--export=sqlite", "-o", str(work / "rank%q{OMPI_COMM_WORLD_RANK}"), program]
    command = ["mpirun", "--oversubscribe", "-np", str(MPI_RANKS), *record]
    subprocess.run(command, cwd=work, env={**os.environ, **root}, check=True, timeout=180, stdout=subprocess.DEVNULL)
    for rank in range(MPI_RANKS):
        report = scratch / f"ring_rank{rank}.sqlite"
        shutil.copy(work / f"rank{rank}.sqlite", report)
        with closing(sqlite3.connect(report)) as opened, opened:
            opened.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'node001' WHERE name = 'Hostname'")
    truth = {"late_rank": MPI_RANKS - 1, "ranks": MPI_RANKS, "steps": 12, "work_ms": [2] * (MPI_RANKS - 1) + [6]}
    (scratch / TRUTH_FILE).write_text(json.dumps(truth, indent=1) + "\n")


def _without_paths(run: Path) -> None:
    """The manifest names reports and logs by their file names alone: where they were is not part of the run."""
    manifest = read_manifest(run)
    reports = tuple(r._replace(path=Path(r.path).name) for r in manifest.reports)
    logs = tuple(r._replace(path=Path(r.path).name) for r in manifest.logs)
    write_manifest(run, replace(manifest, reports=reports, logs=logs))


def size_of(folder: Path) -> int:
    """The bytes of all files below `folder`."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
