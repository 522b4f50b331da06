"""The facts of a run: its reports, ranks, clocks and what was left out, as `manifest.json` at the run's root."""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from alltrace.readers.base import ReportWarning
from alltrace.run.json_files import read_json, read_unchecked, write_json
from alltrace.trace.errors import DamageError, InputError, printable
from alltrace.trace.schema import FORMAT_VERSION
from alltrace.trace.side_file_words import ROLE

# What reports warn of: by opening them, by reading them, and what is wrong with rows of single ranks.


class Warned(NamedTuple):
    """A warning, and who it is of."""

    warning: ReportWarning  # the warning, its `number` that of all these ranks
    ranks: tuple[int, ...]  # the ranks with affected answers, by number


def warnings_of(manifest: "Manifest", ranks: Iterable["RankRecord"]) -> list[Warned]:
    """The warnings that touch some ranks, each once; one of a report counts once, independent of its ranks."""
    return _gathered(manifest, [(rank, report) for rank in ranks for report in rank.reports])


def warnings_of_report(manifest: "Manifest", report: int) -> list[ReportWarning]:
    """The warnings of one report, in its row of `Manifest.reports`, and of the rows that ranks have of it."""
    warned = _gathered(manifest, [(rank, report) for rank in manifest.ranks_of_report.get(report, ())])
    return [w.warning for w in warned] or list(manifest.reports[report].warnings)


def _gathered(manifest: "Manifest", pairs: Iterable[tuple["RankRecord", int]]) -> list[Warned]:
    by_text: dict[tuple[str, tuple[str, ...]], Warned] = {}
    counted: set[tuple[int, ReportWarning]] = set()
    for rank, report in pairs:
        for warning, again in _warnings(manifest, rank, report, counted):
            key = warning.text, warning.tables
            before = by_text.get(key)
            if before is None:
                by_text[key] = Warned(warning, (rank.rank,))
                continue
            number = before.warning.number
            if number is not None and warning.number is not None and not again:
                number += warning.number
            ranks = before.ranks if before.ranks[-1] == rank.rank else (*before.ranks, rank.rank)
            by_text[key] = Warned(warning._replace(number=number), ranks)
    return list(by_text.values())


def _warnings(
    manifest: "Manifest", rank: "RankRecord", report: int, counted: set[tuple[int, ReportWarning]]
) -> Iterator[tuple[ReportWarning, bool]]:
    """The warnings of a rank's part of a report, and whether each was counted with another rank's."""
    for warning in (*manifest.reports[report].warnings, *rank.warnings.get(str(report), ())):
        yield warning, (report, warning) in counted
        counted.add((report, warning))
    for warning in rank.row_warnings.get(str(report), ()):
        yield warning, False


MANIFEST = "manifest.json"
RANKS = "ranks"
RANK_RECORD = "rank.json"
RECORDED = "recorded-"
"""Before the name of the file of a table with all rows of its reports, where questions leave some out."""

NAMES = "names.parquet"

Made = TypeVar("Made")

_WITHOUT_CHECKSUMS = range(1, 2)  # format versions without checksums


class ReportRecord(NamedTuple):
    """One report of a run."""

    path: str  # the report, as given
    size_bytes: int  # its size; of a folder, the sum of its files
    content_hash: str  # XXH3-128 of its bytes, in hex
    format: str = ""  # the reader that read it
    profiler: str = ""  # profiler and version
    schema_version: str | None = None  # version of the format, or None
    host: str | None = None  # host name, or None if the report does not say
    utc_ns: int | None = None  # UTC at the report's time 0, by the host's clock, or None
    environment: Mapping[str, str] = {}  # the allow-listed variables
    environment_removed: int = 0  # how many other variables were left out
    warnings: tuple[ReportWarning, ...] = ()  # what opening it found that a user should know
    error: str | None = None  # why it could not be read, or None
    system_clock_ns: int | None = None  # the host's monotonic clock at the report's time 0, or None
    session_ns: int | None = None  # how long the session of its profiler took, or None


class Device(NamedTuple):
    """A GPU of a rank: `device` is its row in the rank's `devices`; (host, uuid or bus id) is who it is."""

    device: int
    ordinal: int | None
    uuid: str | None
    bus_id: str | None
    name: str | None
    host: str

    @property
    def identity(self) -> tuple[str, str]:
        """(host, UUID), or bus id, or CUDA ordinal where the report has nothing better."""
        return self.host, self.uuid or self.bus_id or f"ordinal {self.ordinal}"


