"""The host and the environment variables of an export."""

from __future__ import annotations

import re

from alltrace.readers.base import ENVIRONMENT_ALLOWED
from alltrace.readers.nsys.small import small_rows
from alltrace.readers.nsys.source import RawSource

_LONGEST_VALUE = 200
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def host_name(source: RawSource) -> str | None:
    """The name of the host, or None."""
    for name, value in small_rows(source, "TARGET_INFO_SYSTEM_ENV", "name", "value"):
        if name == "Hostname" and value and str(value).isprintable():
            return str(value)[:_LONGEST_VALUE]
    return None


def environment(source: RawSource) -> tuple[dict[str, str], int]:
    """The allow-listed variables, and how many others there are."""
    allowed: dict[str, str] = {}
    removed: set[str] = set()
    for name, value in small_rows(source, "META_DATA_CAPTURE", "name", "value"):
        if name is not None and str(name).endswith(":ENVIRONMENT_VARIABLE") and value is not None:
            _take(str(value), allowed, removed, quoted=True)
    for name, value in small_rows(source, "TARGET_INFO_SYSTEM_ENV", "name", "value"):
        if name == "DeviceEnvironment" and value:
            for part in str(value).split(";"):
                _take(part, allowed, removed, quoted=False)
    return allowed, len(removed - set(allowed))


def _take(assignment: str, allowed: dict[str, str], removed: set[str], *, quoted: bool) -> None:
    match = _ASSIGNMENT.fullmatch(assignment)
    if match is None:
        return
    name, value = match.groups()
    if quoted and len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if name not in ENVIRONMENT_ALLOWED or len(value) > _LONGEST_VALUE or not value.isprintable():
        removed.add(name)
    else:
        allowed.setdefault(name, value)
