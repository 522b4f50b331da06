"""The rules of `nsys analyze` under NVIDIA's names, including those of earlier versions, with advice on findings."""

from __future__ import annotations

import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.cli.nsys.forms import Shown
from alltrace.cli.nsys.reports import ask_report, find_range
from alltrace.cli.nsys.stats import Skipped
from alltrace.cli.nsys.units import column_of
from alltrace.nvidia.recipe import FILE
from alltrace.nvidia.rules import ROWS
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alltrace.api import OpenRun
    from alltrace.nvidia.rules import Rule
    from alltrace.recipes.base import OptionValue

TITLES = {
    "cuda_memcpy_async": "CUDA Async Memcpy with Pageable Memory",
    "cuda_memcpy_sync": "CUDA Synchronous Memcpy",
    "cuda_memset_sync": "CUDA Synchronous Memset",
    "cuda_api_sync": "CUDA Synchronization APIs",
    "gpu_gaps": "GPU Gaps",
    "gpu_time_util": "GPU Time Utilization",
    "dx12_mem_ops": "DX12 Memory Operations",
}
EARLIER_NAMES = {
    "cuda-async-memcpy": "cuda_memcpy_async",
    "cuda-sync-memcpy": "cuda_memcpy_sync",
    "cuda-sync-memset": "cuda_memset_sync",
    "cuda-sync-api": "cuda_api_sync",
    "gpu-starv": "gpu_gaps",
    "gpu-low-util": "gpu_time_util",
    "dx12-mem-op": "dx12_mem_ops",
}
"""Names that rules had before 2023, and those that they have since."""

_NOT_IMPORTED = "dx12_mem_ops"
_ROWS = 50
_WIDTH = 80
_TIMES = ("start", "end", "nvtx")
_BY = {"process": "PID", "thread": "TID"}


class Rules:
    command = "nsys analyze"
    word = "rule"
    defaults: ClassVar[tuple[str, ...]] = tuple(TITLES)

    def names(self) -> dict[str, str]:
        return dict(TITLES)

    def reference(self, name: str) -> str:
        from alltrace.recipes.reference import description, reference
        from alltrace.recipes.registry import find

        name = EARLIER_NAMES.get(name, name)
        if name not in TITLES:
            raise UsageError.unknown("rule", name, TITLES)
        if name == _NOT_IMPORTED:
            return f"{name} -- {TITLES[name]}\n\nalltrace does not import graphics, and skips this rule.\n"
        rule = cast("Rule", find(name))
        options = (*rule.settings, *(o for o in rule.options if o.name in _TIMES), ROWS._replace(default=_ROWS))
        arguments = [
            (f":{o.name}=VALUE", f"{o.help} Default: {o.default}." if o.default is not None else o.help)
            for o in options
        ]
        arguments += [(f":{key}=VALUE", f"Only rows with this {column}.") for key, column in _by(rule).items()]
        columns = [(cell.title, cell.doc) for cell in rule.cells]
        about = f"{TITLES[name]}\n\n{description(rule)}\n\n{rule.advice}"
        return reference(name, about, arguments, columns)

    @contextmanager
    def ask(self, run: OpenRun, spec: str, filters: Mapping[str, OptionValue]) -> Iterator[Shown]:
        from alltrace.recipes.registry import find

        name, *arguments = spec.split(":")
        name = EARLIER_NAMES.get(name, name)
        if name not in TITLES:
            raise UsageError.unknown("rule", name, TITLES)
        if name == _NOT_IMPORTED:
            raise Skipped(f"alltrace does not import graphics, which {name} is about")
        rule = cast("Rule", find(name))
        options, rows, wanted = _parsed(rule, arguments, filters)
        ranks = None
        if options.get("nvtx") is not None:
            rank, of_range = find_range(run, str(options.pop("nvtx")))
            ranks = (rank,)
            if "nvtx" in of_range or not {"start", "end"} & options.keys():  # given times replace those of the range
                options.update(of_range)
        answer = ask_report(run, rule, options, ranks=ranks).read()
        table = answer.table
        for column, value in wanted.items():
            table = table.filter(pc.equal(table.column(column), value))
        table, more = _first(rule, table, rows)
        advice = rule.advice if table.num_rows else rule.none
        below = f"The first {rows} of {more} rows; rows=-1 shows all." if more else ""
        columns = [column_of(cell) for cell in rule.cells]
        yield Shown(f"{TITLES[name]} ({name})", columns, (table,), textwrap.fill(advice, _WIDTH), below)


def _by(rule: Rule) -> dict[str, str]:
    """The arguments that keep the rows with one value of a column."""
    return dict(_BY) if rule.name == "cuda_api_sync" else {}


def _parsed(
    rule: Rule, arguments: list[str], filters: Mapping[str, OptionValue]
) -> tuple[dict[str, OptionValue], int, dict[str, int]]:
    """The options of the recipe, how many rows are shown, and the values that columns must have."""
    types = {
        o.name: o.type for o in (*rule.settings, *rule.options) if o.name in {*_TIMES, *(s.name for s in rule.settings)}
    }
    by = _by(rule)
    options: dict[str, OptionValue] = dict(filters)
    rows, wanted = _ROWS, {}
    for argument in arguments:
        key, _, text = argument.partition("=")
        if key not in {*types, *by, "rows"}:
            raise UsageError.unknown(f"option of {rule.name}", key, {*types, *by, "rows"})
        kind = types.get(key, int)
        try:
            value: Any = kind(text)
        except ValueError as error:
            raise UsageError(f"option {key} of {rule.name} is {text!r}; expected {kind.__name__}") from error
        if key == "rows":
            rows = value
        elif key in by:
            wanted[by[key]] = value
        else:
            options[key] = value
    return options, rows, wanted


def _first(rule: Rule, table: Any, rows: int) -> tuple[Any, int]:
    """The worst rows of all ranks, numbered, without the column of files; and how many there are, if more."""
    order = [*rule.order, *((n, "ascending") for n in table.column_names if n not in {*dict(rule.order), "Row#"})]
    table = table.take(pc.sort_indices(table, order))
    count = table.num_rows
    table = (table if rows < 0 else table.slice(0, rows)).drop_columns([FILE])
    if "Row#" in table.column_names:
        table = table.set_column(0, table.schema.field(0), pa.array(range(1, table.num_rows + 1), pa.int64()))
    return table, count if count > table.num_rows else 0
