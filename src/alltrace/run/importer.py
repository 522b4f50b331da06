"""Makes a run directory from reports: who is which rank, then every rank's tables, atomically and resumable.

Each rank is written to a temporary folder and renamed once it is complete, with `rank.json` inside that lists its
inputs. To resume an interrupted import, run it again: existing ranks that were made from the same reports are kept,
everything else is made again. The nodes of a job may each import their own reports as parts of one run, which is then
finished without opening a report.
"""

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.engine.tasks import default_jobs, remote, run_tasks
from alltrace.readers.base import Report, ReportReader, ReportWarning
from alltrace.readers.registry import open_report
from alltrace.run.bounds import MOST_TIME_NS
from alltrace.run.checksums import CheckedFiles, checksum, files_of, write_rank_record
from alltrace.run.derived import draft_of
from alltrace.run.discover import TO_EXPORT, Fetch, find_reports, outdated
from alltrace.run.host_paths import host_path, naming_host
from alltrace.run.identity import Plan, RankPlan, natural_key
from alltrace.run.import_progress import Watcher
from alltrace.run.json_files import read_json
from alltrace.run.labels import with_defaults
from alltrace.run.manifest import (
    MANIFEST,
    NAMES,
    RANK_RECORD,
    RANKS,
    Clock,
    Labels,
    Manifest,
    RankRecord,
    ReportRecord,
    rank_folder,
    rank_from_json,
    write_manifest,
)
from alltrace.run.meeting_kernels import find_meeting_kernels
from alltrace.run.names import Names
from alltrace.run.parquet import write_parquet
from alltrace.run.parts import PARTS, Part, part_of, read_parts, write_part
from alltrace.run.rank_import import RankTask, Readers, import_ranks
from alltrace.run.rank_tasks import ROWS, Probe, RankTasks, signature_of
from alltrace.run.report_hash import Content, file_stamps, hashing
from alltrace.run.same_recording import planned
from alltrace.run.shared_place import shared_place, shared_reports
from alltrace.run.side_files import side_file_of
from alltrace.run.verify import remove_damaged_folders
from alltrace.trace.errors import AlltraceError, InputError, StrictError, UsageError, printable
from alltrace.trace.kernel_rules import KernelRules, built_in_rules
from alltrace.trace.number_text import number_ranges
from alltrace.trace.schema import EVENT_TABLES, TABLES
from alltrace.trace.scratch import scratch_folder
from alltrace.trace.side_file_words import ROLE

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "a file in it would exceed the allowed file size",
}
_ROWS_WORTH_A_PROCESS = 3_000_000
"""Starting a process and loading its code takes as long as a million rows; and a reader already has its own threads."""

_FEW_REPORTS = 16
_QUICK_LOOK = ".sqlite"
"""A first look at such a report takes three milliseconds, and what its hash takes."""

_LOOKS_WORTH_A_PROCESS = 500
_BYTES_WORTH_A_PROCESS = 2 << 30

_OTHER_NAME = "give another name with -o"
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)


class _Planned(NamedTuple):
    """What is to be imported."""

    probes: Sequence[Probe]  # of all reports
    taken: Sequence[int]  # those that are read, by number; the others are doubles
    plan: Plan
    facts: Manifest


class _Look(NamedTuple):
    """A first look that is to be taken at a report."""

    path: str
    wanted: tuple[str, ...]  # the tables with rows to estimate
    known: Content | None  # what the report holds, where it was found out already
    scratch: str  # a folder for reusable intermediate files, if there is space for all reports; empty for none
    reports: int  # how many reports there are
    stays: bool  # whether its reader stays open


