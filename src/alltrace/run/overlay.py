"""An alignment as a run sees it: where it is kept, whether it is of this run, and clocks in place of the manifest's.

How an alignment is made is the business of `alltrace.align`; a run only needs its clocks and the table `collectives`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.run.checksums import CheckedFiles, RankFiles, files_of
from alltrace.run.derived import code_version
from alltrace.run.gpu_logs import GPU_LOG
from alltrace.run.inspector_logs import INSPECTOR
from alltrace.run.json_files import read_json
from alltrace.run.manifest import Clock, LogMatch, Manifest, RankRecord, plain
from alltrace.run.nccl_logs import NEAR_CPUS
from alltrace.trace.errors import AlltraceError
from alltrace.trace.schema import Column, Table

ALIGN = "align"
FACTS = "alignment.json"
MEMBERS = Table(
    "members",
    "One rank's operation within a matched instance; an instance has at least two rows, of different ranks.",
    (
        Column("instance", "int64", None, "number of the instance, 0-based, in order of its first end"),
        Column(
            "communicator",
            "int64",
            None,
            "number of the communicator over all ranks, row of `groups` in alignment.json",
        ),
        Column("ordinal", "int64", None, "number of the instance within its communicator"),
        Column("rank", "int32", None, "rank"),
        Column("row", "int64", None, "row of the rank's `collectives`"),
        Column(
            "start",
            "time",
            "ns",
            "start on the device, or of the call where only that is known; time of the rank's files",
        ),
        Column("end", "time", "ns", "end, likewise"),
        Column("confidence", "float64", None, "1 for an identity from the profiler; less for an inferred match"),
    ),
    (),
    None,
)

STEPS = Table(
    "steps",
    "One training step of one rank.",
    (
        Column("rank", "int32", None, "rank"),
        Column(
            "step",
            "int64",
            None,
            "number of the step, equal on all ranks; from the program's name of it where it has one",
        ),
        Column("start", "time", "ns", "start on the host, time of the rank's files"),
        Column("end", "time", "ns", "end on the host"),
        Column(
            "device_start",
            "time",
            "ns",
            "first start of its device work, or of its host's in a run without any; null without both",
        ),
        Column("device_end", "time", "ns", "last end of that work"),
        Column("kind", "enum", None, "step, warm-up or checkpoint"),
        Column(
            "source", "enum", None, "what it was found by: range, kernels, collectives, or log for the training log"
        ),
    ),
    (),
    None,
)

SHARED_TABLES: dict[str, Table] = {table.name: table for table in (MEMBERS, STEPS, GPU_LOG, INSPECTOR, NEAR_CPUS)}
"""The tables with all ranks in one file: those of an alignment, and what a job's logs state of ranks."""

ALIGNED_TABLES = ("collectives", MEMBERS.name, STEPS.name)  # all tables that come from the alignment


class Overlay(NamedTuple):
    """A stored alignment of a run."""

    files: CheckedFiles  # its files, in `RUN/align`, or in a folder of the cache where the run cannot be written
    clocks: tuple[Clock, ...]  # one per host
    stamp_errors_ns: Mapping[int, int]  # for each rank how far its UTC stamp is ahead of its host's clock
    rows: Mapping[int, int]  # for each rank the rows of `collectives`
    facts: Mapping[str, Any]  # all of `alignment.json`
    log_matches: tuple[LogMatch, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return self.files.folder

    def over(self, manifest: Manifest) -> Manifest:
        """`manifest` with the alignment's clocks, stamp errors and matches of logs."""
        ranks = [r._replace(stamp_error_ns=self.stamp_errors_ns.get(r.rank, 0)) for r in manifest.ranks]
        return replace(manifest.with_ranks(ranks), clocks=self.clocks or manifest.clocks, log_matches=self.log_matches)

    def collectives(self, rank: int) -> Path:
        """The file of one rank's `collectives`, checked. Raises `DamageError`: it is not as it was written."""
        return self.files.path(collectives_file(rank))


def shared_file(files: RankFiles, overlay: Overlay | None, table: str) -> Path | None:
    """The file of one of `SHARED_TABLES`, checked; None without one. Raises `DamageError`: it is not as written."""
    logged = table in (GPU_LOG.name, INSPECTOR.name, NEAR_CPUS.name)
    folder, name = files.logs() if logged else overlay.files if overlay is not None else None, f"{table}.parquet"
    return folder.path(name) if folder is not None and folder.has(name) else None


def collectives_file(rank: int) -> str:
    """The file of one rank's `collectives`, relative to the alignment's folder."""
    return f"collectives/rank={rank}.parquet"


def signature(manifest: Manifest) -> str:
    """What an alignment is made from: the ranks, their reports' contents and rows, and the code that makes it."""
    reports = [(r.content_hash, r.system_clock_ns) for r in manifest.reports]
    ranks = [
        (
            r.rank,
            r.host,
            r.time_base_utc_ns,
            r.start_ns,
            r.end_ns,
            sorted(r.rows.items()),
            [reports[i] for i in r.reports],
        )
        for r in manifest.ranks
    ]
    made_from: list[Any] = [code_version(), manifest.zero_utc_ns, manifest.kernel_rules, manifest.complete, ranks]
    logs = [(log.kind, log.content_hash) for log in manifest.logs if log.kind != "gpu"]
    if logs:
        made_from.append(logs)
    return blake2b(json.dumps(made_from).encode(), digest_size=16).hexdigest()


def rank_signature(manifest: Manifest, rank: RankRecord) -> str:
    """What parts of a rank are made from: rank and reports as imported, which kernels meet, the code; not its clock."""
    reports = [(manifest.reports[i].content_hash, manifest.reports[i].system_clock_ns) for i in rank.reports]
    own = plain(rank._replace(stamp_error_ns=0, reports=()))
    meeting = [m.name for m in manifest.meeting]
    text = json.dumps([code_version(), manifest.kernel_rules, own, reports, *meeting], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def unaligned(manifest: Manifest) -> Manifest:
    """`manifest` as imported: each host's own UTC is believed. Clocks without evidence are no alignment's and stay."""
    if not any(c.evidence for c in manifest.clocks):
        return manifest
    clocks = tuple(Clock(c.host, component=n) for n, c in enumerate(manifest.clocks))
    return replace(manifest.with_ranks(r._replace(stamp_error_ns=0) for r in manifest.ranks), clocks=clocks)


def find_overlay(manifest: Manifest, folder: Path) -> Overlay | None:
    """The alignment kept in `folder`; None if there is none, its facts are damaged, or it is of other ranks or rows."""
    try:
        facts = read_json(folder / FACTS)
        if facts["signature"] != signature(manifest):
            return None
        return Overlay(
            CheckedFiles(folder, files_of(facts, folder / FACTS)),
            tuple(Clock(**c) for c in facts["clocks"]),
            {int(k): int(v) for k, v in facts["stamp_errors_ns"].items()},
            {int(k): int(v) for k, v in facts["rows"].items()},
            facts,
            tuple(LogMatch(**m) for m in facts.get("log_matches", ())),
        )
    except (AlltraceError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
