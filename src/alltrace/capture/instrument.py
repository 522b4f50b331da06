"""Named ranges, and PyTorch's profiler; see `alltrace.instrument`, which is what scripts import."""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from alltrace.capture.identity import find_identity, safe
from alltrace.capture.variables import DOMAIN, JOB, MARK, RANK_FILE, RAY_NUMBER, TRACES
from alltrace.capture.window import window_given
from alltrace.trace.errors import UsageError
from alltrace.trace.side_file_words import ROLE, SIDE_FILE, VERSION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    Function = TypeVar("Function", bound=Callable[..., object])

_UNDER_NSYS = ("NSYS_PROFILING_SESSION_ID", "QUADD_INJECTION_PROXY")


def profiled() -> bool:
    """Whether this process runs under a profiler that `capture exec` or a user has started."""
    return bool(os.environ.get(MARK)) or any(v in os.environ for v in _UNDER_NSYS)


class _Nothing:
    """A range that does nothing."""

    __slots__ = ()

    # callables in C: functions would cost half a microsecond; the second one takes any arguments and returns a false
    # value
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
        for make in makers:
            span = make(self._name)
            span.__enter__()
            self._open.append(span)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            self._open.pop().__exit__(kind, error, trace)

    def __call__(self, function: Function) -> Function:
        return _decorated(function, self._name)


_NOTHING = _Nothing()
_taken: list[bool] = []
makers: list[Callable[[str], Any]] = []


def annotate(name: str) -> _Range | _Nothing:
    """A range called `name` around a `with` block or, as a decorator, around each call of a function.

    It is an NVTX range under nsys and ncu, and a `record_function` under `torch_profile`. A decorator that is applied
    where the process is not profiled leaves the function as it is; `trace_func` looks at each call.
    """
    return _Range(name) if makers else _NOTHING


@overload
def trace_func(function: Function, *, name: str | None = None) -> Function: ...


@overload
def trace_func(function: None = None, *, name: str | None = None) -> Callable[[Function], Function]: ...


def trace_func(
    function: Function | None = None, *, name: str | None = None
) -> Function | Callable[[Function], Function]:
    """Decorate a function by a range of its qualified name, or `name`; as `@trace_func` or `@trace_func(name=...)`."""
    if function is None:
        return functools.partial(_named, name)
    return _decorated(function, name or function.__qualname__)


def _named(name: str | None, function: Function) -> Function:
    return _decorated(function, name or function.__qualname__)


def _decorated(function: Function, name: str) -> Function:
    @functools.wraps(function)
    def around(*arguments: Any, **options: Any) -> Any:
        if not makers:
            return function(*arguments, **options)
        with _Range(name):
            return function(*arguments, **options)

    return around  # type: ignore[return-value]


def note_rank() -> None:
    """Report this rank's number to the wrapper, if only the program knows it, as a Ray actor does."""
    folder, size = os.environ.get("TMPDIR"), os.environ.get("WORLD_SIZE", "0")
    if (
        RAY_NUMBER in os.environ
        and MARK in os.environ
        and folder
        and os.environ.get("RANK", "").isdecimal()
        and size.isdecimal()
    ):
        with (
            suppress(OSError),
            open(os.path.join(folder, RANK_FILE), "w", encoding="ascii") as file,  # noqa: PTH118, PTH123
        ):
            file.write(f"{os.environ['RANK']} {size}\n")


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


def torch_window(first: int, end: int) -> Profile:
    """PyTorch's profiler, which records until its `stop()`, and writes the trace of the steps `first` to `end - 1`.

    Where the script has a `torch_profile`, that one records, and this one nothing.
    """
    if _taken:
        return _NoProfile()
    profile: Profile = _torch_profiler(os.environ[TRACES], None, {}, lambda: f"steps{first}-{end - 1}")
    profile.start()
    return profile