class MissingRecords(NamedTuple):
    """Records of one kind that are missing in a rank's tables (`alltrace.run.missing_records`)."""

    what: str  # `kernels` of launches, `launches` of kernels, or what `graphs` ran
    number: int  # how many launches, or kernels of `launches`, have none
    of: int  # how many there are
    start_ns: int  # when the first of them was launched, of `launches` when it ran, in the time of the rank's files
    end_ns: int  # when the last was
    place: str  # where they are: at the `start`, at the `end`, in a few `places`, `spread`, or `everywhere`


class MeetingKernel(NamedTuple):
    """A kernel that no rule names and in which all ranks of a host meet (`alltrace.run.meeting_kernels`)."""

    name: int  # id of its name
    apart: int  # how many of its compared instances the ranks began apart
    met: int  # how many of these they ended together


class RankRecord(NamedTuple):
    """One rank of a run."""

    rank: int  # its number
    local_rank: int  # its number on its host
    host: str  # its host; hosts that no report names are called `host-?` by report
    pids: tuple[int, ...]  # its processes' ids
    devices: tuple[Device, ...]  # the GPUs it used
    rank_source: str  # how its number was found, such as `MPI_RANKS`, `RANK`, `file name` or `order`
    reports: tuple[int, ...]  # rows of `Manifest.reports`
    time_base_utc_ns: int | None = None  # UTC of the zero of the times in its files, by its host's clock, or None
    start_ns: int | None = None  # first start of any event, in the time of its files; None without events
    end_ns: int | None = None  # last end of any event
    rows: Mapping[str, int] = {}  # row count of each table it has
    open_end_ns: int | None = None  # where a range that was still open is taken to end, in the time of its files
    stamp_error_ns: int = 0  # how far `time_base_utc_ns` is ahead of its host's clock, from matched collectives
    # warnings found only by reading a report, by its row of `Manifest.reports` in decimals
    warnings: Mapping[str, tuple[ReportWarning, ...]] = {}
    # what is wrong with the rows that the rank has of a report, likewise
    row_warnings: Mapping[str, tuple[ReportWarning, ...]] = {}
    lacking: Mapping[str, tuple[str, ...]] = {}  # the columns that have no value in any row, of each table it has
    missing_records: tuple[MissingRecords, ...] = ()  # the kinds of records that its reports lost
    # when work of which no record is there may have run: (start, end), ascending, in the time of its files
    unrecorded: tuple[tuple[int, int], ...] = ()
    # the spans that were recorded, if nothing was between them, likewise; else none
    windows: tuple[tuple[int, int], ...] = ()
    # why its times cannot be compared with other ranks', such as "its clock steps back by 20 ms"; None if they can
    doubt: str | None = None

    @property
    def folder(self) -> str:
        """Its folder, relative to the run."""
        return rank_folder(self.rank)


class LogRecord(NamedTuple):
    """A log of the job that was imported with its reports."""

    path: str  # the log, as given
    kind: str  # `nccl`, `training`, `gpu` or `inspector`
    size_bytes: int  # its size
    content_hash: str  # XXH3-128 of its bytes, in hex
    records: int  # calls of NCCL, steps, samples of the run's GPUs, or operations of its ranks


class LogMatch(NamedTuple):
    """How the calls in NCCL's logs fit one rank's operations, as the alignment found."""

    rank: int  # the rank
    found_by: str  # how its log was found: `process` (host and process id), `rank` (its number alone) or `none`
    calls: int  # its calls in the logs
    operations: int  # operations of NCCL in its trace
    covered: int = 0  # operations within the log
    matched: int = 0  # operations with a matched call
    filled: int = 0  # operations that were completed from it
    disagreeing: int = 0  # operations with different sizes in the trace and in the log; the trace's stays
    from_others: int = 0  # operations that got their size from the same instance on other ranks
    reason: str | None = None  # why nothing was joined, or None


class Clock(NamedTuple):
    """The clock of one host against the first host's."""

    host: str  # the host
    offset_ns: int = 0  # how far it is ahead of the first host's clock, at the run's start
    drift_ppm: float = 0.0  # how much faster it runs
    # typical scatter of the ends of collectives by these clocks, or None with too little evidence
    residual_ns: int | None = None
    evidence: int = 0  # collectives used
    # hosts with the same number were connected by evidence; across numbers only UTC stamps connect them
    component: int = 0
    # half of the 95 % interval of its offset in the time of its evidence; None with too little of it
    error_ns: int | None = None


class Labels(NamedTuple):
    """What distinguishes a run from others of its job, and the job from other jobs."""

    job: str | None = None  # the job's name, equal in all its runs; None if it is not set
    revision: str | None = None  # the version of the program that ran, such as a git commit, or None
    tags: tuple[str, ...] = ()  # further words for it, such as `nightly`


_DEVICE_WORK = ("kernels", "copies", "graphs")
_HOST_WORK = ("ranges", "mpi", "collectives")