def import_reports(
    inputs: Sequence[str],
    output: Path,
    *,
    tables: Collection[str] | None = None,
    jobs: int | None = None,
    strict: bool = False,
    rules: KernelRules | None = None,
    fetch: Fetch | None = None,
    watcher: Watcher | None = None,
    nccl_logs: Sequence[str] = (),
    training_logs: Sequence[str] = (),
    training_patterns: Sequence[str] = (),
    gpu_logs: Sequence[str] = (),
    gpu_log_offset_ns: int | None = None,
    inspector_logs: Sequence[str] = (),
    known: Mapping[str, Content] | None = None,
    labels: Labels | None = None,
    rank_from: str | None = None,
) -> Manifest:
    """Make the run directory `output` from the reports that `inputs` name, or bring it up to date.

    `inputs`: files, folders, patterns and URLs; none for the reports that `import_part` has imported into `output`.
    `output`: the run directory; made where it does not exist. A folder that holds anything else is refused.
    `tables`: the canonical event tables wanted; None for all. `strict`: whether a report that cannot be read is an
    error. `rules`: the kernel rules that `kernels.kind` is made with. `fetch`: brings what is at URLs onto this
    machine. `nccl_logs`: logs of NCCL of the same job, to join with the reports: files, folders and patterns.
    `training_logs`: its training logs, likewise. `training_patterns`: regular expressions for their lines of steps
    (`alltrace.readers.training_log.formats.own_pattern`). `gpu_logs`: logs of its GPUs, likewise.
    `gpu_log_offset_ns`: how far their local times are ahead of UTC, ns; None if unknown. `inspector_logs`: files of
    NCCL Inspector, likewise. `known`: what reports hold, by path, where it was found out already. `labels`: what
    identifies the run; missing labels come from the reports. `rank_from`: a regular expression with a group `rank`
    that finds the rank of a report in its path; None without one. Returns the run's facts, as written to
    `manifest.json`. Raises `InputError`: no report can be read, or `output` cannot be written. Raises
    `StrictError`: a report cannot be read, with `strict`. Raises `UsageError`: `rank_from` is not such an
    expression, or the reports are of several jobs.
    """
    watcher = watcher or Watcher()
    rules = rules or built_in_rules()
    parts = read_parts(output)
    wanted = tuple(t for t in EVENT_TABLES if tables is None or t in tables)
    with ExitStack() as opened:
        watcher.looking()
        seen = opened.enter_context(shared_place(output))
        reports = find_reports(inputs, fetch) if inputs else _parts_of(output, parts)
        if remote():  # workers may be started in another folder
            output = output.absolute()
            reports = [path if host_path(str(path)).host else path.absolute() for path in reports]
        opened.enter_context(shared_reports(reports))
        watcher.listed(len(reports))
        scratch = opened.enter_context(_scratch(reports, output))
        readers: Readers = {}
        opened.callback(_close, readers)
        probes = _probe_all(reports, wanted, jobs, known or {}, scratch, parts, readers, watcher)
        _check_readable(probes, strict)

        def plan_of(probes: Sequence[Probe]) -> _Planned:
            taken, plan = planned(reports, probes, rank_from)
            only = None if tables is None else wanted
            facts = _facts(plan, [probes[n] for n in taken], only, rules, labels or Labels())
            return _Planned(probes, taken, plan, facts)

        work = plan_of(probes)
        try:
            _prepare(output)
            with _alone(output):
                _clear(output, seen)
                remove_damaged_folders(output)
                imported = _import_planned(output, work, plan_of, wanted, jobs, strict, rules, watcher, readers)
                logs = nccl_logs, training_logs, gpu_logs, gpu_log_offset_ns, training_patterns, inspector_logs
                return _with_logs(output, imported, logs, jobs)
        except OSError as error:
            raise _write_error(output, error) from error


def import_part(
    inputs: Sequence[str],
    output: Path,
    *,
    tables: Collection[str] | None = None,
    jobs: int | None = None,
    rules: KernelRules | None = None,
    fetch: Fetch | None = None,
    watcher: Watcher | None = None,
    rank_from: str | None = None,
) -> list[RankRecord]:
    """Commit the ranks of some reports of a job to the run directory `output`, while others do so with other reports.

    `import_reports` finishes the run. It reads a report again only if those of other parts show that it belongs to
    another rank. `inputs`: all reports of one rank, or of several; the others are as later passed to `import_reports`.
    Raises `InputError`: a report cannot be read, or `output` cannot be written.
    """
    watcher = watcher or Watcher()
    rules = rules or built_in_rules()
    watcher.looking()
    paths = find_reports(inputs, fetch)
    if (other := next((path for path in paths if host_path(str(path)).host is not None), None)) is not None:
        raise UsageError(
            f"{printable(str(other))}: --part imports reports that this host sees; leave out --dask, --slurm and --pbs"
        )
    reports = [p.absolute() for p in paths]
    watcher.listed(len(reports))
    wanted = tuple(t for t in EVENT_TABLES if tables is None or t in tables)
    with _scratch(reports, output) as scratch, ExitStack() as opened:
        try:
            stamps = [file_stamps(p) for p in reports]
            readers: Readers = {}
            opened.callback(_close, readers)
            probes = _probe_all(reports, wanted, jobs, {}, scratch, {}, readers, watcher)
            _check_readable(probes, strict=True)
            taken, plan = planned(reports, probes, rank_from)
            probes, stamps = [probes[n] for n in taken], [stamps[n] for n in taken]
            _prepare(output)
            with _alone(output, among_parts=True):
                jobs = _processes_worth(sum(p.rows for p in probes)) if jobs is None else jobs
                tasks = RankTasks(output, plan, plan.ranks, probes, wanted, rules, readers)
                watcher.planned(len(plan.ranks), sum(p.rows for p in probes))
                ranks = [
                    r for o in run_tasks(import_ranks, tasks, jobs=jobs, progress=watcher.advance) for r in o.get()
                ]
                for probe, seen in zip(probes, stamps, strict=True):
                    if probe.report is not None:
                        content = Content(seen, probe.record.content_hash)
                        write_part(output, Part(content, probe.record, probe.report, probe.rows))
                return ranks
        except OSError as error:
            raise _write_error(output, error) from error


