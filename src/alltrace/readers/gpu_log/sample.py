"""What a line of any GPU log is read as, and the numbers and times in it."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

VALUES = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "event_reasons")
REASONS = "event_reasons"

_NUMBER = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?(?:[eE][+-]?[0-9]{1,2})?)(?: (?:MHz|W|C))?", re.ASCII)
_BITS = re.compile(r"0[xX]([0-9a-fA-F]{1,16})|([0-9]{1,18})", re.ASCII)
_NOTHING = re.compile(r"\[.*\]|N/A|ERR!|Unknown Error", re.IGNORECASE)
_MOST = 1e6  # no clock in MHz, power in W or temperature in C is as large; DCGM's blanks are larger

_STAMP = re.compile(
    r"(?P<minute>[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}["
    r" T][0-9]{2}:[0-9]{2}):(?P<second>[0-9]{2})(?:[.,](?P<part>[0-9]{1,9}))?"
    r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?",
    re.ASCII,
)
_EPOCH = re.compile(r"(?P<second>[0-9]{9,11})(?:\.(?P<part>[0-9]{1,9}))?", re.ASCII)
_SECOND_NS = 1_000_000_000
_LAST_NS = 7_258_118_400 * _SECOND_NS  # the year 2200

_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f][0-9a-f/-]{3,79}", re.IGNORECASE | re.ASCII)
_BUS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<place>[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", re.IGNORECASE | re.ASCII
)


class Gpu(NamedTuple):
    """How a log names a GPU: UUID, bus id, number by `nvidia-smi` and DCGM, and host; None for what it lacks."""

    uuid: str | None = None
    bus_id: str | None = None
    number: int | None = None
    host: str | None = None


@lru_cache(1024)  # the same words come line after line
def gpu_of(text: str, gpu: Gpu) -> Gpu:
    """`gpu` with what a text says of it: a UUID, a bus id or an index. Raises `ValueError`: it is none of these."""
    if _UUID.fullmatch(text):
        return gpu._replace(uuid=text)
    bus = _BUS.fullmatch(text)
    if bus:
        return gpu._replace(bus_id=f"{int(bus['domain'] or '0', 16):04x}:{bus['place'].lower()}")
    if text.isascii() and text.isdigit() and len(text) < 5:
        return gpu._replace(number=int(text))
    raise ValueError(f"{text[:60]!r} is not a GPU")


class Sample(NamedTuple):
    """One sample of one GPU."""

    gpu: Gpu  # the GPU
    time_ns: int  # when it was taken, ns since 1970; if the log does not show the zone, as if its local time were UTC
    local: bool  # whether that is so
    values: dict[str, float]  # by name of `VALUES`; a name that is not there has none


@lru_cache(4096)
def value_of(name: str, text: str) -> float | None:
    """A value such as `1980 MHz` or `0x04`; None if there is none. Raises `ValueError`: it is something else."""
    if _NOTHING.fullmatch(text) or not text:
        return None
    match = (_BITS if name == REASONS else _NUMBER).fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no {name}")
    if name == REASONS:
        bits = int(match[1], 16) if match[1] else int(match[2])
        return bits if bits < 1 << 32 else None
    number = float(match[1])
    return number if abs(number) < _MOST else None


@lru_cache(64)
def stamp_of(text: str) -> tuple[int, bool]:
    """A time as ns since 1970, and whether it is local, then as if UTC. Raises `ValueError`: it is not a time."""
    match = _STAMP.fullmatch(text) or _EPOCH.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a time")
    parts = match.groupdict()
    within_ns = int(parts["second"]) * _SECOND_NS + int((parts["part"] or "").ljust(9, "0"))
    if "minute" not in parts:
        return since_1970(within_ns), False
    minute_ns = _minute_ns(parts["minute"].replace("/", "-").replace("T", " "), parts["zone"])
    return since_1970(minute_ns + within_ns), not parts["zone"]


def since_1970(time_ns: int) -> int:
    """A time in ns since 1970 that a log can be of. Raises `ValueError`: it is before 1970 or after 2200."""
    if not 0 <= time_ns < _LAST_NS:
        raise ValueError("its time is implausible")
    return time_ns


@lru_cache(64)
def _minute_ns(minute: str, zone: str | None) -> int:
    at = datetime.strptime(minute, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    if zone and zone != "Z":
        away = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
        at += away if zone[0] == "-" else -away
    return int(at.timestamp()) * _SECOND_NS
