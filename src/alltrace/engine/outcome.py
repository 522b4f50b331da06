"""What became of an item that an engine worked on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from alltrace.trace.errors import AlltraceError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Outcome(Generic[_Result]):
    """What became of one item: its result, or the error that was raised on purpose."""

    index: int  # the item's position
    result: _Result | None  # what the function returned, or None
    error: AlltraceError | None  # the `AlltraceError` it raised, or None

    def get(self) -> _Result:
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


def attempt(
    index: int, function: Callable[[_Item, Callable[[int], None]], _Result], item: _Item, advance: Callable[[int], None]
) -> Outcome[_Result]:
    try:
        return Outcome(index, function(item, advance), None)
    except AlltraceError as error:
        return Outcome(index, None, error)