def _close(readers: Readers) -> None:
    for reader in readers.values():
        reader.close()


def _parts_of(output: Path, parts: Mapping[str, Part]) -> list[Path]:
    if not parts:
        raise InputError(
            output, found="it has no part of a run", expected="parts made by `alltrace import REPORT --part -o RUN`"
        )
    return sorted(map(Path, parts), key=lambda p: natural_key(str(p)))


@contextmanager
def _scratch(reports: Sequence[Path], output: Path) -> Iterator[str]:
    """A temporary folder with one for each report, for what reading it makes; empty if no report is of that kind.

    It is next to the run if other machines import, since they share no other folder.
    """
    if not any(p.name.lower().endswith(TO_EXPORT) for p in reports):
        yield ""
        return
    beside = next(p for p in output.absolute().parents if p.is_dir()) if remote() else None
    with scratch_folder("alltrace-exports-", beside) as folder:
        for n in range(len(reports)):
            (Path(folder) / str(n)).mkdir()
        yield folder


def _import_planned(
    output: Path,
    work: _Planned,
    plan_of: Callable[[Sequence[Probe]], _Planned],
    wanted: tuple[str, ...],
    jobs: int | None,
    strict: bool,
    rules: KernelRules,
    watcher: Watcher,
    readers: Readers,
) -> Manifest:
    """Import what is planned; a rank one of whose reports turns out to be damaged, from others that have it too."""
    is_new = not (output / MANIFEST).exists()
    plan, manifest = work.plan, work.facts
    probes = [work.probes[n] for n in work.taken]
    unchanged = _intact_ranks(output, plan, lambda rank: signature_of(rank, probes, wanted, rules))
    todo = [r for r in plan.ranks if r.rank not in unchanged]
    if jobs is None and not remote():
        jobs = _processes_worth(sum(probes[i].rows for i in {s.report for r in todo for s in r.sources}))
    tasks = RankTasks(output, plan, todo, probes, wanted, rules, readers)
    watcher.planned(len(todo), sum(probes[i].rows for i in {s.report for r in todo for s in r.sources}))
    write_manifest(output, manifest.with_ranks(unchanged.values()))
    done = dict(unchanged)
    failed: list[tuple[RankTask, AlltraceError]] = []
    for outcome in run_tasks(import_ranks, tasks, jobs=jobs, progress=watcher.advance, hosts=tasks.hosts()):
        if outcome.error is not None:
            failed.append((tasks[outcome.index], outcome.error))
            continue
        for rank in outcome.get():
            done[rank.rank] = rank
            watcher.rank_done(1)
    damaged = {work.taken[i]: str(error) for task, error in failed for i in _reports_named(task, error)}
    readable = [p if n not in damaged else p.unreadable(damaged[n]) for n, p in enumerate(work.probes)]
    in_part = bool(done) or (bool(damaged) and any(p.report for p in readable))
    if damaged and in_part and not strict:
        others = plan_of(readable)
        if {r.rank for r in others.plan.ranks} >= {r.rank for r in plan.ranks}:
            return _import_planned(output, others, plan_of, wanted, jobs, strict, rules, watcher, readers)
    if failed and (strict or not done):
        first = failed[0][1]
        if is_new and not done:  # nothing to continue with
            shutil.rmtree(output, ignore_errors=True)
        raise StrictError(str(first)) if strict and in_part else first
    return _finish(output, _without(manifest, failed).with_ranks(done.values()))


