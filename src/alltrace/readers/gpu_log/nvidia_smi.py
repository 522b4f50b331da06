"""CSV of `nvidia-smi --query-gpu=...`; column names as `nvidia-smi --help-query-gpu` has them, and as its header spells them."""

from __future__ import annotations

from alltrace.readers.gpu_log.sample import Gpu, Sample, gpu_of, stamp_of, value_of
from alltrace.trace.gpu_log_words import QUERY

_TIME = "timestamp"
_IDENTITIES = ("uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id")
_VALUES = {
    "clocks.sm": "sm_clock_mhz",
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "clocks.current.memory": "memory_clock_mhz",
    "power.draw": "power_w",
    "power.draw.instant": "power_w",
    "power.draw.average": "power_w",
    "temperature.gpu": "temperature_c",
    "clocks_event_reasons.active": "event_reasons",
    "clocks_throttle_reasons.active": "event_reasons",
}


class CsvLines:
    """Samples of the lines of a CSV."""

    format = "nvidia-smi"

    def __init__(self) -> None:
        self._columns = QUERY.split(",")

    @staticmethod
    def begins(line: str) -> bool:
        """Whether a log begins so: with a header, or with a sample that has the columns of `QUERY`."""
        if _TIME in line and _TIME in _header(line):
            return True
        try:
            return CsvLines().sample(line) is not None
        except ValueError:
            return False

    def missing(self) -> str | None:
        """What the columns lack to be of any use, in words; None if they suffice."""
        if not any(c in _IDENTITIES for c in self._columns):
            return "no uuid, index or pci.bus_id"
        return None if any(c in _VALUES for c in self._columns) else "no clock, power, temperature or event reasons"

    def sample(self, line: str) -> Sample | None:
        """The sample of a line; None for a header. Raises `ValueError`: other columns than it has, or no values."""
        if _TIME in line and _TIME in (header := _header(line)):
            self._columns = header
            return None
        cells = [c.strip() for c in line.split(",")]
        if len(cells) != len(self._columns):
            raise ValueError(f"it has {len(cells)} columns, not {len(self._columns)}")
        gpu, time, local = Gpu(), 0, False
        values: dict[str, float] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            if column == _TIME:
                time, local = stamp_of(cell)
            elif column in _IDENTITIES:
                gpu = gpu_of(cell, gpu)
            elif (name := _VALUES.get(column)) is not None and name not in values:
                value = value_of(name, cell)
                if value is not None:
                    values[name] = value
        return Sample(gpu, time, local, values)


def _header(line: str) -> list[str]:
    """The columns that a header names, without their units."""
    return [c.partition("[")[0].strip().lower() for c in line.split(",")]
