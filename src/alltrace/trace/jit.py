"""Machine code from Python functions, made once and kept on disk."""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, TypeVar, cast

import numba

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_F = TypeVar("_F", bound="Callable[..., Any]")


def kernel(signature: object) -> Callable[[_F], _F]:
    """A decorator that compiles a function for `signature`, lets go of the GIL while it runs, and keeps the result on disk.

    The code is kept where Numba keeps it: `NUMBA_CACHE_DIR`, else beside the source, else the user's cache folder. Where none
    of them can be written (a read-only container, a full disk) it is compiled anew in each process.

    Args:
        signature: Numba's signature of the function; one only, so that importing a module compiles each kernel once.
    """

    def compiled(function: _F) -> _F:
        try:
            return cast("_F", numba.njit(signature, nogil=True, cache=True)(function))
        except (RuntimeError, OSError):
            # Numba finds no folder for the cache, or cannot write into the one that it found
            return cast("_F", numba.njit(signature, nogil=True)(function))

    return compiled


def plain_kernel(signature: object) -> Callable[[_F], _F]:
    """`kernel` for a function of plain arithmetic on numbers and arrays, which calls nothing but its like: loads faster.

    Before Numba loads code from its cache it loads all that it knows of Python and NumPy, to be able to compile, which takes 0.2
    s. Code that refers to no function of Numba's libraries runs without that.
    """
    usual = kernel(signature)

    def compiled(function: _F) -> _F:
        try:
            dispatcher = _from_cache(signature, function)
        except Exception:  # noqa: BLE001  what is used here is not promised to stay; without it loading is slow, not wrong
            dispatcher = None
        return usual(function) if dispatcher is None else cast("_F", dispatcher)

    return compiled


class _Late:
    """A compiled function that is loaded when it is first called."""

    def __init__(self, signature: object, function: Any) -> None:
        update_wrapper(self, function)
        self._signature = signature
        self._function = function
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is None:
            self._compiled = plain_kernel(self._signature)(self._function)
        return self._compiled(*arguments)


def late_kernel(signature: object) -> Callable[[_F], _F]:
    """`plain_kernel` for a function that only Python calls: it is loaded or compiled when it is first called."""

    def compiled(function: _F) -> _F:
        return cast("_F", _Late(signature, function))

    return compiled


def _from_cache(signature: object, function: Any) -> Any:
    """The function as Numba has it in its cache; None where it has not."""
    from numba.core import compiler_lock, runtime, sigutils

    internals: Any = sigutils
    reference_counts: Any = runtime
    dispatcher: Any = numba.njit(nogil=True)(function)
    dispatcher.enable_caching()
    context = dispatcher.targetctx
    with compiler_lock.global_compiler_lock:
        reference_counts.rtsys.initialize(context)  # counts references to arrays
        arguments, result = internals.normalize_signature(signature)
        made = dispatcher._cache._load_overload(signature, context)  # noqa: SLF001
        if made is None or made.signature.args != arguments or made.signature.return_type != result:
            return None
        dispatcher.add_overload(made)
        context.insert_user_function(made.entry_point, made.fndesc, [made.library])
    dispatcher.disable_compile()
    return dispatcher
