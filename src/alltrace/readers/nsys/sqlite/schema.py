"""The tables of a database and their declared columns."""

import sqlite3
from typing import NamedTuple

from alltrace.readers.nsys.sqlite.database import Access, connection, quoted

_ROWID_NAMES = ("rowid", "_rowid_", "oid")

_MOST_KNOWN = 1_000
_LONGEST_KNOWN = 10_000

_known: "dict[tuple[str, bytes], Table | None]" = {}
"""The tables of earlier reports by name and `CREATE` statement: the reports of a job have the same ones, and SQLite
takes a tenth of the time of an import of small reports to tell what is in them."""


class Column(NamedTuple):
    """A declared column."""

    name: str  # its name
    type: str  # `int64`, `float64`, `string` or `binary`
    field: int  # its place in a record
    has_default: bool  # whether a record that is too short to have it means another value than NULL
    is_rowid: bool  # whether it is the row's number (an INTEGER PRIMARY KEY), which the record does not repeat
    not_null: bool  # whether it must have a value


class Table(NamedTuple):
    """A table, or a view."""

    name: str  # its name
    root: int  # the page its tree begins at; 0 for a view or a virtual table
    columns: dict[str, Column]  # by name, in order of declaration
    rowid: str | None  # a name for the row's number; None in a view and in a table WITHOUT ROWID, or if columns hide it
    plain: bool  # whether the records hold just the declared columns in order
    fields: int  # the number of declared columns, including those with names that are not UTF-8


def read_schema(access: Access) -> dict[str, Table]:
    """All tables and views but SQLite's own and names that are not UTF-8. Raises `InputError`: it cannot be read."""
    tables: dict[str, Table] = {}
    with connection(access) as opened:
        rows = opened.execute(
            "SELECT type, name, rootpage, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        ).fetchall()
        for kind, raw, root, statement in rows:
            name = _text(raw)
            if name is None or name.lower().startswith("sqlite_"):
                continue
            number = root if kind == b"table" and isinstance(root, int) and root > 0 else 0
            table = _table_of(opened, name, number, statement)
            if table is not None and table.columns:
                tables[name] = table
    return tables


def declared_type(declaration: str) -> str:
    """The type of a declaration, by SQLite's rules of affinity, with text if nothing is declared.

    Source: https://www.sqlite.org/datatype3.html, section 3.1; a declaration with "numeric" affinity is read as
    `float64`.
    """
    upper = declaration.upper()
    if "INT" in upper:
        return "int64"
    if not upper or any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "string"
    if "BLOB" in upper:
        return "binary"
    return "float64"


def _table_of(opened: sqlite3.Connection, name: str, root: int, statement: object) -> Table | None:
    """A table or view; one that was made with the same statement as one before is not looked at again."""
    # a view depends on tables, and what has no tree of its own on modules
    if not root or not isinstance(statement, bytes) or len(statement) > _LONGEST_KNOWN:
        return _table(opened, name, root)
    key = name, statement
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = _table(opened, name, root)
    known_table = _known[key]
    return None if known_table is None else known_table._replace(root=root)


def _table(opened: sqlite3.Connection, name: str, root: int) -> Table | None:
    try:
        rows = opened.execute(
            'SELECT cid, name, type, dflt_value, pk, hidden, "notnull" FROM pragma_table_xinfo(?)', (name,)
        ).fetchall()
    except sqlite3.OperationalError:
        if root:
            raise
        return None  # a view of what is not there, or a virtual table of a module that SQLite here does not have
    keys = [row for row in rows if row[4]]
    # "INTEGER PRIMARY KEY DESC" is not an alias of the row's number, and shows by the index that it needs
    alias = len(keys) == 1 and keys[0][2].upper() == b"INTEGER" and not _has_key_index(opened, name)
    names = {(_text(row[1]) or "").lower() for row in rows}
    columns = {}
    for cid, raw, declaration, default, key, hidden, not_null in rows:
        column = _text(raw)
        if column is not None and hidden != 1:  # 1: an argument of a virtual table, no column
            columns[column] = Column(
                name=column,
                type=declared_type(declaration.decode("utf-8", "replace") if declaration else ""),
                field=cid,
                has_default=default is not None,
                is_rowid=bool(alias and key and root),
                not_null=bool(not_null),
            )
    return Table(
        name=name,
        root=root,
        columns=columns,
        rowid=next(
            (word for word in _ROWID_NAMES if word not in names and root and _is_column(opened, name, word)), None
        ),
        plain=not any(row[5] for row in rows),  # generated columns are not, or not all, in the record
        fields=len(rows),
    )


def _is_column(opened: sqlite3.Connection, table: str, column: str) -> bool:
    try:
        opened.execute(f"SELECT {column} FROM {quoted(table)} LIMIT 0")
    except sqlite3.OperationalError:
        return False
    return True


def _has_key_index(opened: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk' LIMIT 1"
    return opened.execute(query, (name,)).fetchone() is not None


def _text(raw: object) -> str | None:
    if not isinstance(raw, bytes):
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
