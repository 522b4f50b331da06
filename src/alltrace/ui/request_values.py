"""Requests as checked values: what a browser sends is no more trusted than what a trace holds."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from alltrace.trace.errors import UsageError, encodable

MOST_BODY_BYTES = 1 << 20
_MOST_NUMBER = 1 << 62


class RequestValues:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    async def of(cls, request: Request) -> "RequestValues":
        """The values of a request. Raises `UsageError`: its body is too long, or no JSON object."""
        if request.method == "GET":
            return cls({name: value for name, value in request.query_params.items() if encodable(value)})
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BODY_BYTES:
                raise UsageError(f"the request is longer than {MOST_BODY_BYTES} bytes")
        try:
            values = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise UsageError("the request is not valid JSON") from error
        if not isinstance(values, dict):
            raise UsageError("the request is not a JSON object")
        if not _encodable(values):
            raise UsageError("the request has halves of characters or a NUL; expected text")
        return cls(values)

    def number(self, name: str, default: int | None = None, least: int = -_MOST_NUMBER) -> int:
        """A whole number. Raises `UsageError`: it is missing, none, or out of bounds."""
        value = self._values.get(name, default)
        if isinstance(value, float) and value.is_integer() and abs(value) < _MOST_NUMBER:
            value = int(value)
        if isinstance(value, str) and value.removeprefix("-").isdigit() and value.isascii() and len(value) < 20:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST_NUMBER:
            raise UsageError(f"{name} is {_shown(value)}; expected a whole number from {least} to {_MOST_NUMBER}")
        return value

    def text(self, name: str, most: int = 10_000) -> str:
        """A text of `most` characters at most. Raises `UsageError`: it is missing, none, or longer."""
        value = self._values.get(name)
        if not isinstance(value, str) or len(value) > most:
            raise UsageError(f"{name} is {_shown(value)}; expected text of up to {most} characters")
        return value

    def maybe(self, name: str, most: int = 10_000) -> str | None:
        """A text; None if it is missing, null or empty."""
        return None if self._values.get(name) in (None, "") else self.text(name, most=most)

    def flag(self, name: str) -> bool:
        return self._values.get(name) in (True, "true", "1")

    def texts(self, name: str) -> list[str]:
        """A list of 10,000 texts at most. Raises `UsageError`: it is something else."""
        value = self._values.get(name)
        if (
            not isinstance(value, list)
            or len(value) > 10_000
            or not all(isinstance(v, str) and len(v) < 1000 for v in value)
        ):
            raise UsageError(f"{name} is {_shown(value)}; expected a list of texts")
        return value

    def ranks(self) -> list[int] | None:
        """The list `ranks`, distinct; None if it is missing or null. Raises `UsageError`: it is something else."""
        value = self._values.get("ranks")
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
            raise UsageError(f"ranks is {_shown(value)}; expected a list of ranks")
        return sorted(set(value))

    def options(self, name: str) -> dict[str, Any]:
        """An object of plain values. Raises `UsageError`: it is something else."""
        value = self._values.get(name) or {}
        if not isinstance(value, dict) or not all(isinstance(v, str | int | float | bool) for v in value.values()):
            raise UsageError(f"{name} is {_shown(value)}; expected an object of plain values")
        return value


def _encodable(value: object) -> bool:
    if isinstance(value, dict):
        return all(_encodable(name) and _encodable(each) for name, each in value.items())
    if isinstance(value, list):
        return all(map(_encodable, value))
    return not isinstance(value, str) or encodable(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
