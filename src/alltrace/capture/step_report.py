"""The verdict inside the training: which rank is slow, in which phase, since when and how sure that is.

Ranks that wait for each other all take as long as the slowest, so whole steps show nothing. A rank's own work does: the
time of its steps without the phases in which it waits. Each rank keeps the phases of its last steps. Every N steps it
sends a few numbers of them to the first rank, which prints what they say. With `record`, every step is written down as
well.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from alltrace.capture.control import request_window
from alltrace.capture.gpu_state import GpuSampler, GpuState
from alltrace.capture.identity import find_identity
from alltrace.capture.step_exchange import Exchange, job_store
from alltrace.capture.step_record import StepRecord
from alltrace.capture.step_verdict import CPU_WAIT, OTHER, RankTimes, Verdict, describe, judge, times_of
from alltrace.capture.variables import ARMED, RECORD
from alltrace.core.steps import TIMED_PHASES, Phase, StepTimes
from alltrace.trace.errors import UsageError
from alltrace.trace.step_records import BY_DEVICE, INCOMPLETE, PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Self, TypeVar

    from alltrace.capture.identity import Identity
    from alltrace.capture.step_exchange import Store

    Batch = TypeVar("Batch")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from alltrace.core.steps import StepTimes


_MOST_OPEN = 64
"""Steps with events that have not come; of more, the oldest are lost."""


# A launch returns before the work is done, so moments are events on the current stream. They are read when they have
# come, at the end of a later step, and nothing waits for them.
class DeviceSteps:
    """The steps of `times` by events, which `make` creates; the first begins now, with a number."""

    def __init__(self, times: StepTimes, make: Callable[[], Any], step: int) -> None:
        self._times = times
        self._make = make
        self._free: list[Any] = []
        self._open: deque[tuple[int, int, int, Any, list[tuple[int, Any]]]] = deque()
        self._lost = 0
        self._first = self._stamp()
        times.begin(step, self._stamp)

    def _stamp(self) -> Any:
        event = self._free.pop() if self._free else self._make()
        event.record()
        return event

    def end(self) -> Iterator[bool]:
        """A step ends and the next one begins; for each earlier step with all events, whether it fills a window."""
        while self._open and all(event.query() for _, event in self._open[0][4]):
            number, begin_ns, last, before, marks = self._open.popleft()
            times_ns: dict[int, int] = {}
            for phase, event in marks:
                times_ns[phase] = times_ns.get(phase, 0) + round(1e6 * before.elapsed_time(event))
                self._free.append(before)
                before = event
            flags = BY_DEVICE | (INCOMPLETE if self._lost else 0)
            yield self._times.put(
                number, begin_ns, [times_ns.get(n, 0) for n in range(max(times_ns) + 1)], 0, last, flags
            )
            self._lost = 0
        step, begin_ns, last = self._times.step, self._times.begin_ns, self._times.last
        marks = self._times.end_stamped()
        self._open.append((step, begin_ns, last, self._first, marks))
        self._first = marks[-1][1]
        if len(self._open) > _MOST_OPEN:
            self._open.popleft()
            self._lost += 1


def device_events() -> Callable[[], Any] | None:
    """What makes an event of the device that this process uses; None if it uses none."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return lambda: torch.cuda.Event(enable_timing=True)


_LEAST_STEPS = 10
_TO_RECORD = 10
_DATA, _FORWARD, _BACKWARD, _OPTIMIZER = "data", "forward", "backward", "optimizer"


