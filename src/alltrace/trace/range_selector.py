"""Which NVTX ranges an option names, in the syntax of Nsight Systems: `RANGE[@DOMAIN][/INDEX]`."""

import re
from dataclasses import dataclass

from alltrace.trace.errors import UsageError


@dataclass(frozen=True)
class RangeName:
    name: str  # their text
    domain: str | None  # their domain; None for the default one, `*` for any
    index: int | None  # which of them, in the order of their starts; None for all

    def names(self, text: str | None, domain: str | None) -> bool:
        """Whether this selects a range with that text in that domain; the default domain is None."""
        return text == self.name and (self.domain in ("*", domain) or (domain is None and self.domain == "Default"))


def parse_range(flag: str, text: str) -> RangeName:
    """`RANGE[@DOMAIN][/INDEX]`, where a backslash takes the next character as it is."""
    parts, marks = [""], [""]
    escaped = False
    for letter in text:
        if escaped:
            # a backslash before any other letter is itself
            parts[-1] += letter if letter in "@/\\" else f"\\{letter}"
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter in "@/":
            parts.append("")
            marks.append(letter)
        else:
            parts[-1] += letter
    if escaped:
        parts[-1] += "\\"
    index = parts.pop() if marks[-1] == "/" and len(parts) > 1 else None
    domain = parts.pop() if len(parts) == 2 and marks[1] == "@" else None
    if len(parts) != 1 or not parts[0] or domain == "" or (index is not None and not re.fullmatch(r"\d{1,9}", index)):
        raise UsageError(
            f"{flag} is {text!r}; expected RANGE[@DOMAIN][/INDEX], with a backslash before an @ or a / that belongs to"
            " a name"
        )
    return RangeName(parts[0], domain, None if index is None else int(index))