class Profile(Protocol):
    """The result of `torch_profile`: for a `with` block, or for `start` and `stop`."""

    def __enter__(self) -> Self:
        """Start."""

    def __exit__(self, *_: object) -> bool | None:
        """Stop."""

    def start(self) -> None:
        """Start to record."""

    def stop(self) -> None:
        """Record no more."""

    def step(self) -> None:
        """A step of the training ends here."""


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

    The files are called `{job}_rank{rank}-of-{world size}_cycle{n}.pt.trace.json.gz`. Without `folder` it records only
    if `capture exec --profiler torch` runs the program, and does nothing otherwise. `--steps` takes precedence over the
    arguments here.

    `folder`: where the traces go, made if it is missing; None for what `capture exec` says. `wait`: steps of a cycle
    that are passed over; 1 by default. `warmup`: steps of a cycle that are recorded and thrown away; 1 by default.
    `active`: steps of a cycle that are kept; 3 by default. `repeat`: how many cycles there are; 0 for as many as there
    is time for. `options`: passed on to `torch.profiler.profile`. Raises `UsageError`: the process runs under nsys or
    ncu, which need what torch.profiler needs (CUPTI), or there is no torch.
    """
    if folder is None:
        folder = os.environ.get(TRACES) or None
        if folder is None:
            return _NoProfile()
    _taken.append(True)
    values = window_given()
    if values is not None:  # the command line knows better than the script
        first, end = values
        warmup = min(first, 1)
        wait, active, repeat = first - warmup, end - first, 1
    waited, warm, recorded = (d if n is None else n for n, d in ((wait, 1), (warmup, 1), (active, 3)))
    cycles = count()
    profile: Profile = _torch_profiler(
        folder, (waited, warm, recorded, repeat), options, lambda: f"cycle{next(cycles)}"
    )
    return profile


def _torch_profiler(
    folder: str, cycle: tuple[int, int, int, int] | None, options: dict[str, Any], window: Callable[[], str]
) -> Any:
    """A profile of PyTorch with traces named by rank and `window`.

    `cycle`: steps that are skipped, discarded and kept, and the number of cycles; None for all from start to stop.
    `window`: names each trace.
    """
    if profiled():
        raise UsageError(
            "torch_profile cannot run under nsys or ncu: both need CUPTI; use one of them, or"
            " `alltrace.instrument.steps`"
        )
    try:
        from torch import profiler
    except ImportError as error:
        raise UsageError("torch_profile needs PyTorch, but it cannot be imported") from error
    who = find_identity(os.environ, os.uname().nodename)
    named = os.environ.get(JOB, "").replace("/", "-")
    job = f"{named}{who.restart}" if named else who.job or "job"
    role = safe(os.environ.get(ROLE, ""))
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103  pathlib would be a further import

    def export(profile: Any) -> None:
        rank = f"{role and '_' + role}_rank{who.rank}-of-{who.world_size or 1}_{window()}"
        names = (f"{job}{f'-restart{n}' if n else ''}{rank}.pt.trace.json.gz" for n in count())
        paths = (os.path.join(folder, name) for name in names)  # noqa: PTH118
        # an actor of Ray that died is started again, and may have its rank from its program alone
        path = next(p for p in paths if RAY_NUMBER not in os.environ or not os.path.exists(p))  # noqa: PTH110
        profile.export_chrome_trace(path)
        if role:
            with suppress(OSError), open(f"{path}{SIDE_FILE}", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(f'{{"{VERSION_KEY}": 1, "rank": {who.rank}, "role": "{role}", "left_out": []}}\n')

    if profiler.record_function not in makers:
        makers.append(profiler.record_function)
    if cycle is not None:
        waited, warm, recorded, repeat = cycle
        options["schedule"] = profiler.schedule(wait=waited, warmup=warm, active=recorded, repeat=repeat)
    return profiler.profile(on_trace_ready=export, **options)


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
        makers.append(_found)
