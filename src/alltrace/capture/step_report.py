"""A small report inside the training: which rank is slow and in which phase, from times that each rank keeps in a few kilobytes.

Ranks that wait for each other all take as long as the slowest, so whole steps show nothing. A rank's own work does: the
time of its steps without the phases in which it waits. Every N steps each rank sends the medians of its last N steps to all others,
over the process group that the job has anyway, and the first rank prints what they say.

Where the process uses a GPU by PyTorch, a launch returns before the work is done, so phases are measured by events on the current
stream, and their times are read when the ranks compare.
"""

from __future__ import annotations

import os
import sys
from array import array
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from alltrace.capture.control import read_control, write_control
from alltrace.capture.variables import ARMED, REQUEST
from alltrace.trace.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    Gather = Callable[[Sequence[float]], "list[list[float]] | None"]

_MOST_PHASES = 16
_LEAST_STEPS = 10
_LEAST_SHARE = 0.01
"""A smaller difference of a step's time is not reported, even if it is significant."""
_SURE = 4.0
"""Standard errors that a difference must have."""
_NORMAL = 1.4826
"""The standard deviation of a normal distribution, in median absolute deviations."""
_MEDIAN_ERROR = 1.2533
"""The ratio of the standard errors of the median and of the mean of normal values: the square root of half pi."""
_NAMED = 3
_TO_RECORD = 10


class Finding(NamedTuple):
    """A rank that is slower than the others."""

    rank: int  # the rank
    own_s: float  # time of its own work in a step, in s
    others_s: float  # the same for the median rank
    phase: str  # the phase in which it loses most; empty if no phases are measured
    phase_s: float  # how much it loses there, in s


class Verdict(NamedTuple):
    """What the times of all ranks say."""

    slow: tuple[Finding, ...]  # the ranks that are slower than the others, the slowest first
    least_share: float  # the difference of a step's time that would have been seen, as a share
    spread: float  # how much the slowest rank takes longer than the median one, as a share
    own: bool  # whether what ranks do by themselves was measured, and not only whole steps


def judge(rows: Sequence[Sequence[float]], phases: Sequence[str], waits: Sequence[str], steps: int) -> Verdict:
    """Which rank is slow.

    `rows`: of each rank, in s: the median of its steps' own time and that median's standard error, then the median of
    each phase.
    `waits`: those in which a rank waits for others.
    """
    own = [row[0] for row in rows]
    middle = _median(own)
    errors = [row[1] for row in rows]
    # the scatter of all ranks, with at least half of them assumed to be as fast as the median
    among = _NORMAL * _median([abs(value - middle) for value in own])
    shares = [(value - middle) / middle if middle > 0 else 0.0 for value in own]
    typical = (_median(errors) ** 2 + among**2) ** 0.5
    least = max(_LEAST_SHARE, _SURE * typical / middle) if middle > 0 else 1.0
    found = []
    for rank, row in enumerate(rows):
        bound = max(_LEAST_SHARE * middle, _SURE * (row[1] ** 2 + among**2) ** 0.5)
        if steps < _LEAST_STEPS or own[rank] - middle <= bound:
            continue
        losses = [
            (row[2 + n] - _median([other[2 + n] for other in rows]), phase) for n, phase in enumerate(phases) if phase not in waits
        ]
        loss, phase = max(losses, default=(own[rank] - middle, ""))
        found.append(Finding(rank, own[rank], middle, phase, loss))
    found.sort(key=lambda f: -f.own_s)
    measured = any(phase not in waits for phase in phases) or bool(waits and phases)
    return Verdict(tuple(found), least, max(shares, default=0.0), measured)


