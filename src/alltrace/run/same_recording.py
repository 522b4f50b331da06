"""Reports that are one recording, of which one is taken; and reports of several jobs, which are refused.

Reports are one recording if they have the same content, or are traces of one process that begin with the same event; if they are
exports of one session of Nsight Systems; and if Nsight Systems and PyTorch's profiler both recorded the device of one process.

Reports are of several jobs if their launchers say so. Otherwise they are if processes share their rank numbers, and the jobs that
would then be in the folder have other world sizes, or ran at times that are hours apart, or at once on other hosts that share none.
Roles of one job, such as rollout and trainer, may number their ranks alike.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from itertools import chain, pairwise
from operator import lt
from pathlib import Path, PurePath
from typing import Any, Protocol, TypeVar

from alltrace.readers.base import Report
from alltrace.run.identity import Plan, natural_key, plan_ranks, rank_in_name, stated_rank
from alltrace.run.manifest import ReportRecord
from alltrace.run.stated_ranks import STATED, with_stated_ranks
from alltrace.trace.errors import UsageError, path_text, printable
from alltrace.trace.number_text import counted
from alltrace.trace.side_file_words import ROLE

_JOB_VARIABLES = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")
_APART_NS = 3600 * 10**9
_BEGUN_APART_NS = 10 * 10**9
_NAMED = 4
_LISTED = 20


class _Looked(Protocol):
    """What a first look at a report found."""

    @property
    def report(self) -> Report | None:
        """What it is about; None for one that cannot be read."""
        ...

    @property
    def record(self) -> ReportRecord:
        """Its record in the run."""
        ...


_Probe = TypeVar("_Probe", bound=_Looked)


def one_of_each(paths: Sequence[Path], probes: Sequence[_Probe]) -> tuple[list[Path], list[_Probe], tuple[str, ...]]:
    """The reports without those that another one is instead of, and what is said of these."""
    reports = [p.report for p in probes]
    instead = doubles(reports, [(p.record.size_bytes, p.record.content_hash) for p in probes])
    first = [n for n in range(len(probes)) if n not in instead]
    return [paths[n] for n in first], [probes[n] for n in first], doubles_notes(reports, instead)


def plan_of(paths: Sequence[Path], probes: Sequence[_Probe], rank_from: str | None, notes: Sequence[str] = ()) -> Plan:
    """The ranks in reports, by what the user states of them and by what they say of themselves; `notes` come before others.

    Raises `UsageError`: the reports are of several jobs, or `rank_from` cannot be used. Raises `InputError`: a
    `ranks.csv` cannot be used.
    """
    reports = with_stated_ranks([p.report for p in probes], paths, rank_from)
    check_one_job(reports)
    plan = plan_ranks(reports)
    return plan._replace(notes=(*notes, *plan.notes))


def doubles(reports: Sequence[Report | None], contents: Sequence[tuple[int, str]]) -> dict[int, tuple[int, str]]:
    """The reports that another one is instead of: by number the number of that one, and how they are the same.

    `reports`: None for one that cannot be read. `contents`: Size and hash of each.
    """
    instead: dict[int, tuple[int, str]] = {}
    order = sorted((n for n, r in enumerate(reports) if r is not None), key=lambda n: _preference(reports[n]))
    keys: tuple[tuple[str, Callable[[int, Report], Hashable | None]], ...] = (
        ("the same content as", lambda n, _report: contents[n] if contents[n][1] else None),
        ("the same trace as", lambda _n, report: _trace(report)),
        ("the same session as", lambda _n, report: _session(report)),
        ("the same process as", lambda _n, report: _process_on_device(report)),
    )
    for how, key_of in keys:
        first: dict[Hashable, int] = {}
        for n in order:
            report = reports[n]
            key = key_of(n, report) if report is not None and n not in instead else None
            if key is None or report is None:
                continue
            taken = first.setdefault(key, n)
            other = reports[taken]
            if taken == n or other is None or not _may_be_one(report, other):
                continue
            if how != "the same process as" or _of_two_profilers(report, other):
                instead[n] = taken, how
    return instead


def doubles_notes(reports: Sequence[Report | None], instead: dict[int, tuple[int, str]]) -> tuple[str, ...]:
    """What is said of the reports that were left out."""
    notes = []
    for n, (taken, how) in sorted(instead.items())[:_LISTED]:
        left_out, other = reports[n], reports[taken]
        if left_out is not None and other is not None:
            notes.append(f"{path_text(left_out.path)}: left out, it is {how} {path_text(other.path)}")
    rest = len(instead) - _LISTED
    return (*notes, *([f"{counted(rest, 'more report')} left out, of which others are copies"] if rest > 0 else ()))


def _preference(report: Report | None) -> tuple[Any, ...]:
    if report is None:
        return ()
    cut = any("cut short" in warning.text for warning in report.warnings)
    return not report.format.startswith("nsys"), cut, len(report.path), natural_key(report.path)


def _may_be_one(one: Report, other: Report) -> bool:
    """Whether they do not say that they are two: who copies a report as those of several ranks or roles calls it so."""
    numbers = [(rank_in_name(r.path), next((p.rank_hint for p in r.processes), None)) for r in (one, other)]
    alike = all(a is None or b is None or a == b for a, b in zip(*numbers, strict=True))
    return alike and one.environment.get(ROLE) == other.environment.get(ROLE)


def _trace(report: Report) -> Hashable | None:
    """The same for traces of one process that begin with the same event, however they are packed, formatted or called."""
    if report.format != "kineto" or report.start_ns is None or report.companion:
        return None
    return report.host, report.utc_ns, report.start_ns, tuple(p.pid for p in report.processes)


def _session(report: Report) -> Hashable | None:
    if not report.format.startswith("nsys") or report.utc_ns is None or report.stop_ns is None or not report.processes:
        return None
    return report.host, report.utc_ns, report.start_ns, report.stop_ns, tuple(sorted(p.pid for p in report.processes))


def _process_on_device(report: Report) -> Hashable | None:
    on_device = [p for p in report.processes if p.gpu]
    if report.companion or report.host is None or len(on_device) != 1:
        return None
    return report.host, on_device[0].pid


def _of_two_profilers(one: Report, other: Report) -> bool:
    return (one.format == "kineto") != (other.format == "kineto") and any(r.format.startswith("nsys") for r in (one, other))


def check_one_job(reports: Sequence[Report | None]) -> None:
    """See that the reports can be of one job.

    Raises `UsageError`: they are of several; with the reports of each and a command for it.
    """
    present = [r for r in reports if r is not None and not r.companion]
    if any(p.rank_hint_source in STATED for r in present for p in r.processes):
        return
    for what, groups in (_by_launcher(present), _by_size(present), _by_time(present), _by_hosts(present)):
        if len(groups) > 1:
            raise UsageError(_refusal(what, groups))


_Groups = tuple[str, list[tuple[str, list["Report"]]]]


def _by_launcher(reports: Sequence[Report]) -> _Groups:
    for variable in _JOB_VARIABLES:
        groups = _grouped(reports, partial(_variable, variable))
        if len(groups) > 1:
            return variable, [(f"{variable} {value}", its) for value, its in groups]
    return "", []


def _variable(name: str, report: Report) -> str | None:
    return report.environment.get(name)


def _by_size(reports: Sequence[Report]) -> _Groups:
    groups = _grouped(reports, lambda r: r.world_size)
    return "world size", [(f"world size {size}", its) for size, its in groups] if _clash(groups) else []


def _by_time(reports: Sequence[Report]) -> _Groups:
    timed = sorted((r for r in reports if r.utc_ns is not None), key=lambda r: r.utc_ns or 0)
    groups: list[tuple[int, list[Report]]] = []
    for report in timed:
        if not groups or (report.utc_ns or 0) - (groups[-1][1][-1].utc_ns or 0) > _APART_NS:
            groups.append((report.utc_ns or 0, []))
        groups[-1][1].append(report)
    if not _clash(groups) or len(timed) < len(reports):
        return "", []
    return "time", [(f"begun {_utc(its[0].utc_ns or 0)}", its) for _, its in groups]


def _by_hosts(reports: Sequence[Report]) -> _Groups:
    """Sets of hosts that each have all ranks, with a world size that says that these are all."""
    sizes = {r.world_size for r in reports}
    size = sizes.pop() if len(sizes) == 1 else None
    by_rank = _grouped(reports, stated_rank)
    if size is None or [rank for rank, _ in by_rank] != list(range(size)) or any(r.host is None for r in reports):
        return "", []
    # the ranks of a job begin at one time, or their reports are in one folder, or their hosts have one name or names in a row
    orders: list[tuple[Callable[[Report], Any], Callable[[Any, Any], bool]]] = [
        (lambda r: r.utc_ns or 0, lambda last, first: first - last > _BEGUN_APART_NS),
        (lambda r: natural_key(str(PurePath(r.path).parent)), lt),
        (lambda r: natural_key(str(r.host)), lt),
    ]
    for key_of, before in orders:
        jobs = list(zip(*(sorted(its, key=key_of) for _, its in by_rank), strict=False))
        hosts = [sorted({str(r.host) for r in its}, key=natural_key) for its in jobs]
        bounds = [(min(map(key_of, its)), max(map(key_of, its))) for its in jobs]
        if (
            len(jobs) * size == len(reports)
            and len(set(chain(*hosts))) == sum(map(len, hosts))
            and all(before(last, first) for (_, last), (first, _) in pairwise(bounds))
            and _clash([(n, list(its)) for n, its in enumerate(jobs)])
        ):
            return "hosts", [(f"on {_few(names)}", list(its)) for names, its in zip(hosts, jobs, strict=True)]
    return "", []


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(printable, names[:_NAMED])) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _grouped(reports: Sequence[Report], key_of: Callable[[Report], Any]) -> list[tuple[Any, list[Report]]]:
    """The reports by a key, in the order of keys; those without one are left out."""
    groups: dict[Any, list[Report]] = defaultdict(list)
    for report in reports:
        key = key_of(report)
        if key is not None:
            groups[key].append(report)
    return sorted(groups.items(), key=lambda g: natural_key(str(g[0])))


def _clash(groups: Sequence[tuple[Any, list[Report]]]) -> bool:
    """Whether some rank is in two groups, as another process, and roles do not explain it."""
    seen: dict[tuple[str, int], tuple[int, Any]] = {}
    for n, (_, its) in enumerate(groups):
        for report in its:
            rank = stated_rank(report)
            if rank is None or not report.processes:
                continue
            process = report.host, report.processes[0].pid
            of, other = seen.setdefault((report.environment.get(ROLE, ""), rank), (n, process))
            if of != n and other != process:
                return True
    return False


def _refusal(what: str, groups: Sequence[tuple[str, list[Report]]]) -> str:
    every = [r.path for _, reports in groups for r in reports]
    of_jobs = []
    for name, reports in groups[:_NAMED]:
        paths = [r.path for r in reports]
        shown = ", ".join(printable(PurePath(p).name) for p in paths[:_NAMED]) + (", ..." if len(paths) > _NAMED else "")
        of_jobs.append(f"{name}: {counted(len(paths), 'report')} ({shown}), `alltrace info {_arguments(paths, every)}`")
    more = f"; and {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
    return f"the reports are of {len(groups)} jobs, by their {what}; expected those of one. {'; '.join(of_jobs)}{more}"


def _arguments(paths: Sequence[str], every: Iterable[str]) -> str:
    """Arguments of a command that name these reports and no other: their folder, a pattern, or each."""
    others = set(every) - set(paths)
    folders = {str(PurePath(p).parent) for p in paths}
    if len(folders) == 1 and not any(PurePath(p).is_relative_to(next(iter(folders))) for p in others):
        return shlex.quote(next(iter(folders)))
    start = _common_start(paths)
    if len(paths) > 1 and PurePath(start).name and not any(p.startswith(start) for p in others):
        return f"{shlex.quote(start)}*"
    listed = " ".join(shlex.quote(printable(p)) for p in paths[:_LISTED])
    return listed + (" ..." if len(paths) > _LISTED else "")


def _common_start(paths: Sequence[str]) -> str:
    first, last = min(paths), max(paths)
    return first[: next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))]


def _utc(time_ns: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")
