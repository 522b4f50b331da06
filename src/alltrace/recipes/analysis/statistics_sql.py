"""Exact statistics over all ranks, in SQL: distributions as (key, value, count), and what is read off them.

A rank's million durations hold far fewer distinct (key, duration) pairs, so a part has a row for each pair with its
count. Adding these parts loses nothing: medians and quartiles over all ranks are exact. All sums are of whole numbers
in 128 bits, so no digit depends on the order of rows or ranks.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

Quantile = Literal["type_2", "type_7"]
"""How quartiles are read off a sample (Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American
Statistician 50, 1996): `type_2`, the mean of the two neighbours if p * n is whole, else the next value, as `nsys stats`
does; or `type_7`, linear between neighbours, as pandas and NumPy do. The median is the same in both."""

_FURTHER = "JOIN (SELECT {group}, {aggregates} FROM placed GROUP BY {group}) USING ({group})\n"

_WIDEST = 1 << 50
"""Squared distances from the mean are summed exactly up to this one (13 days in ns), beyond in floating point."""

_STATISTICS = """
WITH named AS (SELECT {keys}, {labels} FROM (SELECT DISTINCT {keys} FROM {source} AS parts)),
grouped AS (SELECT *, dense_rank() OVER (ORDER BY {names}) AS g FROM named),
placed AS MATERIALIZED (SELECT parts.rank, g, value, count{carried} FROM {source} AS parts JOIN grouped ON {same}),
reached AS (
  -- one sort of all rows takes a fifth of the time of a window with a partition for each group;
  -- a value may stand in several rows
  SELECT *, sum(count) OVER (ORDER BY {group}, value ROWS UNBOUNDED PRECEDING)::BIGINT AS place FROM placed
),
sums AS (
  SELECT {group}, sum(count)::BIGINT AS n, max(place) - n AS before, sum(value::HUGEINT * count) AS total,
    total // n AS center
  FROM reached GROUP BY ALL
),
summed AS (
  SELECT {group}, n AS count, total, total / n AS mean, {quartiles},
    min(value) AS min, max(value) AS max,
    if(greatest(max - center, center - min) <= {widest},
       sum(count * square(least(abs(value - center), {widest})))::DOUBLE,
       sum(count * square(value::DOUBLE - center::DOUBLE))) AS squares,
    if(n > 1, sqrt(greatest(squares - square((total - n * center)::DOUBLE) / n, 0) / (n - 1)), 0) AS stddev
  FROM reached JOIN sums USING ({group}) GROUP BY {group}, n, before, total, center
)
SELECT {rank}{named}, summed.* EXCLUDE ({group}, squares){further}
FROM summed JOIN (SELECT DISTINCT g, {names} FROM grouped) USING (g)
"""


def distribution_statement(keys: Sequence[str], events: str) -> str:
    """The distribution of values by key, from `events`, a SELECT of `rank`, `keys` and `value`; not of nulls."""
    return (
        f"SELECT rank, {', '.join(keys)}, value, count(*) AS count\nFROM ({events.strip()})\nWHERE value IS NOT NULL"
        " GROUP BY ALL"
    )


def merged_statement(keys: Sequence[str], *, ranks: bool = False, events: str | None = None) -> str:
    """The distributions of all ranks in one, as a SELECT over `parts`; `ranks`: also a row of count 0 for each rank.

    `events`: those that the distributions would be of, in place of `parts`; see `distribution_statement`.
    """
    columns = ", ".join(keys)
    added = "" if events is None else f"WITH parts AS (SELECT *, 1 AS count FROM ({events}) WHERE value IS NOT NULL)\n"
    added += (
        f"SELECT min(rank) AS rank, {columns}, value, sum(count)::BIGINT AS count\nFROM parts GROUP BY {columns}, value"
    )
    owners = f"\nUNION ALL SELECT rank, {columns}, min(value), 0\nFROM parts GROUP BY rank, {columns}"
    return added + owners if ranks else added


def statistics_statement(
    labels: Mapping[str, str],
    keys: Sequence[str],
    quantile: Quantile = "type_2",
    *,
    quartiles: bool = True,
    by_rank: bool = False,
    further: Mapping[str, str] | None = None,
    carried: Sequence[str] = (),
    source: str = "parts",
) -> str:
    """The statistics of values over `parts`, which are distributions; keys of equal labels are one.

    `by_rank`: Whether each rank has its own rows, with `rank` in front. `further`: More aggregates by name, over rows
    of `value`, `count` and `carried` (and, unless by rank, `rank`). Returns a SELECT of the labels, `count`, `total`,
    `mean`, `q1`, `median`, `q3`, `min`, `max`, `stddev` (of a sample, n - 1 below; 0 for one value) and `further`.
    """
    group = "rank, g" if by_rank else "g"
    statement = _STATISTICS.format(
        keys=", ".join(keys),
        labels=", ".join(f"{expression} AS label_{i}" for i, expression in enumerate(labels.values())),
        names=", ".join(f"label_{i}" for i in range(len(labels))),
        named=", ".join(f'label_{i} AS "{name}"' for i, name in enumerate(labels)),
        same=" AND ".join(f"parts.{key} IS NOT DISTINCT FROM grouped.{key}" for key in keys),
        group=group,
        rank="rank, " if by_rank else "",
        quartiles=", ".join(
            f"quartile_{quantile}(value, place - before, n, {number}) AS {name}"
            for name, number in (("q1", 1), ("median", 2), ("q3", 3))
            if quartiles or number == 2
        ),
        widest=_WIDEST,
        source=source,
        carried="".join(f", {name}" for name in carried),
        further="".join(f", {name}" for name in further or {}),
    )
    if not further:
        return statement
    aggregates = ", ".join(f"{expression} AS {name}" for name, expression in further.items())
    return statement + _FURTHER.format(group=group, aggregates=aggregates)