class step_report:  # noqa: N801  used as `with step_report(every=50) as report`
    """Keeps the times of a training's steps and phases, and periodically prints which rank is slow, in which phase.

    Call `step` after each step, and put `phase(NAME)` around its parts. A phase called as one of `waits` is one in which the rank
    waits for others, such as a collective or the transfer of a loss; its time does not count as the rank's own. Nothing is printed
    but by the first rank.

    `every`: after how many steps the ranks compare their times. `waits`: the names of phases in which a rank waits for
    others. `at`: the number of the step that comes first in this process. `capture`: in a job that `alltrace capture
    arm` has started: after how many verdicts with a slow rank steps are recorded, at most; 0 for never. `gather`:
    returns the numbers of all ranks, by rank, from those of this one; None for `torch.distributed`. `rank`: this rank;
    None for that of `torch.distributed`, or the launcher's. `say`: gets each line; None for standard error. Raises
    `UsageError`: `every` is too small for a result.
    """

    __slots__ = (
        "_at", "_capture", "_every", "_gather", "_last", "_names", "_now", "_places", "_rank", "_say", "_seconds", "_stamps",
        "_steps", "_times", "_waits", "last",
    )  # fmt: skip

    def __init__(
        self,
        every: int = 50,
        *,
        waits: Sequence[str] = ("wait",),
        at: int = 0,
        capture: int = 0,
        gather: Gather | None = None,
        rank: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if every < _LEAST_STEPS:
            raise UsageError(f"step_report(every={every}) compares too few steps; expected {_LEAST_STEPS} or more")
        self._every = every
        self._waits = frozenset(waits)
        self._at = at
        self._capture = capture
        self._gather = gather
        self._rank = rank
        self._say = say or _to_stderr
        self._names: list[str] = []
        self._places: dict[str, _Phase] = {}
        self._times = array("f", bytes(4 * every * (_MOST_PHASES + 1)))  # a row of each step: all of it, then its phases
        self._steps = 0  # since the last verdict
        self._stamps: list[Any] = []  # of steps with events that have not been read
        self._now, self._seconds = _clock()
        self._last = self._now()
        self.last: Verdict | None = None

    def __enter__(self) -> Self:
        self._now, self._seconds = _clock()  # the script may use the GPU by now
        for place in self._places.values():
            place.now = self._now
        self._last = self._now()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing is left to do: the last steps are too few to compare, and other ranks may have ended."""

    def phase(self, name: str) -> _Phase:
        """What measures a part of a step, for `with`."""
        place = self._places.get(name)
        if place is None:
            if len(self._names) == _MOST_PHASES:
                raise UsageError(
                    f"step_report has {_MOST_PHASES} phases already; {name!r} is one too many, so is it a name anew each step?"
                )
            place = self._places[name] = _Phase(self._now)
            self._names.append(name)
        return place

    def step(self) -> None:
        """A step has ended and the next one begins."""
        now = self._now()
        self._stamps.append((self._last, now, [place.taken() for place in self._places.values()]))
        self._last = now
        self._at += 1
        if self._seconds is _host_seconds or len(self._stamps) == self._every:
            self._read()
        if self._steps == self._every:
            self._steps = 0
            self._compare()
            self._last = self._now()  # the comparison belongs to no step

    def _read(self) -> None:
        """Store the times of the steps with stamped ends."""
        if self._seconds is not _host_seconds:
            import torch  # which the program has loaded, as its events give the times

            torch.cuda.synchronize()
        for begin, end, phases in self._stamps:
            row = self._steps * (_MOST_PHASES + 1)
            self._times[row] = self._seconds(begin, end)
            for n, spans in enumerate(phases, row + 1):
                self._times[n] = sum(self._seconds(a, b) for a, b in spans)
            for n in range(row + 1 + len(phases), row + 1 + _MOST_PHASES):
                self._times[n] = 0.0
            self._steps += 1
        self._stamps.clear()

    def _compare(self) -> None:
        """Send this rank's medians to all, and print the result over all ranks."""
        names = sorted(self._names)
        gather = self._gather or _distributed()
        rows = gather(self._medians(names)) if gather is not None else None
        if rows is None or len(rows) < 2:
            return
        rank = self._rank if self._rank is not None else _rank()
        first = self._at - self._every
        if len({len(row) for row in rows}) > 1:
            if rank == 0:
                self._say(f"steps {first} to {self._at - 1}: ranks have other phases, so they cannot be compared")
            return
        self.last = judge(rows, names, tuple(self._waits), self._every)
        if rank != 0:
            return
        self._say(f"steps {first} to {self._at - 1}: {describe(self.last, len(rows))}")
        if self.last.slow and self._capture > 0:
            self._capture -= 1
            self._record()

    def _medians(self, names: Sequence[str]) -> list[float]:
        """The own time of a step and its error, and the time of each phase, all in s."""
        width = _MOST_PHASES + 1
        columns = {name: self._times[n::width] for n, name in enumerate(self._names, 1)}
        own = list(self._times[::width])
        for name in self._waits & columns.keys():
            own = [whole - waited for whole, waited in zip(own, columns[name], strict=True)]
        middle = _median(own)
        spread = _NORMAL * _median([abs(value - middle) for value in own])
        return [middle, _MEDIAN_ERROR * spread / len(own) ** 0.5, *(_median(columns[name]) for name in names)]

    def _record(self) -> None:
        """Ask for a window of steps, as `alltrace capture now` does."""
        folder = os.environ.get(ARMED)
        if not folder:
            return
        path = os.path.join(folder, REQUEST)  # noqa: PTH118  pathlib would be a further import
        told = read_control(path)
        number = (0 if told is None else told["id"]) + 1
        try:
            write_control(path, {"id": number, "steps": _TO_RECORD, "ranks": None, "lead_s": 3.0})
        except OSError as error:
            self._say(f"{path}: {error.strerror}; no window is recorded")


class _Phase:
    """Stamps the begin and the end of a part of a step, each time that it comes in it."""

    __slots__ = ("_began", "_spans", "now")

    def __init__(self, now: Callable[[], Any]) -> None:
        self.now = now
        self._spans: list[tuple[Any, Any]] = []
        self._began: Any = None

    def __enter__(self) -> None:
        self._began = self.now()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._spans.append((self._began, self.now()))

    def taken(self) -> list[tuple[Any, Any]]:
        """The stamps of the step that ends."""
        spans, self._spans = self._spans, []
        return spans


def _clock() -> tuple[Callable[[], Any], Callable[[Any, Any], float]]:
    """How to stamp a moment, and how to compute the seconds between two stamps: the host's clock, or events on the GPU."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return perf_counter, _host_seconds

    def stamp() -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    return stamp, lambda a, b: a.elapsed_time(b) / 1000


def _host_seconds(begin: float, end: float) -> float:
    return end - begin


def describe(verdict: Verdict, ranks: int) -> str:
    """The verdict in a sentence."""
    if verdict.slow:
        told = []
        for one in verdict.slow[:_NAMED]:
            share = (one.own_s - one.others_s) / one.others_s
            where = f", most in {one.phase} ({_ms(one.phase_s)} ms)" if one.phase else ""
            told.append(f"rank {one.rank} takes {_ms(one.own_s)} ms a step by itself, {share:.1%} more than the median{where}")
        more = len(verdict.slow) - _NAMED
        return "; ".join(told) + (f"; and {more} more" if more > 0 else "")
    unseen = f"less than {verdict.least_share:.1%} more would not be seen"
    if not verdict.own:
        return (
            f"no rank of {ranks} stands out, but whole steps do not show which rank waits for which; put "
            f"report.phase('wait') around what "
            "waits for other ranks"
        )
    return f"no rank of {ranks} is slow: the slowest takes {verdict.spread:.1%} more than the median by itself, and {unseen}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def _median(values: Sequence[float] | array[float]) -> float:
    """The upper median; `statistics` would be a further import of every program."""
    return sorted(values)[len(values) // 2]


def _distributed() -> Gather | None:
    """Gathers over the process group that PyTorch has; None without one."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    group = torch.distributed
    device = "cpu" if "gloo" in str(group.get_backend()) or not torch.cuda.is_available() else "cuda"

    def gather(mine: Sequence[float]) -> list[list[float]]:
        sent = torch.zeros(_MOST_PHASES + 3, dtype=torch.float64, device=device)
        sent[0] = len(mine)
        sent[1 : len(mine) + 1] = torch.tensor(list(mine), dtype=torch.float64)
        found = [torch.zeros_like(sent) for _ in range(group.get_world_size())]
        group.all_gather(found, sent)
        return [row[1 : int(row[0]) + 1] for row in (one.cpu().tolist() for one in found)]

    return gather


def _rank() -> int:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    from alltrace.capture.identity import find_identity

    return find_identity(os.environ, os.uname().nodename).rank


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"alltrace: {text}\n")
