"""What keeps a command's start short and its memory small."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from alltrace.trace.absent import InspectLater, Later, TypingLater, WhilePyarrowLoads
from alltrace.trace.absent import keep_pandas_out as keep_pandas_out

if TYPE_CHECKING:
    from collections.abc import Callable

_LIBRARIES = {"numpy": ("_core/_multiarray_umath",), "pyarrow": ("lib", "_compute", "_parquet")}  # in the order of their use
_DOCUMENTATION = [f"numpy.{core}.{module}" for core in ("_core", "core") for module in ("_add_newdocs", "_add_newdocs_scalars")]
"""What gives NumPy's compiled functions their documentation, and nothing else: it makes a thousand texts that no command shows."""
_LATER = ("ast", "ipaddress", "pickle", "socket")
"""What NumPy, PyArrow and pathlib import and want nothing of while they are loaded."""
_OF_NUMPY = ("OPENBLAS_MAIN_FREE", "GOTOBLAS_MAIN_FREE")
"""What NumPy puts into the environment while it is loaded and takes out again, where it is not there already."""
_opening = _thread.allocate_lock()  # is held while libraries are opened ahead
_GARBAGE = 100_000  # objects more than there were, before Python looks for garbage; what most commands load is about half of it


def load_lightly() -> None:
    """Let what a command loads start no threads that it does not need, and look for garbage less often; 60 ms of most commands.

    NumPy's OpenBLAS starts a thread for each processor when it is loaded, which only products of matrices use. Loading modules
    makes many objects that stay, and Python would look through all of them again and again. Arrow allocates as the system does,
    here and in the processes started from here, which saves some 30 MB: its own allocators keep much of what was freed, for each
    thread. Whoever has chosen a number of threads or an allocator in the environment keeps it. PyArrow loads cloudpickle where that
    is installed, to pickle what no command pickles, and NumPy documents its functions, notes their signatures and makes types for
    those who check them. Modules that others import for what few commands do are loaded when somebody wants something of them.
    """
    import gc

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in _OF_NUMPY:
        os.environ.setdefault(name, "1")
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    gc.set_threshold(_GARBAGE, 10, 10)
    if "pyarrow" not in sys.modules:
        sys.meta_path.insert(0, WhilePyarrowLoads("cloudpickle"))
    if "numpy" not in sys.modules:
        from types import ModuleType

        for name in _DOCUMENTATION:
            sys.modules[name] = ModuleType(name)
        sys.modules["numpy._typing"] = TypingLater("numpy._typing")
        sys.modules.setdefault("inspect", InspectLater("inspect"))
    for name in _LATER:
        sys.modules.setdefault(name, Later(name))


def open_libraries_ahead(then: Callable[[], None] | None = None) -> None:
    """Have a thread of its own open the data libraries, which Python's imports find open then; 20 to 30 ms of most commands.

    Python holds its lock while it opens a library, so its own threads could not do this side by side with anything; a call of the
    system's function lets go of it. The environment must not be changed from here on until they are loaded: they look into it, and
    a process whose environment is moved meanwhile crashes. `load_lightly` sees to it that NumPy does not.

    Args:
        then: Is called by that thread when they are open, or not at all.
    """
    if "numpy" in sys.modules:
        return
    import ctypes
    from importlib.machinery import EXTENSION_SUFFIXES, PathFinder

    paths = []
    for package, modules in _LIBRARIES.items():
        found = PathFinder.find_spec(package)
        for folder in (found and found.submodule_search_locations) or ():
            paths += [f"{folder}/{module}{EXTENSION_SUFFIXES[0]}".encode() for module in modules]
    try:
        opened = ctypes.CDLL(None).dlopen
    except (AttributeError, OSError):
        return
    opened.argtypes, opened.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
    how = sys.getdlopenflags()
    _opening.acquire()

    def open_all() -> None:
        try:
            for path in paths:
                opened(path, how)  # what cannot be opened is told by the import of it
        finally:
            _opening.release()
        if then is not None:
            then()

    try:
        _thread.start_new_thread(open_all, ())
    except RuntimeError:  # no thread can be had
        _opening.release()
    else:
        atexit.register(_wait_for_libraries)


def _wait_for_libraries() -> None:
    """Until no library is being opened: an interpreter that ends meanwhile takes away what the library is about to use."""
    with _opening:
        pass


def leave(code: int) -> NoReturn:
    """End the process as `sys.exit` does, but without taking apart all that was loaded, which takes 40 ms."""
    try:
        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()  # noqa: SLF001  waits for threads, as the interpreter does
        atexit.unregister(_wait_for_libraries)  # the process ends at once
        atexit._run_exitfuncs()  # noqa: SLF001  what must be tidied up is
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except Exception:  # noqa: BLE001  an interpreter without these, or an output that is gone: Python knows what to say
        sys.exit(code)
    except KeyboardInterrupt:  # the user waits no longer for what is still at work
        pass
    os._exit(code)