def _processes_worth(rows: int) -> int:
    """The most processes that this many rows keep busy for longer than they take to start."""
    return min(default_jobs(), 1 + rows // _ROWS_WORTH_A_PROCESS)


def _with_logs(output: Path, manifest: Manifest, paths: tuple[Any, ...], jobs: int | None) -> Manifest:
    """The facts with the logs of the job, which are read once it is known who is which rank."""
    if not any(paths) and not (output / "logs").exists():
        return manifest
    from alltrace.run.run_logs import JobLogs, import_logs

    logs, notes = import_logs(output, manifest, JobLogs(*paths), jobs)
    whole = replace(manifest, logs=logs, notes=(*manifest.notes, *notes))
    write_manifest(output, whole)
    return whole


def _reports_named(task: RankTask, error: AlltraceError) -> list[int]:
    """The reports of a task that its error names."""
    return [i for i, record in task.reports.items() if isinstance(error, InputError) and error.path == record.path]


def _without(manifest: Manifest, failed: Sequence[tuple[RankTask, AlltraceError]]) -> Manifest:
    """The facts, with the ranks and reports that turned out to be unreadable."""
    reports = list(manifest.reports)
    notes = list(manifest.notes)
    lost = set(manifest.missing_ranks)
    for task, error in sorted(failed, key=lambda f: f[0].ranks[0].rank):
        ranks = sorted(r.rank for r in task.ranks)
        lost.update(ranks)
        notes.append(f"{'rank' if len(ranks) == 1 else 'ranks'} {number_ranges(ranks)}: left out, {error}")
        for i in _reports_named(task, error) or task.reports:
            reports[i] = reports[i]._replace(error=str(error))
    return replace(manifest, reports=tuple(reports), notes=tuple(notes), missing_ranks=tuple(sorted(lost)))


def _probe_all(
    reports: Sequence[Path],
    wanted: tuple[str, ...],
    jobs: int | None,
    known: Mapping[str, Content],
    scratch: str,
    parts: Mapping[str, Part],
    readers: Readers,
    watcher: Watcher,
) -> list[Probe]:
    """What a first look at each report finds, or found in a part's import; adds the `readers` that stay open."""
    known_parts = [part_of(path, parts) for path in reports]
    probes = [None if part is None else Probe(part.record, part.report, part.rows) for part in known_parts]
    folders = [f"{scratch}/{n}" if scratch else "" for n in range(len(reports))]
    new = [n for n, probe in enumerate(probes) if probe is None]
    many = jobs if scratch or remote() else _processes_for_looks([reports[n] for n in new], jobs)
    stays = len(reports) == 1 and not remote()  # it is read in this process too, so it need not be opened again
    items = [_Look(str(p := reports[n]), wanted, known.get(str(p)), folders[n], len(reports), stays) for n in new]
    for outcome in run_tasks(_probe, items, jobs=many, hosts=[host_path(look.path).host for look in items]):
        probe = outcome.get()
        watcher.opened(1)
        if probe.reader is not None:
            readers[probe.record.path] = probe.reader
        probes[new[outcome.index]] = probe._replace(reader=None)
    return _with_ages([p for p in probes if p is not None], outdated(reports))


def _processes_for_looks(reports: Sequence[Path], jobs: int | None) -> int | None:
    """The most processes for first looks at reports that need no export."""
    if len(reports) <= _FEW_REPORTS:
        return 1
    if jobs is not None or any(p.suffix.lower() != _QUICK_LOOK for p in reports):
        return jobs
    size = sum(p.stat().st_size for p in reports if p.is_file())
    return min(default_jobs(), 1 + len(reports) // _LOOKS_WORTH_A_PROCESS + size // _BYTES_WORTH_A_PROCESS)


def _with_ages(probes: list[Probe], old: Mapping[Path, str]) -> list[Probe]:
    """The probes, with a warning for exports that are older than the report next to them."""
    with_warnings = []
    for probe in probes:
        record, beside = probe.record, old.get(Path(probe.record.path))
        if beside is not None:
            warning = f"The export is older than the report {printable(beside)} next to it."
            record = record._replace(warnings=(*record.warnings, ReportWarning(warning, EVENT_TABLES)))
        with_warnings.append(probe._replace(record=record))
    return with_warnings


def _probe(look: _Look, _advance: Callable[[int], None]) -> Probe:
    (host, path), known = host_path(look.path), look.known
    size, digest = 0, ""
    reader: ReportReader | None = None
    try:
        with naming_host(host), hashing(path, known) as hashed:
            try:
                reader = open_report(path, scratch=Path(look.scratch) if look.scratch else None)
                report, rows = reader.report, reader.rows_estimate(look.wanted)
            finally:
                size, digest = hashed()
    except AlltraceError as error:
        if reader is not None:
            reader.close()
        return Probe(ReportRecord(look.path, size, digest, error=str(error)), None, 0)
    if not look.stays:
        reader.close()
        if look.scratch and not _has_room(Path(look.scratch), look.reports):
            shutil.rmtree(look.scratch, ignore_errors=True)
    side_file = side_file_of(path)
    role = {} if side_file.role is None else {ROLE: side_file.role}
    # a job has thousands of reports with the same words
    environment = {sys.intern(name): sys.intern(value) for name, value in {**report.environment, **role}.items()}
    report = report._replace(path=look.path, host=report.host or host, environment=environment)
    record = ReportRecord(
        path=look.path,
        size_bytes=size,
        content_hash=digest,
        format=report.format,
        profiler=report.profiler,
        schema_version=report.schema_version,
        host=report.host,
        utc_ns=report.utc_ns,
        system_clock_ns=report.system_clock_ns,
        session_ns=_session_ns(report),
        environment=environment,
        environment_removed=report.environment_removed,
        warnings=(*report.warnings, *side_file.left_out),
    )
    return Probe(record, report, rows, reader if look.stays else None, look.scratch)


def _session_ns(report: Report) -> int | None:
    """How long its session took; None if that is not known, or cannot be."""
    if report.start_ns is None or report.stop_ns is None or not 0 <= report.stop_ns - report.start_ns <= MOST_TIME_NS:
        return None
    return report.stop_ns - report.start_ns


def _has_room(scratch: Path, count: int) -> bool:
    """Whether the disk would hold twice what is in `scratch` for each of `count` reports."""
    try:
        return 2 * count * sum(p.stat().st_size for p in scratch.iterdir()) <= shutil.disk_usage(scratch).free
    except OSError:
        return False


def _check_readable(probes: Sequence[Probe], strict: bool) -> None:
    broken = [p.record for p in probes if p.report is None]
    if not broken:
        return
    first = broken[0].error or ""
    if len(broken) == len(probes):
        error = InputError(broken[0].path, found="")
        more = f" ({len(broken)} reports, none of which can be read)" if len(broken) > 1 else ""
        error.args = (first + more,)
        raise error
    if strict:
        raise StrictError(first)


def _facts(
    plan: Plan, probes: Sequence[Probe], tables: tuple[str, ...] | None, rules: KernelRules, labels: Labels
) -> Manifest:
    hosts = tuple(dict.fromkeys(r.host for r in plan.ranks))
    bases = [b for r in plan.ranks if (b := probes[r.sources[0].report].record.utc_ns) is not None]
    notes = list(plan.notes)
    notes += [p.record.error for p in probes if p.record.error]
    if bases and len(bases) < len(plan.ranks):
        notes.append("some reports do not contain their start time, so their ranks start at the run's zero, unaligned")
    removed = sum(p.record.environment_removed for p in probes)
    redactions = [f"{removed} environment variables that are not on the allow-list"] if removed else []
    redactions.append("command lines, process output and all strings that no event refers to")
    # until matched collectives give better values, every host's own UTC is used
    clocks = tuple(Clock(host, component=n) for n, host in enumerate(hosts))
    return Manifest(
        reports=tuple(p.record for p in probes),
        clocks=clocks,
        zero_utc_ns=min(bases) if bases else None,
        missing_ranks=plan.missing,
        notes=tuple(notes),
        redactions=tuple(redactions),
        tables=tables,
        kernel_rules=rules.fingerprint,
        labels=with_defaults(labels, [p.record.environment for p in probes]),
    )


def _prepare(output: Path) -> None:
    """Make `output`, or see that it is a run (or empty)."""
    if output.exists() and not output.is_dir():
        raise InputError(output, found="a file", expected="a folder for the run", advice=_OTHER_NAME)
    try:
        str(output.resolve()).encode()
    except UnicodeEncodeError:
        problem, expected = "its name has bytes that are not UTF-8", "a name of text"
        raise InputError(output, found=problem, expected=expected, advice=_OTHER_NAME) from None
    if output.is_dir() and not _is_ours(output):
        problem, expected = "a folder with other files in it", "an empty or new folder, or a run directory"
        raise InputError(output, found=problem, expected=expected, advice=_OTHER_NAME)
    (output / RANKS).mkdir(parents=True, exist_ok=True)


def _is_ours(folder: Path) -> bool:
    """Whether a folder is empty, or a run directory of any version; other programs have a `manifest.json` as well."""
    entries = {p.name for p in folder.iterdir()}
    if MANIFEST not in entries:
        # an import that stopped before it wrote the manifest left only this
        return all(n in (RANKS, PARTS) or n.endswith(".tmp") for n in entries)
    try:
        return "format_version" in read_json(folder / MANIFEST)
    except AlltraceError:
        return RANKS in entries


@contextmanager
def _alone(output: Path, *, among_parts: bool = False) -> Iterator[None]:
    """Locks the run directory against two imports at once, but for parts; the lock ends with the process."""
    handle = os.open(output, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if among_parts else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                output,
                found="another import is writing to it",
                advice="wait until it has finished, then run this again",
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _clear(output: Path, seen: Path | None) -> None:
    """Remove what a stopped import left, but for the file that this one shows to workers."""
    for left in (output / RANKS).glob(".*"):
        shutil.rmtree(left, ignore_errors=True)
    for draft in output.glob(".*.tmp"):
        if draft.name != (seen and seen.name):
            draft.unlink(missing_ok=True)


def _in_rows(rank: RankRecord, rows: Mapping[int, int]) -> RankRecord:
    """The rank, with its reports in other rows of the manifest."""
    warnings, row_warnings = (
        {str(rows[int(n)]): w for n, w in by_row.items()} for by_row in (rank.warnings, rank.row_warnings)
    )
    return rank._replace(reports=tuple(rows[n] for n in rank.reports), warnings=warnings, row_warnings=row_warnings)


def _intact_ranks(
    output: Path, plan: Plan, signature_of: Callable[[RankPlan], dict[str, Any]]
) -> dict[int, RankRecord]:
    """The ranks that are there already, whole, and were made from the same; all others are removed."""
    intact: dict[int, RankRecord] = {}
    planned_ranks = {r.rank: r for r in plan.ranks}
    for folder in (output / RANKS).glob("rank=*"):
        number = folder.name.partition("=")[2]
        rank = int(number) if number.isdigit() else -1
        try:
            record = read_json(folder / RANK_RECORD)
            signature, wanted = record["signature"], signature_of(planned_ranks[rank])
            same = {**signature, ROWS: wanted[ROWS]} == wanted
            if same and folder.name == Path(rank_folder(rank)).name:
                stored_rank = rank_from_json(record["rank"])
                checksums = files_of(record, folder / RANK_RECORD)
                if stored_rank.rank == rank and not any(CheckedFiles(folder, checksums).damaged()):
                    if signature != wanted:  # its reports are in other rows than in the import that made it
                        stored_rank = _in_rows(stored_rank, dict(zip(signature[ROWS], wanted[ROWS], strict=True)))
                        write_rank_record(folder, stored_rank, wanted, checksums)
                    intact[rank] = stored_rank
                    continue
        except (AlltraceError, KeyError, TypeError, ValueError):
            pass
        shutil.rmtree(folder)
    return intact


def _finish(output: Path, manifest: Manifest) -> Manifest:
    """Gather the names of all ranks, compare their kernels without a rule, and write the manifest of the whole run."""
    paths = [p for r in manifest.ranks if (p := output / r.folder / NAMES).is_file()]
    names = Names(lambda: paths).table()
    with draft_of(output / NAMES) as draft:
        write_parquet(names.cast(TABLES["names"].arrow_schema()), draft)
        files = {NAMES: checksum(draft)}
    complete = replace(manifest, files=files, complete=True, meeting=find_meeting_kernels(output, manifest))
    write_manifest(output, complete)
    return complete


def _write_error(output: Path, error: OSError) -> InputError:
    again = "run the same command again; it continues where it stopped"
    if error.errno in _FULL:
        return InputError(output, found=_FULL[error.errno], advice=f"free some space and {again}")
    advice = "give another folder with -o" if error.errno in _NOT_ALLOWED else again
    return InputError.cannot_be("written", output, error, advice=advice)
