"""How an import is watched."""

from __future__ import annotations


class Watcher:
    """What an import tells while it works; the base class is silent."""

    def found(self, reports: int) -> None:
        """So many reports will be looked at."""

    def planned(self, ranks: int, rows: int) -> None:
        """So many ranks with about so many rows will be read."""

    def advance(self, rows: int) -> None:
        """So many more rows are done."""

    def rank_done(self, ranks: int) -> None:
        """So many more ranks done."""
