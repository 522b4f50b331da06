"""A user's regular expression, run by RE2 (of Arrow): its time is linear in the text, so that none blocks a server.

RE2 knows no lookaround and no references to groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from alltrace.trace.errors import UsageError, encodable

LONGEST = 1000


# `option` is what the user calls it, for errors. Raises `UsageError`: it is not a valid expression of RE2.
class UserPattern:
    """A regular expression."""

    def __init__(self, option: str, text: str) -> None:
        import pyarrow as pa

        self._text, self._named = text, _without_unnamed_groups(text)
        why = (
            f"it is longer than {LONGEST} characters"
            if len(text) > LONGEST
            else ""
            if encodable(text)
            else "it is not text"
        )
        try:
            if not why:
                self.matches([""])
        except pa.ArrowInvalid as error:
            why = str(error).splitlines()[0]
        if why:
            raise UsageError(f"{option} is {text!r}, which is not a valid regular expression: {why}")

    def matches(self, texts: Iterable[str]) -> list[bool]:
        import pyarrow.compute as pc

        matches: list[bool] = pc.match_substring_regex(_array(texts), self._text).to_pylist()
        return matches

    def groups(self, texts: Sequence[str]) -> list[dict[str, str] | None]:
        """The texts of its groups with a name where it first occurs in each text; None if it does not."""
        # Raises `UsageError`: no group has a name, or two have one.
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            texts_of_groups: list[dict[str, str] | None] = pc.extract_regex(_array(texts), self._named).to_pylist()
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise UsageError(
                f"the regular expression {self._text!r} cannot be used ({error}); name its groups apart"
            ) from error
        return texts_of_groups

    @property
    def names(self) -> set[str]:
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            return {field.name for field in pc.extract_regex(_array(()), self._named).type}
        except (pa.ArrowInvalid, pa.ArrowKeyError):  # without groups that have a name, or with two of one name
            return set()


def _without_unnamed_groups(text: str) -> str:
    """The same expression, of which groups without a name capture nothing: Arrow wants a name for each that does."""
    parts, escaped, in_class = [], False, False
    for place, character in enumerate(text):
        opens = character == "(" and not escaped and not in_class and text[place + 1 : place + 2] != "?"
        parts.append("(?:" if opens else character)
        if not escaped and character in "[]":
            in_class = character == "[" or (in_class and text[place - 1 : place] == "[")
        escaped = character == "\\" and not escaped
    return "".join(parts)


def _array(texts: Iterable[str]) -> Any:
    import pyarrow as pa

    return pa.array([t.encode("utf-8", "replace").decode() for t in texts], pa.string())
