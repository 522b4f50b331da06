"""Databases as rocprofv3 writes them, with the columns of both published versions of its schema."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

UUID = "_0199c3a0_5e1f_7000_8000_00000000002a"
INFO = {
    "string": ("string",),
    "info_node": ("hash", "machine_id", "hostname"),
    "info_process": ("nid", "ppid", "pid", "start", "end", "command", "environment"),
    "info_thread": ("nid", "ppid", "pid", "tid", "name"),
    "info_agent": ("nid", "pid", "type", "absolute_index", "type_index", "name", "product_name", "extdata"),
    "info_pmc": ("nid", "pid", "agent_id", "name", "symbol"),
    "info_kernel_symbol": ("nid", "pid", "code_object_id", "kernel_name", "display_name", "arch_vgpr_count"),
    "event": ("category_id", "stack_id", "parent_stack_id", "correlation_id"),
    "pmc_event": ("event_id", "pmc_id", "value"),
}
PLACE = ("nid", "pid", "tid", "agent_id", "queue_id", "stream_id")
SIZES = tuple(f"{what}_size_{axis}" for what in ("workgroup", "grid") for axis in "xyz")
EVENTS = {
    "kernel_dispatch": ("kernel_id", "dispatch_id", "group_segment_size", *SIZES, "event_id"),
    "memory_copy": ("name_id", "dst_agent_id", "src_agent_id", "size", "event_id"),
    "region": ("name_id", "event_id"),
    "memory_allocate": ("type", "level", "address", "size", "event_id"),
}
HSACO = "_ZN2at6nativeEv.kd"
GPU = {"domain": 0, "location_id": 0x0C10, "cu_count": 304}
ZERO = 5_000_000_000


class Database:
    """A database being written.

    Args:
        path: Where.
        tracks: Whether times and places are numbers of `rocpd_timestamp` and `rocpd_track`, as later versions have
            them.
        suffix: What the names of its tables end with.
        pid: The process.
    """

    def __init__(self, path: Path, *, tracks: bool, suffix: str = UUID, pid: int = 77, **environment: str) -> None:
        self.connection = sqlite3.connect(path)
        self.tracks, self.suffix, self.pid = tracks, suffix, pid
        self._strings: dict[str, int] = {}
        for name, columns in INFO.items():
            self._create(name, columns)
        for name, columns in EVENTS.items():
            self._create(
                name, (*columns, *(("track_id", "start_id", "end_id") if tracks else (*PLACE, "start", "end")))
            )
        if tracks:
            self._create("track", PLACE)
            self._create("timestamp", ("value", "phase"))
        self.add("info_node", id=9, hash=1, machine_id="m", hostname="node7")
        command, variables = "/opt/bin/train --fast", json.dumps({"RANK": "3", "TOKEN": "secret", **environment})
        self.add("info_process", id=pid, nid=9, ppid=1, pid=pid, start=1, end=2, command=command, environment=variables)
        self.add("info_thread", id=78, nid=9, pid=pid, tid=78, name=None)
        self.add("info_agent", id=0, nid=9, pid=pid, type="CPU", absolute_index=0, type_index=0, name="host")
        self.add("info_agent", id=4, nid=9, pid=pid, type="GPU", absolute_index=4, type_index=2, name="gfx942",
                 product_name="AMD Instinct MI300X", extdata=json.dumps(GPU))  # fmt: skip
        self.add(
            "info_kernel_symbol",
            id=6,
            nid=9,
            pid=pid,
            kernel_name=HSACO,
            display_name="void at::gemm<4>(int)",
            arch_vgpr_count=64,
        )
        self.add("info_kernel_symbol", id=7, nid=9, pid=pid, kernel_name="plain.kd", display_name="")

    def _create(self, name: str, columns: tuple[str, ...]) -> None:
        declared = "".join(f', "{c}"' for c in columns)
        self.connection.execute(f'CREATE TABLE "rocpd_{name}{self.suffix}" ("id" INTEGER PRIMARY KEY{declared})')

    def add(self, table: str, **row: Any) -> int:
        """Add a row, and give its number."""
        names = ", ".join(f'"{c}"' for c in row)
        statement = f'INSERT INTO "rocpd_{table}{self.suffix}" ({names}) VALUES ({", ".join("?" * len(row))})'
        return int(self.connection.execute(statement, tuple(row.values())).lastrowid or 0)

    def string(self, text: str) -> int:
        """The number of a string."""
        if text not in self._strings:
            self._strings[text] = self.add("string", string=text)
        return self._strings[text]

    def event(self, table: str, start: Any, end: Any, *, category: str, call: int, **row: Any) -> int:
        """Add an event of `table`, and give the number of its row in `rocpd_event`."""
        number = self.add(
            "event", category_id=self.string(category), stack_id=call, parent_stack_id=call, correlation_id=0
        )
        place = {"nid": 9, "pid": self.pid, "tid": 78, **{c: row.pop(c) for c in PLACE[3:] if c in row}}
        if self.tracks:
            stamps = [self.add("timestamp", value=value, phase=phase) for phase, value in ((1, start), (2, end))]
            times = {"track_id": self.add("track", **place), "start_id": stamps[0], "end_id": stamps[1]}
        else:
            times = {**place, "start": start, "end": end}
        self.add(table, event_id=number, **row, **times)
        return number

    def close(self) -> None:
        """Finish the file."""
        self.connection.commit()
        self.connection.close()


def sizes(workgroup: tuple[int, int, int], grid: tuple[int, int, int]) -> dict[str, int]:
    """The columns of sizes; the grid is in work items."""
    return dict(zip(SIZES, (*workgroup, *grid), strict=True))


def write(path: Path, *, tracks: bool = False, **about: Any) -> Path:
    """A small database: a call that launches a kernel, a copy, a ROCTx range around both, a block of memory and a
    counter."""
    made = Database(path, tracks=tracks, **about)
    at = ZERO
    made.event("region", at, at + 900, category="MARKER_CORE_RANGE_API", call=1, name_id=made.string("step 1"))
    made.event(
        "region", at + 10, at + 30, category="HIP_RUNTIME_API_EXT", call=2, name_id=made.string("hipLaunchKernel")
    )
    made.event(
        "region", at + 40, at + 90, category="HSA_AMD_EXT_API", call=3, name_id=made.string("hsa_amd_memory_async_copy")
    )
    kernel = {"kernel_id": 6, "dispatch_id": 1, "group_segment_size": 512, **sizes((256, 2, 1), (1000, 4, 1))}
    launched = made.event(
        "kernel_dispatch",
        at + 100,
        at + 300,
        category="KERNEL_DISPATCH",
        call=2,
        agent_id=4,
        queue_id=5,
        stream_id=2,
        **kernel,
    )
    kernel |= {"kernel_id": 7, "dispatch_id": 2}
    made.event(
        "kernel_dispatch",
        at + 300,
        at + 310,
        category="KERNEL_DISPATCH",
        call=4,
        agent_id=4,
        queue_id=5,
        stream_id=0,
        **kernel,
    )
    copy = {"name_id": made.string("MEMORY_COPY_HOST_TO_DEVICE"), "dst_agent_id": 4, "src_agent_id": 0, "size": 4096}
    made.event("memory_copy", at + 50, at + 80, category="MEMORY_COPY", call=3, queue_id=6, stream_id=2, **copy)
    block = {"type": "ALLOC", "level": "REAL", "address": 0x7000, "size": 64}
    made.event("memory_allocate", at + 5, at + 6, category="MEMORY_ALLOCATION", call=5, agent_id=4, **block)
    made.event(
        "memory_allocate",
        at + 7,
        at + 8,
        category="SCRATCH_MEMORY",
        call=6,
        agent_id=4,
        **{**block, "level": "SCRATCH"},
    )
    made.add("info_pmc", id=11, nid=9, pid=made.pid, agent_id=4, name="SQ_WAVES", symbol="SQ_WAVES")
    made.add("pmc_event", event_id=launched, pmc_id=11, value=1024.0)
    made.close()
    return path
