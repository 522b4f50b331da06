"""What several recipes derive of one rank's tables, or of all ranks' facts, is made once."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from alltrace.recipes.base import RunFacts
from alltrace.run.rank import Placeable, Rank

_Made = TypeVar("_Made")
_Part = TypeVar("_Part", bound=Placeable)


class SharedRun:
    """A run for the `merge` of several recipes, with the attributes of the run."""

    def __init__(self, run: RunFacts) -> None:
        self._inner = run
        self.memo: dict[Hashable, Any] = {}  # what `once` made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def once(owner: Rank | RunFacts, key: Hashable, make: Callable[[], _Made]) -> _Made:
    """The result of `make`, computed once per key if several recipes share the rank or run, otherwise each time."""
    memo: dict[Hashable, Any] | None = getattr(owner, "memo", None)
    if memo is None:
        return make()
    if key not in memo:
        memo[key] = make()
    result: _Made = memo[key]
    return result


def kept_once(rank: Rank, name: str, classes: Sequence[type], make: Callable[[Rank], _Part]) -> _Part:
    """Like `once`, and stored with the run if parts of the rank are; `make` gets the run's clock or that of files."""
    store = rank.kept
    return once(rank, name, lambda: make(rank) if store is None else store.get(rank, name, classes, make))
