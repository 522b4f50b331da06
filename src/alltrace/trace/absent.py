"""Modules that a process does without, although they are installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class Without:
    """A finder that finds none of some modules, and leaves everything else to the others.

    `importlib.abc`, which has the base class, loads for longer than all of this takes.
    """

    def __init__(self, *names: str) -> None:
        self._names = names
        self.refused = 0

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        """Refuse them."""
        if fullname in self._names:
            self.refused += 1
            raise ModuleNotFoundError(fullname, name=fullname)
        return None


class WhilePyarrowLoads(Without):
    """The same, where PyArrow is the one that asks."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Refuse them while PyArrow is being loaded."""
        asks = getattr(getattr(sys.modules.get("pyarrow"), "__spec__", None), "_initializing", False)
        return super().find_spec(fullname, path, target) if asks else None


def keep_pandas_out() -> None:
    """Let pyarrow find no pandas in this process.

    The first conversion that pyarrow does imports pandas wherever it is installed, which takes longer than most answers; no command
    uses it. An interpreter that has pandas already keeps it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = Without("pandas")
    sys.meta_path[:] = [finder, *(f for f in sys.meta_path if not isinstance(f, WhilePyarrowLoads))]
    try:
        pa.scalar(0)  # pyarrow looks once and remembers
        refused = finder.refused
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
    if finder.refused > refused:  # an older one's compiled part, which looks again until it has found one
        from types import ModuleType

        sys.modules["pandas"] = ModuleType("pandas")
        try:
            pa.array([0])
        finally:
            del sys.modules["pandas"]
