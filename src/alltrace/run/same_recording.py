"""Reports that are one recording, of which one is taken; and reports of several jobs, which are refused.

Reports are one recording if they have the same content, or are traces of one process that begin with the same event; if
they are exports of one session of Nsight Systems; and if Nsight Systems and PyTorch's profiler both recorded the device
of one process.

Reports are of several jobs if their launchers say so. Otherwise they are if processes share their rank numbers, and the
jobs that would then be in the folder have other world sizes, or ran at times that are hours apart, or at once on other
hosts that share none. Roles of one job, such as rollout and trainer, may number their ranks alike.
"""

import shlex
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from itertools import chain, combinations, pairwise
from operator import lt
from pathlib import Path, PurePath
from typing import Any, Protocol, TypeVar

from alltrace.readers.base import Report
from alltrace.run.identity import (
    STATED,
    Plan,
    at_once,
    begin_ns,
    natural_key,
    plan_ranks,
    rank_in_name,
    span_of,
    stated_rank,
    was_restarted,
)
from alltrace.run.manifest import ReportRecord
from alltrace.run.stated_ranks import with_stated_ranks
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
    def report(self) -> Report | None: ...

    @property
    def record(self) -> ReportRecord: ...


_Probe = TypeVar("_Probe", bound=_Looked)


def planned(paths: Sequence[Path], probes: Sequence[_Probe], rank_from: str | None) -> tuple[list[int], Plan]:
    """The reports, by number, without those that another one is instead of, and the ranks in them.

    The ranks are by what the user states of the reports and by what these say of themselves. Raises `UsageError`: the
    reports are of several jobs, the user states one rank of processes that ran at once, or `rank_from` cannot be used.
    Raises `InputError`: a `ranks.csv` cannot be used.
    """
    reports, stated_notes = with_stated_ranks([p.report for p in probes], paths, rank_from)
    instead = doubles(reports, [(p.record.size_bytes, p.record.content_hash) for p in probes])
    taken = [n for n in range(len(probes)) if n not in instead]
    ones = [reports[n] for n in taken]
    _check_stated(ones)
    check_one_job(ones)
    plan = plan_ranks(ones)
    return taken, plan._replace(notes=(*stated_notes, *doubles_notes(reports, instead), *plan.notes))


def _check_stated(reports: Sequence[Report | None]) -> None:
    """Refuse a rank that the user states of processes of several hosts, or of several that ran at once."""
    by_rank: dict[tuple[str, int], list[tuple[Report, int]]] = defaultdict(list)
    for report in reports:
        lead = report.processes[0] if report is not None and report.processes else None
        if report is not None and lead is not None and lead.rank_hint_source in STATED and lead.pid > 0:
            by_rank[lead.rank_hint_source, lead.rank_hint or 0].append((report, lead.pid))
    for (source, rank), its in by_rank.items():
        for (one, pid), (other, other_pid) in combinations(its, 2):
            elsewhere = None not in (one.host, other.host) and one.host != other.host
            if elsewhere or (pid != other_pid and _overlap(one, other)):
                raise UsageError(
                    f"{source} states rank {rank} of two processes"
                    f" {'on two hosts' if elsewhere else 'that ran at once'}, {path_text(one.path)} and"
                    f" {path_text(other.path)}; expected another rank for one of them"
                )


def _overlap(one: Report, other: Report) -> bool:
    """Whether two reports were recorded at once for at least half of the shorter one."""
    mine, its = span_of(one), span_of(other)
    if mine is None or its is None:
        return False
    return 2 * (min(mine[1], its[1]) - max(mine[0], its[0])) > min(mine[1] - mine[0], its[1] - its[0])


def doubles(reports: Sequence[Report | None], contents: Sequence[tuple[int, str]]) -> dict[int, tuple[int, str]]:
    """The reports that another is instead of: by number that one's number, and how they are the same."""
    instead: dict[int, tuple[int, str]] = {}
    order = sorted((n for n, r in enumerate(reports) if r is not None), key=lambda n: _preference(reports[n]))
    keys: tuple[tuple[str, Callable[[int, Report], Hashable | None], Callable[[Report, Report], bool]], ...] = (
        ("the same content as", lambda n, _report: contents[n] if contents[n][1] else None, _always),
        ("the same trace as", lambda _n, report: _trace(report), _always),
        ("the same session as", lambda _n, report: _session(report), _always),
        ("of the same rank, process and time as", lambda _n, report: _ranked_process(report), _overlap),
        ("the same process as", lambda _n, report: _process_on_device(report), _of_two_profilers),
    )
    for how, key_of, are_one in keys:
        first: dict[Hashable, int] = {}
        for n in order:
            report = reports[n]
            key = key_of(n, report) if report is not None and n not in instead else None
            if key is None or report is None:
                continue
            taken = first.setdefault(key, n)
            other = reports[taken]
            if taken != n and other is not None and _may_be_one(report, other) and are_one(report, other):
                instead[n] = taken, how
    return instead


