"""Both ways of reading agree on databases of all shapes, drawn at random."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.thorough import cases

INTEGERS = st.one_of(
    st.integers(-200, 200), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, 127, 128, -(2**47), 2**47])
)
REALS = st.one_of(st.floats(), st.integers(-(10**6), 10**6).map(float))
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.builds(lambda unit, times: unit * times, st.sampled_from(["x", "é", "ab🚀"]), st.integers(0, 3000)),
)
BLOBS = st.one_of(st.binary(max_size=12), st.integers(0, 9000).map(bytes))
KINDS = {"INTEGER": INTEGERS, "REAL": REALS, "TEXT": TEXTS, "BLOB": BLOBS, "": st.one_of(TEXTS, BLOBS)}


@st.composite
def tables(draw, name, *, odd):
    """SQL that makes a table, SQL with rows that fills it, and SQL that deletes some of its rows."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=9))
    columns = [f"c{i} {kind}" for i, kind in enumerate(kinds)]
    values = [st.none() | (st.one_of(*KINDS.values()) if odd else KINDS[kind]) for kind in kinds]
    key = draw(st.sampled_from(["", "id INTEGER PRIMARY KEY", "id INTEGER PRIMARY KEY DESC", "id INTEGER UNIQUE"]))
    if key:
        columns.insert(draw(st.integers(0, len(columns))), key)
    without = not key and kinds[0] == "INTEGER" and draw(st.booleans())
    if without:
        columns[0] += " PRIMARY KEY"
        values[0] = INTEGERS
    names = ", ".join(f"c{i}" for i in range(len(kinds)))
    rows = draw(st.lists(st.tuples(*values), max_size=12)) * draw(st.sampled_from([1, 1, 40]))
    create = f"CREATE TABLE {name} ({', '.join(columns)})" + (" WITHOUT ROWID" if without else "")
    fill = f"INSERT OR REPLACE INTO {name} ({names}) VALUES ({', '.join('?' * len(kinds))})", rows
    return create, fill, f"DELETE FROM {name} WHERE {'c0' if without else 'rowid'} % {draw(st.integers(1, 4))} = 1"


@st.composite
def databases(draw):
    """Pragmas and statements for two tables that are filled and thinned in turn, so that their pages mix and some are
    free."""
    pragmas = [
        f"page_size={draw(st.sampled_from([512, 1024, 4096, 8192, 65536]))}",
        f"auto_vacuum={draw(st.sampled_from(['NONE', 'FULL', 'INCREMENTAL']))}",
        f"encoding='{draw(st.sampled_from(['UTF-8', 'UTF-8', 'UTF-8', 'UTF-16le', 'UTF-16be']))}'",
    ]
    odd = draw(st.integers(0, 5)) == 0  # now and then any value in any column
    create, fill, delete = draw(tables("t", odd=odd))
    other_create, other_fill, other_delete = draw(tables("u", odd=False))
    alter = draw(
        st.sampled_from(["ALTER TABLE t ADD COLUMN more TEXT", "ALTER TABLE t ADD COLUMN more INT DEFAULT 7", ""])
    )
    steps = draw(st.lists(st.sampled_from([fill, delete, other_fill, other_delete, alter]), max_size=6))
    if alter in steps:
        first = steps.index(alter)
        steps = [step for at, step in enumerate(steps) if step != alter or (at == first and alter)]
    drop = draw(st.sampled_from(["DROP TABLE u", "VACUUM", "PRAGMA user_version = 3"]))
    return pragmas, [create, other_create, fill, other_fill, *steps, drop]


@settings(max_examples=cases(50, 150), deadline=None, suppress_health_check=list(HealthCheck))
@given(database=databases(), batch_rows=st.sampled_from([1, 13, 131_072]))
def test_both_ways_agree(make, both, database, batch_rows):
    pragmas, statements = database
    with tempfile.TemporaryDirectory() as folder:
        both(make(Path(folder) / "a.sqlite", statements, pragmas), batch_rows)
