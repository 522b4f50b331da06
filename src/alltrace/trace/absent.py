"""Modules that a process does without, although they are installed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec


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
        return super().find_spec(fullname, path, target) if _is_loading("pyarrow") else None


class Later(ModuleType):
    """Stands for a module, in `sys.modules` and wherever it was imported to, until somebody wants something of it."""

    def __getattr__(self, name: str) -> Any:
        """What the module has, which is loaded for it."""
        from importlib import import_module

        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)
        vars(self).update({key: value for key, value in vars(module).items() if key not in vars(self)})
        return getattr(module, name)


class TypingLater(Later):
    """Stands for `numpy._typing` until somebody wants more of it than NumPy does while it is loaded, which is `NDArray[...]`.

    NumPy describes the results of its linear algebra by that, and for nothing else makes all types of arrays, scalars and shapes.
    """

    def __getattr__(self, name: str) -> Any:
        """A stand-in for `NDArray` while NumPy is loaded; all else, and everything later, from the real module."""
        if _is_loading("numpy"):
            if name == "NDArray":
                return list
            if name == "__path__":  # as if it had no modules of its own
                raise AttributeError(name)
        return super().__getattr__(name)


class InspectLater(Later):
    """Stands for `inspect` until somebody wants more of it than NumPy does while it is loaded.

    NumPy notes the signatures of some functions and tidies their texts, for those who look at them; that takes Python's parser.
    """

    def __getattr__(self, name: str) -> Any:
        """No signature, and texts as they are, while NumPy is loaded; all else, and everything later, from the real module."""
        if _is_loading("numpy"):
            if name == "signature":
                return _no_signature
            if name == "cleandoc":
                return str
        return super().__getattr__(name)


def _no_signature(_of: Any) -> None:
    """As Python has it where nothing is noted of a function."""


def _is_loading(module: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))


def keep_pandas_out() -> None:
    """Let pyarrow find no pandas in this process.

    The first conversion that pyarrow does imports pandas wherever it is installed, which takes longer than most answers; no command
    uses it. An interpreter that has pandas already keeps it. A value whose type pyarrow has to find out makes it import dateutil,
    where that is installed; the one here does not.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder, other = Without("pandas"), Without("dateutil")
    sys.meta_path[:] = [finder, other, *(f for f in sys.meta_path if not isinstance(f, WhilePyarrowLoads))]
    try:
        pa.scalar(0)  # pyarrow looks once and remembers
        refused = finder.refused
        pa.array([0])
        if finder.refused > refused:  # an older one's compiled part, which looks again until it has found one
            sys.modules["pandas"] = ModuleType("pandas")
            try:
                pa.array([0])
            finally:
                del sys.modules["pandas"]
    finally:
        sys.meta_path.remove(finder)
        sys.meta_path.remove(other)