def _always(_one: Report, _other: Report) -> bool:
    return True


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
    by_user = any(p.rank_hint_source in STATED for p in report.processes)
    return not by_user, not report.format.startswith("nsys"), cut, len(report.path), natural_key(report.path)


def _may_be_one(one: Report, other: Report) -> bool:
    """Whether they do not say that they are two: who copies a report as those of several ranks or roles calls it so."""
    leads = [next(iter(r.processes), None) for r in (one, other)]
    by_user = any(p is not None and p.rank_hint_source in STATED for p in leads)
    numbers = [
        (None if by_user else rank_in_name(r.path), p and p.rank_hint) for r, p in zip((one, other), leads, strict=True)
    ]
    alike = all(a is None or b is None or a == b for a, b in zip(*numbers, strict=True))
    return alike and one.environment.get(ROLE) == other.environment.get(ROLE)


def _trace(report: Report) -> Hashable | None:
    """The same for traces of one process that begin with one event, however they are packed, formatted or called."""
    if report.format != "kineto" or report.start_ns is None or report.companion:
        return None
    return report.host, report.utc_ns, report.start_ns, tuple(p.pid for p in report.processes)


def _ranked_process(report: Report) -> Hashable | None:
    """The same for traces of PyTorch of one process that state its rank: only one can be recorded at a time."""
    if report.format != "kineto" or report.companion or len(report.processes) != 1:
        return None
    its = report.processes[0]
    return (
        None if its.pid <= 0 or its.rank_hint is None else (report.host, its.pid, its.rank_hint, its.rank_hint_source)
    )


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
    return (one.format == "kineto") != (other.format == "kineto") and any(
        r.format.startswith("nsys") for r in (one, other)
    )


def check_one_job(reports: Sequence[Report | None]) -> None:
    """See that reports can be of one job. Raises `UsageError`: of several, with the reports of each, and a command."""
    present = [r for r in reports if r is not None and not r.companion]
    if any(p.rank_hint_source in STATED for r in present for p in r.processes):
        return
    for what, groups in (_by_launcher(present), _by_size(present), _by_time(present), _by_processes(present)):
        if len(groups) > 1:
            raise UsageError(_refusal(what, groups))


_ORDERS: tuple[tuple[str, Callable[[Report], Any], Callable[[Any, Any], bool]], ...] = (
    ("time", begin_ns, lambda last, first: first - last > _BEGUN_APART_NS),
    ("folders", lambda r: natural_key(str(PurePath(r.path).parent)), lt),
    ("hosts", lambda r: natural_key(str(r.host)), lt),
    ("process ids", lambda r: r.processes[0].pid, lt),
)
"""What distinguishes jobs: each is before the next one."""


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


def _by_processes(reports: Sequence[Report]) -> _Groups:
    """Jobs with a process for each rank, where it is certain that they are several and which process is of which."""
    sizes = {r.world_size for r in reports}
    size = sizes.pop() if len(sizes) == 1 else None
    of_rank: dict[int, dict[tuple[str | None, int], list[Report]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        rank = stated_rank(report)
        if rank is None or not report.processes or ROLE in report.environment or was_restarted(report):
            return "", []
        of_rank[rank][report.host, report.processes[0].pid].append(report)
    if len({len(its) for its in of_rank.values()}) != 1 or (size is not None and sorted(of_rank) != list(range(size))):
        return "", []
    for what, key_of, before in _ORDERS:
        by_rank = [sorted(its.values(), key=lambda of_process: key_of(of_process[0])) for its in of_rank.values()]
        jobs = [list(chain(*its)) for its in zip(*by_rank, strict=True)]
        keys = [[key_of(r) for r in its] for its in jobs]
        hosts = [{r.host for r in its} for its in jobs]
        every = set(chain(*hosts))
        alike = None not in every and all(its == every for its in hosts)
        if not all(before(max(one), min(other)) for one, other in pairwise(keys)) or (
            size is None and (not alike or at_once([_span(its) for its in jobs]))
        ):
            continue
        if what == "process ids" and (not alike or len(every) > 1):
            continue
        if None not in every and len(every) == sum(map(len, hosts)):
            return "hosts", [
                (f"on {_few(sorted(map(str, its), key=natural_key))}", j) for its, j in zip(hosts, jobs, strict=True)
            ]
        if what == "time":
            return what, [(f"begun {_utc(min(begin_ns(r) for r in its))}", its) for its in jobs]
        return what, [(f"processes {_few([str(r.processes[0].pid) for r in its])}", its) for its in jobs]
    return "", []


def _span(reports: Sequence[Report]) -> tuple[int, int] | None:
    spans = [span for r in reports if (span := span_of(r)) is not None]
    return (min(a for a, _ in spans), max(b for _, b in spans)) if len(spans) == len(reports) else None


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(printable, names[:_NAMED])) + (
        f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    )


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
        shown = ", ".join(printable(PurePath(p).name) for p in paths[:_NAMED]) + (
            ", ..." if len(paths) > _NAMED else ""
        )
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
    return first[
        : next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    ]


def _utc(time_ns: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")