@dataclass(frozen=True)
class Manifest:
    """A run's facts."""

    reports: tuple[ReportRecord, ...] = ()  # the reports, those that could not be read among them
    ranks: tuple[RankRecord, ...] = ()  # the ranks that were imported, by number
    clocks: tuple[Clock, ...] = ()  # one per host, the first host first
    zero_utc_ns: int | None = None  # UTC of the run's time 0, by the first host's clock, or None
    missing_ranks: tuple[int, ...] = ()  # numbers of ranks that the job had but no report is there for
    notes: tuple[str, ...] = ()  # what a reader must know, each one sentence
    redactions: tuple[str, ...] = ()  # what was left out on purpose, in words
    tables: tuple[str, ...] | None = None  # the selected canonical event tables; None means all
    complete: bool = False  # whether the import has finished
    kernel_rules: str = ""  # fingerprint of the kernel rules that `kernels.kind` was made with
    logs: tuple[LogRecord, ...] = ()  # the logs of the job that were imported with the reports
    log_matches: tuple[LogMatch, ...] = ()  # how NCCL's logs fit each rank, once the run was aligned
    # the checksum of `names.parquet`, once the import has finished
    files: Mapping[str, str] = field(default_factory=dict)
    labels: Labels = field(default_factory=Labels)  # what distinguishes the run from others
    # kernels without a rule in which ranks meet: readers see their `kind` as `meeting`
    meeting: tuple[MeetingKernel, ...] = ()
    format_version: int = FORMAT_VERSION  # version of this layout

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts, in the order of their first rank."""
        return tuple(self.ranks_of_host)

    @cached_property
    def ranks_of_host(self) -> Mapping[str, tuple[RankRecord, ...]]:
        """The ranks of each host, by number."""
        by_host: dict[str, list[RankRecord]] = {}
        for rank in self.ranks:
            by_host.setdefault(rank.host, []).append(rank)
        return {host: tuple(ranks) for host, ranks in by_host.items()}

    @cached_property
    def ranks_of_report(self) -> Mapping[int, tuple[RankRecord, ...]]:
        """The ranks that have something of each report, by its row of `reports`."""
        by_report: dict[int, list[RankRecord]] = {}
        for rank in self.ranks:
            for report in rank.reports:
                by_report.setdefault(report, []).append(rank)
        return {report: tuple(ranks) for report, ranks in by_report.items()}

    @cached_property
    def clock_of_host(self) -> Mapping[str, Clock]:
        """The clock of each host that has one."""
        return {clock.host: clock for clock in self.clocks}

    @cached_property
    def _has_device_work(self) -> bool:
        return any(r.rows.get(table) for r in self.ranks for table in _DEVICE_WORK)

    def works_on_host(self, rank: RankRecord) -> bool:
        """Whether nothing of the run ran on a device, and the rank's reports show what its host did."""
        return any(rank.rows.get(table) for table in _HOST_WORK) and not self._has_device_work

    def role_of(self, rank: RankRecord) -> str | None:
        """What a rank does in a program of several groups of ranks, such as `actor`; None if its reports do not say."""
        return next((role for n in rank.reports if (role := self.reports[n].environment.get(ROLE)) is not None), None)

    def with_ranks(self, ranks: Iterable[RankRecord]) -> "Manifest":
        """The same facts with other ranks, sorted by number."""
        return replace(self, ranks=tuple(sorted(ranks, key=lambda r: r.rank)))


def is_run(path: Path) -> bool:
    """Whether `path` is a run directory, complete or not; other programs have a `manifest.json` too."""
    try:
        return (path / MANIFEST).is_file() and (path / RANKS).is_dir()
    except OSError:
        return False


def rank_folder(rank: int) -> str:
    """The folder of a rank, relative to the run."""
    return f"{RANKS}/rank={rank}"


def write_manifest(run: Path, manifest: Manifest) -> None:
    """Write `manifest.json` of the run at `run`, atomically; one that is not complete need not outlast a power cut."""
    facts: dict[str, Any] = plain(replace(manifest, reports=(), ranks=()))
    many = {"reports": _Plain(manifest.reports), "ranks": _Plain(manifest.ranks)}
    write_json(run / MANIFEST, {**facts, **many}, lasting=manifest.complete)


class _Plain(list[Any]):
    """Records, each made `plain` where it is written, because a run has thousands."""

    def __iter__(self) -> Iterator[Any]:
        return map(plain, super().__iter__())


def read_manifest(run: Path) -> Manifest:
    """The facts of the run at `run`. Raises `InputError`: its manifest is missing, damaged or another version's."""
    path = run / MANIFEST
    try:
        value = read_json(path, "a run directory made by `alltrace import`")
    except DamageError:
        value = read_unchecked(path)
        version = value.get("format_version")
        if isinstance(version, int) and version in _WITHOUT_CHECKSUMS:
            raise _other_version(path, value) from None
        raise
    if value.get("format_version") != FORMAT_VERSION:
        raise _other_version(path, value)
    try:
        return _manifest_from(value)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            path, found=f"a damaged manifest ({printable(str(error))})", advice="import the reports again"
        ) from error


