"""Questions that compare ranks, asked of devices where processes have several; answers about processes and devices.

Such a question sees a run with a rank for each device (`alltrace.align.devices`). Its answer comes with the numbers of
that run, which mean nothing to a reader: each becomes the process and, next to it, the device.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from alltrace.recipes.base import Answer, AnswerTable, Question, of
from alltrace.run.members import Members
from alltrace.run.store import Run

SENTENCES = ("advice", "loss_note")  # columns of answers with sentences about ranks


def judged(run: Run, recipe: Question, options: Mapping[str, Any]) -> Run:
    """The run a question is asked of: with a rank for each device, if a process has several and it compares them."""
    if not of(recipe.of_devices, options) or all(len(record.devices) < 2 for record in run.ranks):
        return run
    from alltrace.align.devices import by_devices

    return by_devices(run) or run


def chosen_members(run: Run, members: Members, ranks: Sequence[int] | None) -> tuple[int, ...] | None:
    """The devices of the chosen ranks; None for all. Raises `UsageError`: the run has no such rank."""
    return None if ranks is None else tuple(members.numbers([run.rank(rank).rank for rank in ranks]))


def in_processes(answer: Answer, run: Run, members: Members) -> Answer:
    """An answer about a run by devices as one about its processes and their devices, with the notes of the run."""
    notes = (*run.manifest.notes, *map(members.in_words, answer.notes))
    extra = {name: [_of_row(row, members) for row in rows] for name, rows in answer.extra.items()}
    further = {name: AnswerTable(_of_table(t.table, members), t.columns) for name, t in answer.further.items()}
    return answer._replace(table=_of_table(answer.table, members), notes=notes, extra=extra, further=further)


def _of_row(row: Mapping[str, Any], members: Members) -> dict[str, Any]:
    return {name: members[value].rank if _is_rank(name) and value is not None else value for name, value in row.items()}


def _of_table(table: pa.Table, members: Members) -> pa.Table:
    """A table with the process in columns of a rank, and what is known of the device in those next to them."""
    arrays: dict[str, Any] = {}

    def put(name: str, values: Sequence[Any], make: Callable[[Any], Any]) -> None:
        field = table.schema.field(name)
        arrays[name] = pa.array([None if v is None else make(v) for v in values], field.type)

    for name in table.column_names:
        if _is_rank(name):
            numbers = table.column(name).to_pylist()
            put(name, numbers, lambda number: members[number].rank)
            device = f"{name.removesuffix('rank')}device"
            if device in table.column_names:
                put(device, numbers, lambda number: members[number].device)
        elif name in SENTENCES:
            put(name, table.column(name).to_pylist(), members.in_words)
        elif name == "ranks" and pa.types.is_list(table.schema.field(name).type):
            of_row = table.column(name).to_pylist()
            put(name, of_row, members.ranks)
            if "devices" in table.column_names:
                put("devices", of_row, members.devices)
    for name, array in arrays.items():
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(place), array)
    return table


def _is_rank(name: str) -> bool:
    return name == "rank" or name.endswith("_rank")
