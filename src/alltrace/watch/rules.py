"""Alerts: rules of a TOML file, each with what is done when it begins to hold."""

import re
import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from alltrace.trace.errors import InputError
from alltrace.watch.job import State
from alltrace.watch.metrics import check_url, post_json

_WHEN = re.compile(
    r"\s*(?P<what>step_time|stopped|slow_rank|share"
    r" (?P<phase>.+?))\s*>\s*(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|%)\s*"
)
_UNITS = {"step_time": ("ms", "s"), "stopped": ("ms", "s"), "slow_rank": ("%",), "share": ("%",)}
_KEYS = {"name", "when", "command", "webhook", "capture"}
_OVER_S = 60.0
"""A cause that did not hold for this long fires again when it comes back."""
_EXPECTED = (
    "`minimum_s` and [[rule]] tables with when = 'step_time > 120 ms', 'stopped > 10 s', 'slow_rank > 5 %' or 'share"
    " data > 20 %', and name, command, webhook or capture"
)


class Rule(NamedTuple):
    name: str
    what: str  # `step_time`, `stopped`, `slow_rank` or `share`
    phase: str  # of a share
    bound: float  # s, or a share
    command: tuple[str, ...]  # is run with the cause as its last argument
    webhook: str  # gets the cause as JSON
    capture: int  # steps that are recorded of an armed job; 0 for none

    def causes(self, state: State) -> Iterator[tuple[int | None, str]]:
        """What holds now: the rank, if it is of one, and a sentence."""
        if self.what == "step_time" and state.step_s > self.bound:
            yield None, f"a step takes {state.step_s * 1000:.1f} ms"
        elif self.what == "share" and state.shares.get(self.phase, 0.0) > self.bound:
            yield None, f"{self.phase} takes {100 * state.shares[self.phase]:.1f} % of a step"
        elif self.what == "stopped" and state.stopped_s > self.bound:
            names = ", ".join(map(str, state.stopped)) or "unknown"
            yield None, f"no step ended for {state.stopped_s:.1f} s; stopped ranks: {names}"
        elif self.what == "slow_rank":
            for one in state.slow:
                if state.step_s and one.loss_s / state.step_s > self.bound:
                    yield (
                        one.rank,
                        (
                            f"rank {one.rank} takes {100 * one.loss_s / state.step_s:.1f} % of a step more, most in"
                            f" {one.phase}"
                        ),
                    )


def read_rules(path: Path) -> tuple[list[Rule], float]:
    """The rules of a file, and the shortest time between two captures, s."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected=_EXPECTED) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(path, found=f"it is not valid TOML ({error})", expected=_EXPECTED) from error
    tables, minimum_s = content.pop("rule", []), content.pop("minimum_s", 600)
    if content or not isinstance(tables, list) or not isinstance(minimum_s, (int, float)) or minimum_s < 0:
        raise InputError(path, found=f"it has {', '.join(content) or 'a wrong value'}", expected=_EXPECTED)
    return [_rule(path, number, table) for number, table in enumerate(tables, 1)], float(minimum_s)


def _rule(path: Path, number: int, table: Any) -> Rule:
    when = table.get("when") if isinstance(table, dict) else None
    words = _WHEN.fullmatch(when) if isinstance(when, str) else None
    what = words["what"].split(" ")[0] if words is not None else ""
    if words is None or words["unit"] not in _UNITS[what] or table.keys() - _KEYS:
        raise InputError(path, found=f"rule {number} is {table!r}", expected=_EXPECTED)
    name, command, webhook, capture = (table.get(key) for key in ("name", "command", "webhook", "capture"))
    command = [] if command is None else [command] if isinstance(command, str) else command
    texts = isinstance(name or "", str) and isinstance(webhook or "", str) and isinstance(command, list)
    if (
        not texts
        or not all(isinstance(word, str) for word in command)
        or type(capture or 0) is not int
        or (capture or 0) < 0
    ):
        raise InputError(path, found=f"rule {number} has a value of a wrong type", expected=_EXPECTED)
    bound = float(words["value"]) * {"ms": 0.001, "s": 1.0, "%": 0.01}[words["unit"]]
    address = check_url(webhook) if webhook else ""
    return Rule(name or words[0].strip(), what, words["phase"] or "", bound, tuple(command), address, capture or 0)


# `capture`: asks for a number of steps. `say`: gets a line of each cause, and of what failed.
class Alerts:
    """Fires each cause once, as long as it lasts."""

    def __init__(
        self, rules: list[Rule], minimum_s: float, capture: Callable[[int], None], say: Callable[[str], None]
    ) -> None:
        self._rules, self._minimum_s, self._capture, self._say = rules, minimum_s, capture, say
        self._held: dict[tuple[str, int | None], float] = {}  # of each cause: when it held last
        self._captured_at: float | None = None

    def judge(self, state: State) -> None:
        now = monotonic()
        for rule in self._rules:
            for rank, sentence in rule.causes(state):
                key = rule.name, rank
                if now - self._held.get(key, -_OVER_S) >= _OVER_S:
                    self._fire(rule, rank, sentence, state)
                self._held[key] = now

    def _fire(self, rule: Rule, rank: int | None, sentence: str, state: State) -> None:
        cause = f"{rule.name}: {sentence} (job {state.job}, step {state.step})"
        self._say(cause)
        if rule.capture and (self._captured_at is None or monotonic() - self._captured_at >= self._minimum_s):
            self._captured_at = monotonic()
            self._capture(rule.capture)
        if rule.command or rule.webhook:
            body = {"rule": rule.name, "cause": sentence, "rank": rank, "job": state.job, "step": state.step}
            threading.Thread(target=self._act, args=(rule, cause, body), daemon=True).start()

    def _act(self, rule: Rule, cause: str, body: dict[str, Any]) -> None:
        try:
            if rule.command:
                subprocess.run([*rule.command, cause], check=True, stdin=subprocess.DEVNULL, timeout=_OVER_S)
            if rule.webhook:
                post_json(rule.webhook, body)
        except (OSError, subprocess.SubprocessError) as error:
            self._say(f"{rule.name}: {error}")
