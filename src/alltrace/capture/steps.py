"""The window of steps that is recorded, with a range around each step; scripts import `alltrace.instrument`."""

import os
import sys
from array import array
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, Self

from alltrace.capture import cuda_profiler, instrument
from alltrace.capture.armed import Watch, Window, armed_watch, note_window
from alltrace.capture.variables import MARK, MEMORY, STEPS_BY, STEPS_RANGE, TRACES
from alltrace.capture.window import note_time, window_given
from alltrace.trace.errors import UsageError
from alltrace.trace.step_time_mark import StepTimeMark

# How long steps took before the window, by the host's clock. A launch returns before the work is done, so the host
# can be ahead of the device by some steps, and single steps are not reliable. So steps are measured in groups, and
# the median of the groups' means is the time of a step.
_WARM_UP = 3
"""The first steps of a process are slow by themselves."""
_LEAST = 8
_MOST = 1024
_STRETCHES = 8
_NORMAL, _OF_A_MEDIAN = 1.4826, 1.2533


class StepsBefore:
    """Stamps of the last thousand steps of this process that were not captured."""

    __slots__ = ("_stamps", "_warm_up")

    def __init__(self) -> None:
        self._stamps = array("q")
        self._warm_up = _WARM_UP

    def ended(self) -> None:
        if self._warm_up:
            self._warm_up -= 1
            return
        self._stamps.append(perf_counter_ns())
        if len(self._stamps) > 2 * _MOST:
            del self._stamps[:_MOST]

    def forget(self) -> None:
        """What comes next does not follow what came before, as after a window."""
        del self._stamps[:]
        self._warm_up = 1

    def mark(self) -> StepTimeMark | None:
        """How long they took; None if they are too few."""
        stamps = self._stamps[-_MOST:]
        count = len(stamps) - 1
        if count < _LEAST:
            return None
        cuts = [count * n // _STRETCHES for n in range(_STRETCHES + 1)]
        means = sorted((stamps[b] - stamps[a]) / (b - a) for a, b in pairwise(cuts))
        middle = _median(means)
        spread = _NORMAL * _median(sorted(abs(mean - middle) for mean in means))
        return StepTimeMark(count, round(middle), round(_OF_A_MEDIAN * spread / _STRETCHES**0.5))


def _median(values: list[float]) -> float:
    """The median of ascending values; `statistics` would be a further import of every program."""
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


# Snapshots of memory: the two functions are those that "Understanding CUDA Memory Usage" of PyTorch names for it.
_MOST_ENTRIES = 200_000
"""Some 40 MB of a snapshot; the latest are kept."""


def begin_history() -> bool:
    """Have the allocator record its history, if requested; returns whether it does."""
    if MEMORY not in os.environ:
        return False
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        sys.stderr.write(
            "alltrace: --memory-snapshot needs PyTorch with a GPU, which this process does not have; no snapshot is"
            " written\n"
        )
        return False
    # so PyTorch's documentation calls it
    torch.cuda.memory._record_memory_history(max_entries=_MOST_ENTRIES)  # noqa: SLF001
    return True


def end_history(name: str) -> None:
    """Write the snapshot, and have the allocator write down no more."""
    # `name`: what distinguishes it from others of the rank.
    import torch  # which the program has loaded, as the history has begun

    memory: Any = torch.cuda.memory
    path = f"{os.environ[MEMORY]}{name}.pickle"
    try:
        memory._dump_snapshot(path)  # noqa: SLF001  so PyTorch's documentation calls it
    except OSError as error:
        sys.stderr.write(f"alltrace: {path}: {error.strerror}; no snapshot of memory is written\n")
    memory._record_memory_history(enabled=None)  # noqa: SLF001


_NEVER = -1


class steps:  # noqa: N801  used as `with steps(70, 75) as window`
    """The steps of a training, and a window of them that is recorded on every profiled rank.

    Each step that can be recorded is in a range `step N`. A range at the start of the window states how long the steps
    before it took, so that the trace shows what the profiler costs. The steps `first` to `end - 1` are recorded: the
    device is synchronised and cudaProfilerStart called before the first, and the device is synchronised and
    cudaProfilerStop called after the last, or when the block ends before. Under `capture exec --profiler torch` PyTorch
    records them, unless the script has a `torch_profile`. Steps are counted over the whole training: give `at` when it
    is resumed. A range `steps` in the NVTX domain `alltrace` encloses the window.

    `first`: the first step that is recorded; None for what `capture exec --steps` says. `end`: the step after the last
    one that is recorded; None for what `capture exec --steps` says. `at`: the number of the step that comes first in
    this process. Raises `UsageError`: one of `first` and `end` is missing, or the window holds no step.
    """

    __slots__ = (
        "_always", "_at", "_before", "_end", "_first", "_memory", "_names", "_next",
        "_range", "_running", "_step", "_torch", "_watch", "_window",
    )  # fmt: skip

    def __init__(self, first: int | None = None, end: int | None = None, *, at: int = 0) -> None:
        if (first is None) != (end is None):
            raise UsageError("steps needs both its first step and the one after its last, or neither")
        if first is not None and end is not None and end <= first:
            raise UsageError(f"steps({first}, {end}) contains no step; the second number is the step after the last")
        self._at = at
        self._running = False
        self._range: Any = None
        self._step: Any = None
        self._torch: Any = None
        self._memory = False
        self._names = self._always = False
        self._watch: Watch | None = None
        self._window: Window | None = None
        self._next = _NEVER
        self._first, self._end = _NEVER, _NEVER
        self._before: StepsBefore | None = None
        if instrument.profiled() or os.environ.get(TRACES):
            window = window_given()  # the command line knows better than the script
            if window is not None:
                self._first, self._end = window
            elif first is not None and end is not None:
                self._first, self._end = first, end

    def __enter__(self) -> Self:
        self._watch = armed_watch()
        instrument.note_rank()
        # if the profiler records nothing outside the window, a range would only cost
        self._names = self._always = bool(instrument.makers) and self._watch is None and window_given() is None
        if self._watch is None and self._first == _NEVER:
            self._memory = begin_history()
        else:
            self._before = StepsBefore()
        if self._first != _NEVER and self._at < self._end:
            self._next = max(self._first, self._at)
            if self._next == self._at:
                self._turn()
        if self._names:
            self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()
        self._names = False
        if self._running:
            self._stop()
        elif self._memory:
            self._memory = False
            end_history("")
        self._next = _NEVER

    @property
    def recording(self) -> bool:
        return self._running

    def step(self) -> None:
        self._at += 1
        if self._before is not None and not self._running:
            self._before.ended()
        if self._names:
            self._finish()
        if self._watch is not None and not self._running:
            self._look(self._watch)
        if self._at == self._next:
            self._turn()
        if self._names:
            self._begin()

    def _look(self, watch: Watch) -> None:
        window = watch.step(self._at)
        if window is not None:
            self._window = window
            self._next, self._first, self._end = window.first, window.first, window.end

    def _begin(self) -> None:
        self._step = instrument.annotate(f"step {self._at}")
        self._step.__enter__()

    def _finish(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def _turn(self) -> None:
        if self._running:
            self._next = _NEVER
            self._stop()
            return
        self._next = self._end
        self._running = True
        note_time("begin")
        self._memory = begin_history()
        in_torch = not os.environ.get(MARK) and os.environ.get(TRACES)
        if in_torch:
            self._torch = instrument.torch_window(self._first, self._end)
        self._names = bool(instrument.makers)
        if in_torch:
            self._tell()
            return
        cuda_profiler.synchronise()
        if self._window is not None:
            note_window(self._window)
            self._window = None
        self._warn(has_cuda=cuda_profiler.switch("Start"))
        if instrument.makers:
            self._range = instrument.annotate(STEPS_RANGE)
            self._range.__enter__()
        self._tell()

    def _tell(self) -> None:
        mark = self._before.mark() if self._before is not None else None
        if mark is not None:
            with instrument.annotate(mark.text):
                pass
        if self._before is not None:
            self._before.forget()

    def _stop(self) -> None:
        self._running = False
        note_time("end")
        self._names = self._always
        if self._watch is not None:
            self._watch.forget_time()
        cuda_profiler.synchronise()  # what was launched in the window belongs to it
        if self._memory:
            self._memory = False
            end_history(f"_steps{self._first}-{self._at - 1}")
        if self._torch is not None:
            self._torch.stop()
            self._torch = None
            return
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None
        cuda_profiler.switch("Stop")

    @staticmethod
    def _warn(*, has_cuda: bool) -> None:
        """Report it if the profiler waits for something that this process cannot do."""
        waits_for = os.environ.get(STEPS_BY)
        if waits_for == "cuda" and not has_cuda:
            lacking = "no CUDA runtime was found for cudaProfilerStart; give capture exec --steps-by nvtx"
        elif waits_for == "nvtx" and not instrument.makers:
            lacking = "no NVTX was found; pip install nvtx"
        else:
            return
        sys.stderr.write(f"alltrace: the window of steps cannot be opened: {lacking}\n")
