"""Reads one training log: its steps in order, one for each step, independent of the ranks that printed it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from alltrace.readers.text import TextLog
from alltrace.readers.training_log.formats import Step, own_pattern, parse, parse_list, stamp_ns

_HINTS = (b"iteration", b"step", b"%|", b"{'", b"samples/sec", b"iter ", b"batch=", b"Train ")
_MOST_STEPS = 20_000_000
_MOST_SAMPLES = 50
_FEW_LOSSES = 10  # a bar with this many times fewer losses after it than another is not the training's


@dataclass
class TrainingLog:
    """A training log."""

    path: str  # the file
    # (step, values by metric, line, copies) in the order of steps; values are means over the ranks that printed the
    # step
    steps: list[tuple[int, dict[str, float], int, int]] = field(default_factory=list)
    frameworks: Counter[str] = field(default_factory=Counter)  # lines by framework
    restarts: int = 0  # how often the steps went back, as after a restart; the later values count
    smoothed: bool = False  # whether step times are a progress bar's moving averages
    lines: int = 0  # lines of the file
    # when the line of a step was written, ns since 1970 as if its local time were UTC, for steps with a time in their
    # line
    stamps: dict[int, int] = field(default_factory=dict)
    # the same with the step, in the order of the lines of the rank that prints first, each step once in a row
    written: list[tuple[int, int]] = field(default_factory=list)
    # the time zones after these times, such as `Z` and `+02:00`; an empty text for none
    zones: set[str] = field(default_factory=set)
    # by metric, the steps in which it is printed as nan or inf; their other values count
    not_finite: dict[str, set[int]] = field(default_factory=dict)
    not_understood: int = 0  # lines that look like a step's, but have no known form
    samples: list[tuple[int, str]] = field(default_factory=list)
    damage: str | None = None


def read_training(
    path: str, advance: Callable[[int], None] = lambda _n: None, *, patterns: Sequence[str] = ()
) -> TrainingLog:
    """Read a training log, by a user's `patterns` alone if there are any (`own_pattern`).

    Raises `InputError`: the file cannot be read. Raises `UsageError`: a pattern cannot be used.
    """
    reading = _Reading(path, [own_pattern(p) for p in patterns])
    with TextLog(Path(path)) as log:
        for block, whole in log.blocks():
            lines = block.splitlines()
            for number, line in enumerate(lines):
                # a line without an end may lack the last digits of a number
                reading.line(line, cut=not whole and number == len(lines) - 1)
            advance(len(block))
        reading.log.damage = log.damage
    return reading.close()


class _Reading:
    def __init__(self, path: str, own: Sequence[Callable[[str], Step | None]] = ()) -> None:
        self.log = TrainingLog(path)
        self._own = own
        self._in_batch = False  # the lines of values after Composer's line of a batch
        self._by_step: dict[int, dict[int | None, tuple[Step, int]]] = {}
        self._last: dict[int | None, int] = {}
        self._bar: int | None = None
        self._printer: int | None = None
        self._listed: list[list[float]] = []
        self._held: list[tuple[Step, int]] = []  # Hugging Face's lines, until it is known which bar is the training's

    def line(self, raw: bytes, *, cut: bool) -> None:
        number = self.log.lines
        self.log.lines += 1
        if not self._own and not any(hint in raw for hint in _HINTS):
            return
        text = raw.decode("utf-8", "replace")
        listed = None if self._own else parse_list(text)
        if listed:
            self._listed.append(listed)
            return
        step = parse(text, self._own)
        if step is None:
            if b"iteration" in raw and b"|" in raw and b"/" in raw:
                self.log.not_understood += 1
                if len(self.log.samples) < _MOST_SAMPLES:
                    self.log.samples.append((number, text[:300]))
            return
        if cut and step.values:
            step.values.pop(next(reversed(step.values)))
        if step.framework == "Composer":
            self._in_batch |= step.step is not None
            if not self._in_batch:
                return
        if step.framework == "Hugging Face":
            self._held.append((step, number))
        else:
            self._add(step, number)

    def _add(self, step: Step, number: int) -> None:
        self._take(step, number)
        written = stamp_ns(step)
        if written is not None and step.step is not None:
            self.log.stamps[step.step] = written
            self._printer = step.rank if not self.log.written else self._printer
            if step.rank == self._printer and (not self.log.written or self.log.written[-1][1] != step.step):
                self.log.written.append((written, step.step))
                self.log.zones.add(step.zone)

    def _release(self) -> None:
        """Take Hugging Face's lines; bars of evaluation, loading and so on count other things than steps."""
        losses: Counter[int | None] = Counter()
        bars: Counter[int | None] = Counter()
        total: int | None = None
        for step, _ in self._held:
            if step.step is None:
                losses[total] += 1
            else:
                total = step.total
                bars[total] += 1
        # a loss is printed after the training's bar, and sometimes before it is redrawn; training continues with
        # another total after a restart
        most = max(losses.values(), default=0)
        wanted = {total for total, count in losses.items() if _FEW_LOSSES * count >= most}
        if not losses and not self._by_step:  # if another framework describes steps, these are not the training's
            wanted = {total for total, _ in bars.most_common(1)}
        for step, number in self._held:
            if step.step is None or step.total in wanted:
                self._add(step, number)

    def _take(self, step: Step, number: int) -> None:
        log = self.log
        log.frameworks[step.framework] += 1
        log.smoothed |= step.smoothed
        if step.step is None:  # a line of values, of the step that the progress bar shows
            step.step = self._bar if self._bar is not None else (max(self._by_step, default=-1) + 1)
        elif step.smoothed or step.framework in ("Hugging Face", "Lightning", "Composer"):
            self._bar = step.step
        last = self._last.get(step.rank)
        if last is not None and step.step < last and step.framework != "Lightning":
            log.restarts += 1
            for later in [s for s in self._by_step if s >= step.step]:
                self._by_step[later].pop(step.rank, None)
        self._last[step.rank] = step.step
        if len(self._by_step) >= _MOST_STEPS and step.step not in self._by_step:
            return
        for metric in step.not_finite:
            log.not_finite.setdefault(metric, set()).add(step.step)
        copies = self._by_step.setdefault(step.step, {})
        old = copies.get(step.rank)
        if old is not None:
            old[0].values.update({k: v for k, v in step.values.items() if k not in old[0].values or step.smoothed})
        else:
            copies[step.rank] = step, number

    def close(self) -> TrainingLog:
        self._release()
        if self._listed and not any(
            "step_time_s" in s.values for its in self._by_step.values() for s, _n in its.values()
        ):
            longest = self._listed[0]
            for times in self._listed:
                longest = times if len(times) > len(longest) else longest
            for n, seconds in enumerate(longest):
                self._by_step.setdefault(n, {})[None] = Step("NeMo", n, {"step_time_s": seconds}), 0
            self.log.frameworks["NeMo"] += 1
        for step, copies in sorted(self._by_step.items()):
            values: dict[str, list[float]] = {}
            for its, _line in copies.values():
                for metric, value in its.values.items():
                    values.setdefault(metric, []).append(value)
            if copies:
                means = {metric: sum(v) / len(v) for metric, v in values.items()}
                self.log.steps.append((step, means, min(line for _s, line in copies.values()), len(copies)))
        return self.log
