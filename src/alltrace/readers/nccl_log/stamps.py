"""Times in a format that the user names, as `strptime` knows it."""

import re
from datetime import UTC, datetime

from alltrace.core.nccl_log import ABSENT
from alltrace.trace.errors import UsageError

_DIRECTIVES = {
    "Y": r"[0-9]{4}", "y": r"[0-9]{2}", "m": r"[0-9]{1,2}", "d": r"(?:[0-9]{1,2}| [1-9])", "H": r"[0-9]{1,2}",
    "I": r"[0-9]{1,2}", "M": r"[0-9]{1,2}", "S": r"[0-9]{1,2}", "f": r"[0-9]{1,6}", "j": r"[0-9]{1,3}",
    "b": r"[A-Za-z]{3}", "B": r"[A-Za-z]{3,9}", "a": r"[A-Za-z]{3}", "A": r"[A-Za-z]{6,9}", "p": r"[AaPp][Mm]",
    "z": r"(?:Z|[+-][0-9]{2}:?[0-9]{2})", "%": r"%",
}  # fmt: skip
_SHORT = {"e": "%d", "F": "%Y-%m-%d", "T": "%H:%M:%S", "D": "%m/%d/%y", "R": "%H:%M"}


class Stamp:
    """A format of times, `zoned` if with a zone. Raises `UsageError`: its directives cannot be, or there is none."""

    def __init__(self, text: str) -> None:
        self._format = re.sub(r"%(.)", lambda m: _SHORT.get(m[1], m[0]), text)
        pattern, at = "", 0
        for part in re.finditer(r"%(.?)", self._format):
            if part[1] not in _DIRECTIVES:
                raise UsageError(
                    f"--time-format has the unknown directive %{part[1]}; expected directives of strptime "
                    f"such as %Y-%m-%d %H:%M:%S.%f"
                )
            pattern += re.escape(self._format[at : part.start()]) + _DIRECTIVES[part[1]]
            at = part.end()
        if at == 0:
            raise UsageError(f"--time-format is {text!r}; expected a format such as %Y-%m-%d %H:%M:%S.%f")
        self.zoned = "%z" in self._format
        self._pattern = re.compile(pattern + re.escape(self._format[at:]))
        try:
            datetime.strptime("", self._format)
        except re.error as error:
            raise UsageError(
                f"--time-format is {text!r}, which repeats a directive; use each directive once"
            ) from error
        except ValueError:  # for a text without a time, as intended
            pass

    def time_ns(self, lead: bytes) -> int:
        """The first time in `lead` in ns since the epoch, by its zone or as if in UTC; `ABSENT` if there is none."""
        match = self._pattern.search(lead.decode("utf-8", "replace"))
        if match is None:
            return ABSENT
        try:
            time = datetime.strptime(match[0], self._format)
        except ValueError:
            return ABSENT
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        delta = time - datetime(1970, 1, 1, tzinfo=UTC)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000
