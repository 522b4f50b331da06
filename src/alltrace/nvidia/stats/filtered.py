"""A stats report over the rows that pass filters, as `--filter-time` and `--filter-nvtx` of `nsys stats` ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alltrace.nvidia.nsys.filters import filtered, given_filters
from alltrace.nvidia.stats.base import StatsReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.recipes.base import Answer, AnswerColumn, OptionValue, Part, RankTables, RunFacts


class FilteredReport(StatsReport):
    """The rows of another report that pass filters.

    Args:
        report: The report.
        filters: The filters, by the names of `recipes.nsys.filters`: `filter_time`, and `nvtx` for the first range of a name.

    Raises:
        UsageError: A filter cannot be understood.
    """

    def __init__(self, report: StatsReport, filters: Mapping[str, OptionValue]) -> None:
        self._report = report
        self._filters = dict(filters)
        self._given = given_filters(filters)
        shared = ("name", "title", "cells", "requires", "options", "worth_processes", "exact_sizes")
        vars(self).update({name: getattr(report, name) for name in shared}, tables=self.reads({}))

    def reads(self, options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The tables that the report and the filters read."""
        return self._given.reads(self._report.reads(options))

    def needs(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
        """What the report needs."""
        return self._report.needs(options)

    def without(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What follows for the report, and for filters by ranges."""
        named = {"ranges": f"nothing passes {self._given}"} if self._given.nvtx else {}
        return {**self._report.without(options), **named}

    def lays_together(self, options: Mapping[str, Any]) -> bool:
        """Filters by time are on the run's clock."""
        return self._report.lays_together(options) or self._given.start is not None or self._given.end is not None

    def prepared(self, options: Mapping[str, Any], run: RunFacts) -> Mapping[str, Any]:
        """The options as the report gets them."""
        return self._report.prepared(options, run)

    def answer_columns(self, options: Mapping[str, Any]) -> tuple[AnswerColumn, ...]:
        """The columns of the report."""
        return self._report.answer_columns(options)

    def map(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """What one rank contributes of the rows that pass."""
        return self._report.map(filtered(rank, self._filters), options)

    def reduce(self, parts: Sequence[Part], run: RunFacts, options: Mapping[str, Any]) -> Answer:
        """The report."""
        return self._report.reduce(parts, run, options)
