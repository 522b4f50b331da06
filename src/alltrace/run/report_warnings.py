"""What reports warn of: by opening them, by reading them, and what is wrong with rows of single ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from alltrace.readers.base import ReportWarning
from alltrace.run.manifest import Manifest, RankRecord


class Warned(NamedTuple):
    """A warning, and who it is of."""

    warning: ReportWarning  # the warning, its `number` that of all these ranks
    ranks: tuple[int, ...]  # the ranks with affected answers, by number


def warnings_of(manifest: Manifest, ranks: Iterable[RankRecord]) -> list[Warned]:
    """The warnings that touch some ranks, each once; one of a report counts once, independent of its ranks."""
    return _gathered(manifest, [(rank, report) for rank in ranks for report in rank.reports])


def warnings_of_report(manifest: Manifest, report: int) -> list[ReportWarning]:
    """The warnings of one report, in its row of `Manifest.reports`, and of the rows that ranks have of it."""
    warned = _gathered(manifest, [(rank, report) for rank in manifest.ranks_of_report.get(report, ())])
    return [w.warning for w in warned] or list(manifest.reports[report].warnings)


def _gathered(manifest: Manifest, pairs: Iterable[tuple[RankRecord, int]]) -> list[Warned]:
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
    manifest: Manifest, rank: RankRecord, report: int, counted: set[tuple[int, ReportWarning]]
) -> Iterator[tuple[ReportWarning, bool]]:
    """The warnings of a rank's part of a report, and whether each was counted with another rank's."""
    for warning in (*manifest.reports[report].warnings, *rank.warnings.get(str(report), ())):
        yield warning, (report, warning) in counted
        counted.add((report, warning))
    for warning in rank.row_warnings.get(str(report), ()):
        yield warning, False
