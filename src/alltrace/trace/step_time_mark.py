"""The range by which a program says within a capture how long its steps took before: what its name says."""

import re
from typing import NamedTuple

PREFIX = "alltrace: "
_MARK = re.compile(
    r"alltrace: ([0-9]{1,9}) steps before the window took ([0-9]{1,18}) ns each, within ([0-9]{1,18}) ns"
)


class StepTimeMark(NamedTuple):
    steps: int  # how many
    each_ns: int
    error_ns: int  # the standard error of that

    @property
    def text(self) -> str:
        return f"{PREFIX}{self.steps} steps before the window took {self.each_ns} ns each, within {self.error_ns} ns"


def parse_mark(text: str | None) -> StepTimeMark | None:
    """What the name of a range says, or None if it is another one."""
    match = _MARK.fullmatch(text) if text else None
    return None if match is None or not int(match[2]) else StepTimeMark(int(match[1]), int(match[2]), int(match[3]))