def _other_version(path: Path, value: Mapping[str, Any]) -> InputError:
    reports = value.get("reports")
    paths = [str(r.get("path", "")) for r in reports if isinstance(r, dict)] if isinstance(reports, list) else []
    folders = {os.path.dirname(p) or "." for p in paths}  # noqa: PTH120  it may be the path of another system
    source = shlex.quote(printable(folders.pop())) if len(folders) == 1 else "REPORT..."
    return InputError(
        path,
        found=f"format version {value.get('format_version')!r}",
        expected=f"version {FORMAT_VERSION}",
        advice=f"import the reports again: `alltrace import {source} -o {shlex.quote(str(path.parent))}`",
    )


def plain(value: Any) -> Any:
    """`value` with the records in it, as the ones above or dataclasses, as objects of JSON."""
    if value is None or isinstance(value, (str, int)):
        return value
    fields = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    if fields is not None:
        return {name: plain(getattr(value, name)) for name in fields}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def rank_from_json(value: Mapping[str, Any]) -> RankRecord:
    """The rank that `plain` made JSON of. Raises `TypeError` and `ValueError`: a fact is missing, or cannot be."""
    rank: RankRecord = _record(RankRecord, value)
    return _sound(rank)


def record_from_json(kind: type[Made], value: Mapping[str, Any]) -> Made:
    """The record that `plain` made JSON of. Raises `TypeError`: a fact is missing, of another type, or too many."""
    record: Made = _record(kind, value)
    return record


def _sound(rank: RankRecord) -> RankRecord:
    if rank.rank < 0 or any(n < 0 for n in rank.rows.values()):
        raise ValueError(f"rank {rank.rank} has a negative number or negative row counts")
    if any(len(span) != 2 for span in (*rank.unrecorded, *rank.windows)):
        raise ValueError(f"rank {rank.rank} has a span that is not a pair of times")
    return rank


def _manifest_from(value: Mapping[str, Any]) -> Manifest:
    manifest: Manifest = _record(Manifest, value)
    numbers = [_sound(r).rank for r in manifest.ranks]
    if numbers != sorted(set(numbers)):
        raise ValueError("its ranks are not in order, each once")
    if any(not 0 <= i < len(manifest.reports) for r in manifest.ranks for i in r.reports):
        raise ValueError("a rank names a report that is not listed")
    return manifest


def _record(kind: Any, facts: Any) -> Any:
    """A record of a kind from an object of JSON, each fact of which is seen to be what the annotations say."""
    readers, read = _readers(kind), {}
    for name, value in _seen(facts, dict).items():
        if name not in readers:
            raise TypeError(f"{kind.__name__} has no {name}")
        try:
            read[name] = readers[name](value)
        except _WrongError:
            raise TypeError(f"{kind.__name__}.{name} is {value!r:.60}") from None
    # runs of earlier versions lack what may be unknown
    unknown = {name for name, value in getattr(kind, "_field_defaults", {}).items() if value is None}
    if lacking := readers.keys() - read.keys() - unknown:
        raise TypeError(f"{kind.__name__} lacks {min(lacking)}")
    return kind(**read)


class _WrongError(TypeError):
    """A value is of another type."""


@cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any]]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """A function that makes a value of the type `hint`, one of those that the records above use, of one of JSON."""
    origin, inside = get_origin(hint), [_reader(h) for h in get_args(hint) if h not in (type(None), ...)]
    if origin in (Union, UnionType):
        return lambda value: None if value is None else inside[0](value)
    if origin is tuple:
        return lambda value: tuple(map(inside[0], _seen(value, list)))
    if origin is Mapping:
        return lambda value: {inside[0](k): inside[1](v) for k, v in _seen(value, dict).items()}
    if hasattr(hint, "_fields"):
        return lambda value: _record(hint, value)
    if hint is float:
        return lambda value: _seen(value, (int, float), isfinite)
    if hint is int:
        return lambda value: _seen(value, int, lambda number: -(1 << 63) <= number < 1 << 63)
    return lambda value: _seen(value, hint)


def _seen(value: Any, kind: Any, fits: Callable[[Any], bool] | None = None) -> Any:
    """`value`, which is of a kind; to Python true and false are whole numbers as well."""
    if (
        not isinstance(value, kind)
        or isinstance(value, bool) != (kind is bool)
        or (fits is not None and not fits(value))
    ):
        raise _WrongError
    return value
