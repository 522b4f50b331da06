"""The window of steps that is recorded, and named ranges; see `alltrace.instrument`, which is what scripts import."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from alltrace.capture.identity import find_identity
from alltrace.capture.profilers.nsys import DOMAIN, JOB, MARK, STEPS, STEPS_RANGE, TRACES
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    Function = TypeVar("Function", bound=Callable[..., object])

_NEVER = -1
_UNDER_NSYS = ("NSYS_PROFILING_SESSION_ID", "QUADD_INJECTION_PROXY")
_CUDART = ("libcudart.so", "libcudart.so.12", "libcudart.so.13", "libcudart.so.11.0")


def profiled() -> bool:
    """Whether this process runs under a profiler that `capture exec` or a user has started."""
    return bool(os.environ.get(MARK)) or any(v in os.environ for v in _UNDER_NSYS)


class _Nothing:
    """A range that is none."""

    __slots__ = ()

    # callables in C: functions would cost half a microsecond; the second one takes any arguments and gives what is false
    __enter__: Callable[..., object] = tuple
    __exit__: Callable[..., object] = "".format

    def __call__(self, function: Function) -> Function:
        return function


class _Range:
    """A named range, for `with` or as a decorator."""

    __slots__ = ("_name", "_open")

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[Any] = []

    def __enter__(self) -> Self:
        for make in _makers:
            made = make(self._name)
            made.__enter__()
            self._open.append(made)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._open:
            self._open.pop().__exit__(kind, error, trace)

    def __call__(self, function: Function) -> Function:
        return _decorated(function, self._name)


_NOTHING = _Nothing()
_makers: list[Callable[[str], Any]] = []


def annotate(name: str) -> _Range | _Nothing:
    """A range called `name` around a `with` block or, as a decorator, around each call of a function.

    It is an NVTX range under nsys and ncu, and a `record_function` under `torch_profile`. A decorator that is applied where the
    process is not profiled leaves the function as it is; `trace_func` looks at each call.
    """
    return _Range(name) if _makers else _NOTHING


@overload
def trace_func(function: Function, *, name: str | None = None) -> Function: ...


@overload
def trace_func(function: None = None, *, name: str | None = None) -> Callable[[Function], Function]: ...


def trace_func(function: Function | None = None, *, name: str | None = None) -> Function | Callable[[Function], Function]:
    """Decorates a function with a range that has its qualified name, or `name`; as `@trace_func` or `@trace_func(name=...)`."""
    if function is None:
        return functools.partial(_named, name)
    return _decorated(function, name or function.__qualname__)


def _named(name: str | None, function: Function) -> Function:
    return _decorated(function, name or function.__qualname__)


def _decorated(function: Function, name: str) -> Function:
    @functools.wraps(function)
    def around(*arguments: Any, **options: Any) -> Any:
        if not _makers:
            return function(*arguments, **options)
        with _Range(name):
            return function(*arguments, **options)

    return around  # type: ignore[return-value]


class steps:  # noqa: N801  used as `with steps(70, 75) as window`
    """A window of steps, recorded on every profiled rank.

    The steps `first` to `end - 1` are recorded: the device is synchronised and cudaProfilerStart called before the first, and the
    device is synchronised and cudaProfilerStop called after the last, or when the block ends before. Steps are counted over the
    whole training: give `at` when it is resumed. A range `steps` in the NVTX domain `alltrace` lies around the window.

    Args:
        first: The first step that is recorded; None for what `capture exec --steps` says.
        end: The step after the last one that is recorded; None for what `capture exec --steps` says.
        at: The number of the step that comes first in this process.

    Raises:
        UsageError: One of `first` and `end` is missing, or the window holds no step.
    """

    __slots__ = ("_at", "_end", "_first", "_next", "_range", "_running")

    def __init__(self, first: int | None = None, end: int | None = None, *, at: int = 0) -> None:
        if (first is None) != (end is None):
            raise UsageError("steps needs both its first step and the one after its last, or neither")
        if first is not None and end is not None and end <= first:
            raise UsageError(f"steps({first}, {end}) holds no step; the second number is the step after the last")
        self._at = at
        self._running = False
        self._range: Any = None
        self._next = _NEVER
        self._first, self._end = _NEVER, _NEVER
        given = _window_given()
        if profiled():
            if given is not None:  # the command line knows better than the script
                self._first, self._end = given
            elif first is not None and end is not None:
                self._first, self._end = first, end

    def __enter__(self) -> Self:
        if self._first != _NEVER and self._at < self._end:
            self._next = max(self._first, self._at)
            if self._next == self._at:
                self._turn()
        return self

    def __exit__(self, *_: object) -> None:
        if self._running:
            self._stop()
        self._next = _NEVER

    @property
    def recording(self) -> bool:
        """Whether the window has begun and not ended."""
        return self._running

    def step(self) -> None:
        """A step has ended and the next one begins."""
        self._at += 1
        if self._at == self._next:
            self._turn()

    def _turn(self) -> None:
        if self._running:
            self._next = _NEVER
            self._stop()
            return
        self._next = self._end
        self._running = True
        _synchronise()
        _profiler("Start")
        if _makers:
            self._range = annotate(STEPS_RANGE)
            self._range.__enter__()

    def _stop(self) -> None:
        self._running = False
        _synchronise()  # what was launched in the window belongs to it
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None
        _profiler("Stop")


def _window_given() -> tuple[int, int] | None:
    found = re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", os.environ.get(STEPS, ""))
    return (int(found[1]), int(found[2])) if found else None


class _NoProfile:
    """A profile that records nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was recorded."""

    def start(self) -> None:
        """Record nothing."""

    stop = step = start


class Profile(Protocol):
    """What `torch_profile` gives: for a `with` block, or to be started and stopped."""

    def __enter__(self) -> Self:
        """Start."""
        ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        """Stop."""
        ...

    def start(self) -> None:
        """Start to record."""
        ...

    def stop(self) -> None:
        """Record no more."""
        ...

    def step(self) -> None:
        """A step of the training ends here."""
        ...


def torch_profile(
    folder: str | None = None,
    *,
    wait: int | None = None,
    warmup: int | None = None,
    active: int | None = None,
    repeat: int = 1,
    **options: object,
) -> Profile:
    """A `torch.profiler.profile` that writes one trace per rank and cycle; call its `step()` after each step.

    The files are called `{job}_rank{rank}-of-{world size}_cycle{n}.pt.trace.json.gz`. Without `folder` it records where
    `capture exec --profiler torch` says so, and does nothing elsewhere. What `--steps` says comes before what is said here.

    Args:
        folder: Where the traces go, made where it is missing; None for what `capture exec` says.
        wait: Steps of a cycle that are passed over; 1 where nothing is said.
        warmup: Steps of a cycle that are recorded and thrown away; 1 where nothing is said.
        active: Steps of a cycle that are kept; 3 where nothing is said.
        repeat: How many cycles there are; 0 for as many as there is time for.
        options: Passed on to `torch.profiler.profile`.

    Raises:
        UsageError: The process runs under nsys or ncu, which need what torch.profiler needs (CUPTI), or there is no torch.
    """
    if folder is None:
        folder = os.environ.get(TRACES) or None
        if folder is None:
            return _NoProfile()
    if profiled():
        raise UsageError(
            "torch_profile cannot run under nsys or ncu: both need CUPTI; use one of them, or `alltrace.instrument.steps`"
        )
    try:
        from torch import profiler
    except ImportError as error:
        raise UsageError("torch_profile needs PyTorch, which cannot be imported") from error
    who = find_identity(os.environ, os.uname().nodename)
    named = os.environ.get(JOB, "").replace("/", "-")
    job = f"{named}{who.restart}" if named else who.job or "job"
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103  pathlib would be a further import
    target = folder
    cycles = 0

    def export(profile: Any) -> None:
        nonlocal cycles
        name = f"{job}_rank{who.rank}-of-{who.world_size or 1}_cycle{cycles}.pt.trace.json.gz"
        profile.export_chrome_trace(os.path.join(target, name))  # noqa: PTH118
        cycles += 1

    if profiler.record_function not in _makers:
        _makers.append(profiler.record_function)
    given = _window_given()
    if given is not None:  # the command line knows better than the script
        first, end = given
        warmup = min(first, 1)
        wait, active, repeat = first - warmup, end - first, 1
    waited, warm, kept = (d if n is None else n for n, d in ((wait, 1), (warmup, 1), (active, 3)))
    schedule = profiler.schedule(wait=waited, warmup=warm, active=kept, repeat=repeat)
    made: Profile = profiler.profile(schedule=schedule, on_trace_ready=export, **options)
    return made


def _synchronise() -> None:
    """Wait for the device, where the process uses one."""
    torch = sys.modules.get("torch")
    if torch is not None:
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return
    runtime = _runtime()
    if runtime is not None:
        runtime.cudaDeviceSynchronize()


def _profiler(what: str) -> None:
    """Call cudaProfilerStart or cudaProfilerStop, where there is CUDA."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        getattr(torch.cuda.cudart(), f"cudaProfiler{what}")()
        return
    runtime = _runtime()
    if runtime is not None:
        getattr(runtime, f"cudaProfiler{what}")()


@functools.cache
def _runtime() -> ctypes.CDLL | None:
    for name in _CUDART:
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _nvtx() -> Callable[[str], Any] | None:
    """What makes an NVTX range: the package nvtx, else PyTorch's; None without both."""
    with suppress(ImportError):
        import nvtx

        return functools.partial(nvtx.annotate, domain=DOMAIN)
    with suppress(ImportError):
        from torch import version
        from torch.cuda import nvtx as torch_nvtx

        if version.cuda is not None:  # else each range would raise
            return functools.partial(torch_nvtx.range, "{}")  # it formats its first argument
    return None


if profiled():
    _found = _nvtx()
    if _found is not None:
        _makers.append(_found)
