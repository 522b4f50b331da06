"""Comparison of two time ranges of one run: where the time of the slower one went."""

from collections.abc import Callable, Sequence
from typing import Any

from alltrace.tiles.area import Area, area_facts
from alltrace.tiles.cancel import WANTED, Token
from alltrace.tiles.events import EventReader
from alltrace.tiles.tracks import SUMMARY

CLASSES = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
_ALL_NAMES = 1 << 30


def difference(
    reader: EventReader,
    ranks: Sequence[int],
    first: tuple[int, int],
    second: tuple[int, int],
    token: Token = WANTED,
    *,
    gpus: Callable[[int], Sequence[int]] = lambda _: (),
) -> dict[str, Any]:
    """What differs between two ranges of time, such as two steps."""
    # `ranks`: the ranks; what their devices did counts. `first`: start and end, ns from the run's start. `gpus`: the
    # devices of a rank that count even where they did nothing. Returns `breakdown`, by class the mean of the devices in
    # both (`class`, `first_ns`, `second_ns`, `more_ns`); `names`, by kind and name what their events last in both
    # (`kind`, `name`, `first_count`, `second_count`, `first_ns`, `second_ns`, `more_ns`: each by its part within the
    # range, summed over the ranks), the largest difference first; `ranks_asked`, and `ranks_done`, the ranks that were
    # counted in both: where these are fewer, both tables are of them alone.

    def facts_of(span: tuple[int, int], of: Sequence[int]) -> dict[str, Any]:
        return area_facts(reader, Area(dict.fromkeys(of, (SUMMARY,)), *span, names=_ALL_NAMES), token, gpus=gpus)

    one = facts_of(first, ranks)
    other = facts_of(second, list(ranks)[: one["ranks_done"]])
    if other["ranks_done"] < one["ranks_done"]:
        one = facts_of(first, list(ranks)[: other["ranks_done"]])
    breakdown = []
    for name in CLASSES:
        means = [sum(r[name] for r in facts["breakdown"]) / max(len(facts["breakdown"]), 1) for facts in (one, other)]
        breakdown.append({"class": name, "first_ns": means[0], "second_ns": means[1], "more_ns": means[1] - means[0]})
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for which, facts in (("first", one), ("second", other)):
        for total in facts["totals"]:
            key = total["kind"], total["name"]
            row = rows.setdefault(key, {"kind": key[0], "name": key[1], **dict.fromkeys(_NUMBERS, 0)})
            row[f"{which}_count"] += total["count"]
            row[f"{which}_ns"] += total["total_ns"]
    for row in rows.values():
        row["more_ns"] = row["second_ns"] - row["first_ns"]
    names = sorted(rows.values(), key=lambda r: (-abs(r["more_ns"]), r["kind"], r["name"]))
    return {"breakdown": breakdown, "names": names, "ranks_asked": len(ranks), "ranks_done": other["ranks_done"]}


_NUMBERS = ("first_count", "second_count", "first_ns", "second_ns")
