"""GPU kernels by name, grid and block: how often each launch configuration ran and how long in all, over all ranks.

Nsight Compute measures one launch; this recipe shows how many launches one of them represents.
"""

from collections.abc import Sequence

from alltrace.recipes.base import Answer, Chart, Options, Part, Question, Reads, RunFacts
from alltrace.recipes.sql_recipe import Statements, answer_table
from alltrace.trace import columns as col

_NAMES = ("name", "short_name")
_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_KEYS = ", ".join((*_NAMES, *_SIZES))


COLUMNS: col.Columns = (
    col.text("name", "kernel"),
    col.text("short_name", "name without template arguments and parameters"),
    *(col.whole(f"grid_{axis}", f"blocks in {axis}") for axis in "xyz"),
    *(col.whole(f"block_{axis}", f"threads in {axis}") for axis in "xyz"),
    col.whole("ranks", "ranks that ran it"),
    col.whole("count", "launches"),
    col.ns("total_ns", "summed duration"),
    col.percent("time_percent", "total_ns as a share of the sum over all rows", 2),
    col.ns("min_ns", "shortest"),
    col.ns("max_ns", "longest"),
)

READS: Reads = {"kernels": ("start", "end", *_NAMES, *_SIZES)}

CHART = Chart("bars", "name", ("total_ns",), detail="grid_x", title="Time of launch configurations")

MAP_SQL = f"""
SELECT rank, {_KEYS}, count(length) AS launches, sum(length) AS total, min(length) AS least, max(length) AS most
FROM (SELECT *, "end" - start AS length FROM kernels) GROUP BY ALL
"""


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    table = (
        answer_table(SQL.over_parts(parts, run, options), COLUMNS) if parts else col.schema_of(COLUMNS).empty_table()
    )
    return Answer(table, COLUMNS, chart=CHART)


_OVER_RANKS = f"""
WITH configurations AS (
  SELECT {_KEYS}, count(*) AS ranks, sum(launches) AS count, sum(total) AS total_ns, min(least) AS min_ns,
  max(most) AS max_ns
  FROM parts GROUP BY ALL
)
SELECT coalesce(text_of(name), text_of(short_name)) AS name, text_of(short_name) AS short_name, {", ".join(_SIZES)},
ranks, count,
  total_ns, total_ns / coalesce(nullif(sum(total_ns) OVER (), 0), 1) * 100 AS time_percent, min_ns, max_ns
FROM configurations ORDER BY total_ns DESC, 1, {", ".join(_SIZES)}
"""
SQL = Statements(READS, map=MAP_SQL, reduce=_OVER_RANKS)

QUESTION = Question(
    "launch-configurations",
    __doc__,
    COLUMNS,
    SQL.map_rank,
    _merge,
    tables=READS,
    chart=CHART,
    sql=SQL,
    important=("short_name", "block_x", "total_ns", "grid_x", "time_percent"),
    map_ranks=SQL.map_ranks,
)
