"""What is to be done for the ranks of an import: what was seen of each report becomes tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.readers.base import Report, ReportReader
from alltrace.run.host_paths import host_path
from alltrace.run.identity import Plan, RankPlan
from alltrace.run.manifest import ReportRecord
from alltrace.run.rank_import import RankTask, Readers
from alltrace.trace.errors import InputError
from alltrace.trace.kernel_rules import KernelRules

ROWS = "reports"
"""Of a signature: the reports' rows in the manifest, which have no part in what the rank holds."""


class Probe(NamedTuple):
    """What a first look at a report found: who it is about, or why it cannot be read; and its open reader."""

    record: ReportRecord
    report: Report | None
    rows: int
    reader: ReportReader | None = None
    scratch: str = ""  # its folder for reusable intermediate files; empty for none

    def unreadable(self, error: str) -> "Probe":
        """The same report, which turned out to be damaged."""
        return Probe(self.record._replace(error=error), None, 0)


class RankTasks(Sequence[RankTask]):
    """One task for each set of ranks that share reports, the largest first; a job has thousands, made when taken."""

    def __init__(
        self,
        output: Path,
        plan: Plan,
        todo: Sequence[RankPlan],
        probes: Sequence[Probe],
        wanted: tuple[str, ...],
        rules: KernelRules,
        readers: Readers,
    ) -> None:
        self._output, self._probes, self._wanted, self._rules, self._readers = output, probes, wanted, rules, readers
        self._owners: dict[int, list[RankPlan]] = {}
        for rank in plan.ranks:
            for report in dict.fromkeys(s.report for s in rank.sources):
                self._owners.setdefault(report, []).append(rank)
        together: dict[int, tuple[set[int], list[RankPlan]]] = {}
        group_of: dict[int, int] = {}  # of each report
        for number, rank in enumerate(todo):
            reports = {s.report for s in rank.sources}
            members = [rank]
            for other in sorted({group_of[i] for i in reports if i in group_of}):
                other_reports, other_members = together.pop(other)
                reports |= other_reports
                members = [*other_members, *members]
            together[number] = (reports, members)
            group_of.update(dict.fromkeys(reports, number))
        self._groups = [(sorted(reports), members) for reports, members in together.values()]
        self._groups.sort(key=lambda g: -sum(probes[i].rows for i in g[0]))

    def hosts(self) -> list[str | None]:
        """For each task the only host that may work on it; None for any. Raises `InputError`: a rank has several."""
        return [_only_host(task) for task in self]

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, number: Any) -> Any:
        reports, members = self._groups[number]
        probes = {i: self._probes[i] for i in reports}
        return RankTask(
            run=str(self._output),
            reports={i: p.record for i, p in probes.items()},
            ranks=tuple(members),
            signatures={r.rank: signature_of(r, self._probes, self._wanted, self._rules) for r in members},
            tables=self._wanted,
            rules=tuple(self._rules.rules),
            processes={i: r.processes for i, p in probes.items() if (r := p.report) is not None},
            owners={
                i: tuple((r.rank, s.processes) for r in self._owners[i] for s in r.sources if s.report == i)
                for i in reports
            },
            scratch={i: p.scratch for i, p in probes.items()},
            rows={i: p.rows for i, p in probes.items()},
            readers=self._readers,
        )


def signature_of(
    rank: RankPlan, probes: Sequence[Probe], wanted: tuple[str, ...], rules: KernelRules
) -> dict[str, Any]:
    """What a rank is made from and how: equal signatures mean equal folders."""
    from alltrace import __version__

    return {
        "version": __version__,
        "tables": list(wanted),
        "rules": rules.fingerprint,
        "sources": [[probes[s.report].record.content_hash, list(s.processes)] for s in rank.sources],
        "plan": [rank.rank, rank.local_rank, rank.host, rank.source],
        ROWS: [s.report for s in rank.sources],
    }


def _only_host(task: RankTask) -> str | None:
    """The host with the reports of a task on its own disks; None if any can read them."""
    record = next(iter(task.reports.values()))
    hosts = sorted({host for r in task.reports.values() if (host := host_path(r.path).host) is not None})
    if len(hosts) > 1:
        raise InputError(
            record.path,
            found=f"rank {task.ranks[0].rank} has reports on several hosts ({', '.join(hosts)})",
            expected="all reports of a rank on one host",
            advice="copy them to one host, or to a file system that all nodes share",
        )
    return next(iter(hosts), None)
