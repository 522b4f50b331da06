"""The vocabulary of the mapping: from which source columns, and how, a canonical column is made."""

from __future__ import annotations

from typing import Literal, NamedTuple

How = Literal["copy", "loose", "id", "string", "text", "thread", "process", "device", "words", "flag", "constant"]


class Field(NamedTuple):
    """How one canonical column is made."""

    # `copy`: the value, which must fit the canonical type. `loose`: the value, null if it does not fit. `id`: the
    # value, null if it is 2^32-1, with which CUPTI marks what does not apply. `string`: the name with the id in
    # `StringIds` that the column has. `text`: the name in the column itself. `thread` and `process`: the row of a
    # global thread or process id. `device`: the row of a CUDA ordinal. `words`: the word at the number in `words`.
    # `flag`: whether the number is not 0. `constant`: always `word`.
    how: How
    column: str | None = None  # the source column
    words: tuple[str, ...] = ()  # the words of an enum
    word: str | None = None  # the constant
    otherwise: tuple[str, ...] = ()  # for `string`: words for the number in the column `otherwise_column` if the name is null
    otherwise_column: str | None = None  # see `otherwise`


class Source(NamedTuple):
    """How the rows of one table of the export become rows of one canonical table."""

    table: str  # the canonical table
    source: str  # the table of the export; one that ends in `*` means all tables with that beginning
    fields: dict[str, Field]  # canonical column to field; the columns not named are null
    # column of the export and number: only rows with that number there are events, unless the column is missing
    only: tuple[str, int] | None = None


def copy(column: str) -> Field:
    """The value itself."""
    return Field("copy", column)


def loose(column: str) -> Field:
    """The value if it fits; an id that CUPTI marks as invalid has all bits set and does not."""
    return Field("loose", column)


def identifier(column: str) -> Field:
    """The value if CUPTI does not mark it as invalid."""
    return Field("id", column)


def string(column: str) -> Field:
    """The name with the id in the column."""
    return Field("string", column)


def words(choice: tuple[str, ...], column: str) -> Field:
    """The word at the number."""
    return Field("words", column, words=choice)


def constant(word: str, choice: tuple[str, ...] = ()) -> Field:
    """Always the same word."""
    return Field("constant", words=choice or (word,), word=word)


THREAD = {"thread": Field("thread", "globalTid"), "process": Field("process", "globalTid")}
PROCESS = {"process": Field("process", "globalPid")}
TIMES = {"start": copy("start"), "end": copy("end")}
