"""What several recipes derive of one rank's tables, or of all ranks' facts, is made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from alltrace.recipes.base import RunFacts
from alltrace.run.rank import Placeable, Rank

_Made = TypeVar("_Made")
_Part = TypeVar("_Part", bound=Placeable)


class SharedRun:
    """A run for the `merge` of several recipes.

    `run`: The run; this object has its attributes too.
    """

    def __init__(self, run: RunFacts) -> None:
        self._inner = run
        self.memo: dict[Hashable, Any] = {}  # what `once` made

    def __getattr__(self, name: str) -> Any:
        """What the run has by that name."""
        return getattr(self._inner, name)


def once(owner: Rank | RunFacts, key: Hashable, make: Callable[[], _Made]) -> _Made:
    """The result of `make` for a rank or a run, computed once per key if several recipes share it, otherwise each time."""
    memo: dict[Hashable, Any] | None = getattr(owner, "memo", None)
    if memo is None:
        return make()
    if key not in memo:
        memo[key] = make()
    result: _Made = memo[key]
    return result


def kept_once(rank: Rank, name: str, classes: Sequence[type], make: Callable[[Rank], _Part]) -> _Part:
    """Like `once`; the part from `make` is also stored with the run, if parts of the rank are (`execution.kept_parts`).

    `rank`: The rank's tables. `name`: The name of the part. `classes`: The dataclasses that may be in it. `make`:
    Computes it only from the tables it gets: those of the rank, on the run's clock or in the time of its files.
    """
    store = rank.kept
    return once(rank, name, lambda: make(rank) if store is None else store.get(rank, name, classes, make))
