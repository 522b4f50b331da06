"""Faults as a person writes them: `KIND[:FIELD=VALUE]...`, such as `slow-rank:ranks=3,4:factor=1.5`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from alltrace.synth.faults import FAULTS, Fault
from alltrace.trace.errors import UsageError


def parse_fault(text: str) -> Fault:
    # Lists are separated by commas (`ranks=3,4`), a range of steps has a hyphen and both ends included (`steps=2-5`).
    kind, *parts = text.split(":")
    if kind not in FAULTS:
        raise UsageError.unknown("fault", kind, FAULTS)
    fault_class = FAULTS[kind]
    fields = {field.name: str(field.type) for field in dataclasses.fields(fault_class)}
    values: dict[str, Any] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"fault {text!r} has the part {part!r}; expected FIELD=VALUE")
        if name not in fields:
            raise UsageError.unknown(f"value of fault {kind!r}", name, fields)
        try:
            values[name] = _READERS[fields[name]](value)
        except ValueError:
            raise UsageError(f"{name} of fault {kind!r} is {value!r}; expected {_EXPECTED[fields[name]]}") from None
    return fault_class(**values)


def describe_faults() -> list[str]:
    """A line for each kind of fault: what it is, then its fields and their defaults as they are written."""
    lines = []
    for kind, fault_class in FAULTS.items():
        fields = [f"{field.name}={_written(field.default)}" for field in dataclasses.fields(fault_class)]
        lines += [f"{kind:<26}{(fault_class.__doc__ or '').splitlines()[0]}", f"{'':<26}{' '.join(fields)}"]
    return lines


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)


def _steps(value: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
    if not match:
        raise ValueError(value)
    return int(match[1]), int(match[2] or match[1])


def _truth(value: str) -> bool:
    if value not in {"true", "false"}:
        raise ValueError(value)
    return value == "true"


_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": _truth,
    "str": str,
    "tuple[int, ...]": lambda value: tuple(map(int, value.split(","))),
    "tuple[str, ...]": lambda value: tuple(value.split(",")),
    "tuple[int, int] | None": _steps,
}
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a word",
    "tuple[int, ...]": "whole numbers with commas between them",
    "tuple[str, ...]": "names with commas between them",
    "tuple[int, int] | None": "a step or two with a hyphen between them, such as 2-5",
}