class step_report:  # noqa: N801  used as `with step_report(every=50) as report`
    """Keeps times of a training's steps and phases, and periodically prints which rank is slow, where, since when.

    Call `step` after each step, and put `phase(NAME)` around its parts, or have `data` and `phases` do it. A phase
    called as one of `waits` is one in which the rank waits for others, such as a collective or the transfer of a loss;
    its time does not count as the rank's own. A phase within another one interrupts it, and what is in none is `other`,
    so the phases of a step add up to it. Nothing is printed but by the first rank, and nothing here waits for other
    ranks or for the GPU.

    `every`: after how many steps the ranks compare their times. `waits`: the names of phases in which a rank waits for
    others. `at`: the number of the step that comes first in this process. `capture`: in a job that `alltrace capture
    arm` has started: after how many verdicts with a slow rank steps are recorded, at most; 0 for never. `store`:
    carries the numbers of ranks, with the methods of `torch.distributed.TCPStore`; None for a connection of our own to
    the job's, by MASTER_ADDR and MASTER_PORT. `record`: a folder that all hosts may share, in which every step is
    written down; None for what the variable ALLTRACE_RECORD names, else none. `rank`, `world`: this rank, and how many
    there are; None for what `torch.distributed` or the launcher says. `say`: gets each line; None for standard error.
    Raises `UsageError`: `every` is too small for a result, or the record cannot be written.
    """

    __slots__ = (
        "_capture", "_device", "_every", "_exchange", "_exchanges", "_gpu", "_hooks", "_names", "_places", "_record",
        "_say", "_since", "_times", "_waits", "_who", "last",
    )  # fmt: skip

    def __init__(
        self,
        every: int = 50,
        *,
        waits: Sequence[str] = ("wait",),
        at: int = 0,
        capture: int = 0,
        store: Store | None = None,
        record: str | os.PathLike[str] | None = None,
        rank: int | None = None,
        world: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if every < _LEAST_STEPS:
            raise UsageError(f"step_report(every={every}) compares too few steps; expected {_LEAST_STEPS} or more")
        self._every = every
        self._waits = frozenset(waits)
        self._capture = capture
        self._say = say or _to_stderr
        self._who = _identity(rank, world)
        self._names: list[str] = []
        self._places: dict[str, Phase] = {}
        self._hooks: list[Any] = []
        self._gpu = GpuSampler()
        self._since: dict[int, str] = {}  # since when each slow rank is slow
        self._exchanges = 0
        self._times = StepTimes(every)
        self._begin(at)
        self._exchange = Exchange(
            self._who.rank,
            self._who.world_size or 1,
            (lambda: store) if store is not None else job_store,
            self._judged,
            self._say,
        )
        folder = record or os.environ.get(RECORD)
        self._record = None
        if folder:
            pages = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"alltrace-steps-{os.getuid()}")  # noqa: PTH118, S108
            self._record = StepRecord(os.fspath(folder), pages, self._who, self._times)
        self.last: Verdict | None = None

    def __enter__(self) -> Self:
        self._begin(self._times.step)  # the script may use the GPU by now
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The last steps are too few to compare, and other ranks may have ended; the record keeps them."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._exchange.close()
        if self._record is not None and kind is None:  # the page of a training that failed stays, for `alltrace hang`
            self._record.close()

    def phase(self, name: str) -> Phase:
        """What measures a part of a step, for `with`."""
        try:
            return self._places[name]
        except KeyError:
            return self._new_phase(name)

    def _new_phase(self, name: str) -> Phase:
        if name in (CPU_WAIT, OTHER):
            raise UsageError(f"step_report itself measures {name!r}; give the phase another name")
        if len(self._names) == TIMED_PHASES:
            raise UsageError(
                f"step_report has {TIMED_PHASES} phases already; {name!r} is one too many, so is it a name anew each"
                " step?"
            )
        self._names.append(name)
        place = self._places[name] = Phase(self._times, len(self._names))
        if self._record is not None and len(self._names) <= PHASES:
            self._record.name(self._names, self._waits)
        return place

    def _begin(self, step: int) -> None:
        make = device_events()
        self._device = None if make is None else DeviceSteps(self._times, make, step)
        if make is None:
            self._times.begin(step)

    def data(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of a loader; the wait for each is the phase `data`."""
        place = self.phase(_DATA)
        batches = iter(loader)
        while True:
            self._times.turn(0)  # such as a backward pass without a step of the optimizer after it
            with place:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch

    def phases(self, model: Any, optimizer: Any = None) -> Self:
        """Measure the phases `forward`, `backward` and `optimizer` of a training by PyTorch, by temporary hooks.

        `forward` lasts until the gradient of the model's output is known. `backward` lasts until the optimiser's step
        begins, or the next batch or step does. Where there are several ranks, `backward` counts as a wait, because DDP
        and FSDP wait for other ranks in it. `model`: a module. `optimizer`: an optimiser, or None. Returns the report.
        """
        forward, backward, update = (self.phase(name) for name in (_FORWARD, _BACKWARD, _OPTIMIZER))
        if (self._who.world_size or 1) > 1:
            self._waits |= {_BACKWARD}
            if self._record is not None:
                self._record.name(self._names, self._waits)

        def none(*_: Any) -> None:
            self._times.turn(0)

        def after_forward(_model: Any, _inputs: Any, output: Any) -> None:
            tensor = _with_gradient(output)
            if tensor is None:
                self._times.turn(0)
            else:
                tensor.register_hook(backward.begin)

        self._hooks.append(model.register_forward_pre_hook(forward.begin))
        self._hooks.append(model.register_forward_hook(after_forward))
        if optimizer is not None:
            self._hooks.append(optimizer.register_step_pre_hook(update.begin))
            self._hooks.append(optimizer.register_step_post_hook(none))
        return self

    def step(self) -> None:
        if self._device is not None:
            for full in self._device.end():
                if full:
                    self._offer()
        elif self._times.end():
            self._offer()

    def _offer(self) -> None:
        names, waits, exchange, every = [CPU_WAIT, OTHER, *self._names], self._waits, self._exchanges, self._every
        rows, first = self._times.taken_window(), self._times.ended_step + 1 - every
        self._exchanges += 1

        def measured() -> RankTimes:
            columns = [rows[n :: len(rows) // every] for n in range(len(names))]
            return times_of(columns, names, waits, first, exchange, self._sampled())

        self._exchange.offer(measured)

    def _sampled(self) -> GpuState:
        gpu = self._gpu.sample()
        self._times.set_gpu(gpu.clock_mhz, gpu.throttle, gpu.xid)
        return gpu

    def _judged(self, rows: list[RankTimes]) -> None:
        """Print what the rows of all ranks say; in the thread of the exchange, on the first rank."""
        first = rows[0].first
        steps = f"steps {first} to {first + self._every - 1}"
        phases = sorted([CPU_WAIT, OTHER, *self._names])
        if len({(row.names, len(row.phases_s)) for row in rows}) > 1 or len(phases) != len(rows[0].phases_s):
            self._say(f"{steps}: ranks have other phases, so they cannot be compared")
            return
        if len(rows) < 2:
            return
        verdict = self.last = judge(rows, phases, self._waits)
        now = f"step {first} ({time.strftime('%H:%M:%S')})"
        self._since = {one.rank: self._since.get(one.rank, now) for one in verdict.slow}
        self._say(f"{steps}: {describe(verdict, rows, phases, self._since, self._waits)}")
        if verdict.slow and self._capture > 0:
            self._capture -= 1
            self._ask()

    def _ask(self) -> None:
        folder = os.environ.get(ARMED)
        if not folder:
            return
        try:
            request_window(folder, _TO_RECORD)
        except OSError as error:
            self._say(f"{folder}: {error.strerror}; no window is recorded")


def _with_gradient(output: Any) -> Any:
    """The first tensor with a gradient in what a model returns; None without one."""
    if getattr(output, "requires_grad", False):
        return output
    if isinstance(output, dict):
        output = tuple(output.values())
    its = output if isinstance(output, (list, tuple)) else ()
    return next((tensor for one in its if (tensor := _with_gradient(one)) is not None), None)


def _identity(rank: int | None, world: int | None) -> Identity:
    """Which rank this is: as stated, else as `torch.distributed` or the launcher says."""
    who = find_identity(os.environ, os.uname().nodename)
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        who = who._replace(rank=int(torch.distributed.get_rank()), world_size=int(torch.distributed.get_world_size()))
    if rank is not None and rank != who.rank:
        who = who._replace(rank=rank, local_rank=None)
    return who if world is None else who._replace(world_size=world)


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"alltrace: {text}\n")
