"""Which tables a database has, and the statements that read their rows.

The schema is `rocpd_tables.sql` in ROCm/rocprofiler-sdk (`source/share/rocprofiler-sdk-rocpd`). The names of all tables
end with the UUID of a process; a database that was merged has a set of tables for each. Versions differ in where times
and places are: in the row itself, or by number in `rocpd_timestamp` and `rocpd_track`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from alltrace.readers.nsys.sqlite.database import quoted

_DISPATCHES = re.compile(rb"rocpd_kernel_dispatch(\w*)")
_TRACK = ("nid", "pid", "tid", "agent_id", "queue_id", "stream_id")
_MOST_SETS = 1024


class TableSet(NamedTuple):
    """The tables of one process."""

    suffix: str  # what their names end with
    columns: Mapping[str, frozenset[str]]  # the columns of each table that is there, by its name without the suffix

    def select(self, table: str, columns: Sequence[str], joined: Mapping[str, str] | None = None) -> str | None:
        """A statement that reads columns of a table; None if there is no such table.

        A column that the table lacks is read from where its numbers point to, else null. `joined` has more columns: of
        each the name and where it is, as `TABLE.COLUMN` joined by the row's `TABLE_id`, such as `event.stack_id`.
        """
        chosen, tail = self._parts(table, columns, joined or {})
        return f"SELECT {', '.join(chosen)} FROM {tail} ORDER BY own.id" if tail else None

    def earliest(self, table: str) -> str | None:
        """A statement for the earliest start of a table; None if there is no such table."""
        chosen, tail = self._parts(table, ("start",), {})
        return f"SELECT min({chosen[0]}) FROM {tail} WHERE typeof({chosen[0]}) = 'integer' AND {chosen[0]} >= 0" if tail else None

    def _parts(self, table: str, columns: Sequence[str], joined: Mapping[str, str]) -> tuple[list[str], str]:
        """What to select, and what from; an empty text if there is no such table."""
        if table not in self.columns:
            return [], ""
        own = self.columns[table]
        joins: dict[str, str] = {}
        chosen = [self._column(own, joins, name) for name in columns]
        for place in joined.values():
            other, _, column = place.partition(".")
            if f"{other}_id" in own and column in self.columns.get(f"rocpd_{other}", ()):
                joins[other] = self._join(f"rocpd_{other}", other, f"{other}_id")
                chosen.append(f"{other}.{quoted(column)}")
            else:
                chosen.append("NULL")
        return chosen, " ".join([f"{quoted(table + self.suffix)} AS own", *joins.values()])

    def _column(self, own: frozenset[str], joins: dict[str, str], name: str) -> str:
        if name in own:
            return f"own.{quoted(name)}"
        stamp = {"start": "start_id", "end": "end_id"}.get(name)
        if stamp in own and stamp and "value" in self.columns.get("rocpd_timestamp", ()):
            joins[stamp] = self._join("rocpd_timestamp", f"at_{name}", stamp)
            return f"at_{name}.value"
        if name in _TRACK and "track_id" in own and name in self.columns.get("rocpd_track", ()):
            joins["track"] = self._join("rocpd_track", "track", "track_id")
            return f"track.{quoted(name)}"
        return "NULL"

    def _join(self, table: str, called: str, by: str) -> str:
        return f"LEFT JOIN {quoted(table + self.suffix)} AS {called} ON {called}.id = own.{by}"


def table_sets(declared: Mapping[bytes, frozenset[str]]) -> list[TableSet]:
    """The sets of a database with the declared tables, by name with columns, in the order of their suffixes."""
    suffixes = sorted(m[1].decode() for name in declared if (m := _DISPATCHES.fullmatch(name)))
    sets = []
    for suffix in suffixes[:_MOST_SETS]:
        end = suffix.encode()
        own = {
            name[: len(name) - len(end)].decode("utf-8", "replace"): columns
            for name, columns in declared.items()
            if name.startswith(b"rocpd_") and name.endswith(end)
        }
        sets.append(TableSet(suffix, own))
    return sets
