"""Machine code from Python functions, made once and kept on disk."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from functools import cached_property, lru_cache, update_wrapper
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from alltrace.trace.places import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from alltrace.trace import machine_code

_F = TypeVar("_F", bound="Callable[..., Any]")

_FORM = b"3"  # of the files
_DIGEST_BYTES = 16
_WITHOUT_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # Python calls it by neither


def kernel(signature: object) -> Callable[[_F], _F]:
    """A decorator that compiles a function for `signature`, lets go of the GIL while it runs, and keeps the result on disk.

    The code is kept where Numba keeps it: `NUMBA_CACHE_DIR`, else beside the source, else the user's cache folder. Where none
    of them can be written (a read-only container, a full disk) it is compiled anew in each process.

    Args:
        signature: Numba's signature of the function; one only, so that importing a module compiles each kernel once.
    """
    import numba

    def compiled(function: _F) -> _F:
        seen = _as_compiled(function)
        try:
            return cast("_F", numba.njit(signature, nogil=True, cache=True)(seen))
        except (RuntimeError, OSError):
            # Numba finds no folder for the cache, or cannot write into the one that it found
            return cast("_F", numba.njit(signature, nogil=True)(seen))

    return compiled


def plain_kernel(signature: str) -> Callable[[_F], _F]:
    """`kernel` for a function of plain arithmetic on numbers and arrays, which calls nothing but its like.

    It is loaded or compiled when it is first called. What is kept of it is loaded without Numba, which would take a quarter of a
    second (see `alltrace.trace.machine_code`), from `NUMBA_CACHE_DIR`, or from beside the source, or from the user's cache folder.

    Args:
        signature: The function's signature in words, as Numba reads them: `int64(uint8[::1], int64)`.
    """

    def compiled(function: _F) -> _F:
        return cast("_F", PlainKernel(signature, function))

    return compiled


def load(function: Callable[..., Any]) -> None:
    """Load, or compile, a plain kernel before it is called."""
    cast("PlainKernel", function).load()


class Helper:
    """What only compiled functions call; it is made when the first of them is compiled.

    Args:
        make: Makes what Numba understands.
        function: The function in Python that it stands for.
    """

    def __init__(self, make: Callable[[], Any], function: Any) -> None:
        self._make = make
        self.function = function

    @cached_property
    def made(self) -> Any:
        """What Numba understands."""
        return self._make()


def inlined(function: _F) -> _F:
    """A decorator for a function that becomes a part of those compiled ones that call it."""

    def make() -> Any:
        import numba

        return numba.njit(inline="always")(_as_compiled(function))

    return cast("_F", Helper(make, function))


def intrinsic(function: Any) -> Any:
    """A decorator for a function that generates instructions, as `numba.extending.intrinsic` has it."""

    def make() -> Any:
        from numba import extending

        return extending.intrinsic(function)

    return Helper(make, function)


class PlainKernel:
    """A function that is loaded as it was compiled before, or compiled, when it is first called.

    Args:
        signature: Its signature.
        function: The function in Python.
    """

    def __init__(self, signature: str, function: Any) -> None:
        update_wrapper(self, function)
        self.signature = signature
        self.function = function
        self._run: Callable[..., Any] | None = None
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        """Run it.

        Raises:
            TypeError: An argument is not of its type.
            OverflowError: A number does not fit its type.
        """
        return (self._run or self.load())(*arguments)

    def load(self) -> Callable[..., Any]:
        """What is called: the function as it was kept, or as it is compiled now."""
        with self._lock:
            run = self._run = self._run or self._load()
        return run

    @property
    def loaded(self) -> bool:
        """Whether it has been called."""
        return self._run is not None

    @cached_property
    def made(self) -> Any:
        """The function as Numba compiles it in this process, for functions that call it."""
        import numba

        return numba.njit(self.signature, nogil=True, **_WITHOUT_WRAPPERS)(_as_compiled(self.function))

    @cached_property
    def whole(self) -> Callable[..., Any]:
        """The function as Numba compiles, keeps and runs it, for what the kept code cannot do."""
        return kernel(self.signature)(cast("Callable[..., Any]", self.function))

    def _load(self) -> Callable[..., Any]:
        from alltrace.trace import machine_code

        signature = machine_code.parse_signature(self.signature)
        try:
            code = self._kept_code(signature)
            if code is None:
                return self.whole
            fast = machine_code.load(signature, code, self._symbol)
        except (ImportError, AttributeError, RuntimeError, OSError, ValueError):
            # what lies below Numba is not promised to stay as it is; without it loading is slow, not wrong
            return self.whole

        def run(*arguments: Any) -> Any:
            try:
                return fast(*arguments)
            except machine_code.Unfinished:  # with an exception, which code that stands alone cannot make
                return self.whole(*arguments)

        return run

    @property
    def _symbol(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}".replace(".", "_")

    def _kept_code(self, signature: machine_code.Signature) -> bytes | None:
        """The code as it was kept, or made and kept now; None where the function needs Numba to run."""
        from alltrace.trace import machine_code

        host = machine_code.host().encode()
        key = _digest(_FORM, host, self.signature.encode(), *_contents(self.function))
        # hosts of several kinds may share a folder
        name = f"{self._symbol}.{sys.implementation.cache_tag}-{_digest(host).hex()[:8]}.kernel"
        folders = _folders(Path(self.function.__code__.co_filename).parent)
        for folder in folders:
            try:
                kept = (folder / name).read_bytes()
            except OSError:
                continue
            code = kept[2 * _DIGEST_BYTES :]
            if kept[: 2 * _DIGEST_BYTES] == key + _digest(code):
                return code
        made = self._compile(signature)
        if made is not None:
            _keep(folders, name, key + _digest(made) + made)
        return made

    def _compile(self, signature: machine_code.Signature) -> bytes | None:
        from alltrace.trace import machine_code

        text, name = machine_code.optimised(_as_compiled(self.function), self.signature, {"nogil": True, **_WITHOUT_WRAPPERS})
        return machine_code.object_code(signature, text, name, self._symbol)


def _as_compiled(function: Any) -> Any:
    """The function with what it calls of ours replaced by what Numba understands."""
    replaced = {}
    for name, value in _called(function).items():
        replaced[name] = value.made if isinstance(value, (Helper, PlainKernel)) else _plain(value)
    if not replaced:
        return function
    changed = FunctionType(
        function.__code__, {**function.__globals__, **replaced}, function.__name__, function.__defaults__, function.__closure__
    )
    changed.__module__, changed.__qualname__ = function.__module__, function.__qualname__
    return changed


@lru_cache
def _plain(function: Any) -> Any:
    import numba

    return numba.njit(**_WITHOUT_WRAPPERS)(_as_compiled(function))


def _called(function: Any) -> dict[str, Any]:
    """The functions of ours that a function may call, by the names that it calls them by."""
    found = {name: function.__globals__.get(name) for name in _names(function.__code__)}
    package = function.__module__.partition(".")[0]
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, (Helper, PlainKernel))
        or (isinstance(value, FunctionType) and value.__module__.partition(".")[0] == package)
    }


def _names(code: CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def _contents(function: Any) -> Iterator[bytes]:
    """What decides the function's code: the source of all that it calls of ours, and the values that these refer to."""
    found: dict[int, Any] = {}
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if id(one) not in found:
            found[id(one)] = one
            waiting.extend(getattr(called, "function", called) for called in _called(one).values())
    for path in sorted({one.__code__.co_filename for one in found.values()}):
        yield Path(path).read_bytes()
    for one in sorted(found.values(), key=lambda f: (f.__module__, f.__qualname__)):
        for name in sorted(_names(one.__code__)):
            value = one.__globals__.get(name)
            if isinstance(value, (int, float, tuple)) or hasattr(value, "dtype"):
                yield f"{one.__module__}.{name} = {value!r}".encode()


def _digest(*parts: bytes) -> bytes:
    made = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.digest()


def _folders(beside: Path) -> list[Path]:
    """Where code is looked for and kept, the first that can be written."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    return [Path(given)] if given else [beside / "__pycache__", Path(cache_folder()) / "code"]


def _keep(folders: list[Path], name: str, content: bytes) -> None:
    for folder in folders:
        part = folder / f"{name}.{os.getpid()}-{threading.get_ident()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            part.replace(folder / name)
        except OSError:
            with suppress(OSError):
                part.unlink()
            continue
        return
