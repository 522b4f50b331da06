"""Output of DCGM: `dcgmi dmon -e ...`, and the metrics that its exporter serves."""

from __future__ import annotations

import re

from alltrace.readers.gpu_log.sample import Gpu, Sample, gpu_of, since_1970, stamp_of, value_of

_SHORT = {
    "SMCLK": "sm_clock_mhz",
    "MMCLK": "memory_clock_mhz",
    "POWER": "power_w",
    "TMPTR": "temperature_c",
    "GPUTMP": "temperature_c",
    "DVCCTR": "event_reasons",
    "CLEVT": "event_reasons",
}
"""The short names of fields 100, 101, 155, 150 and 112 in the header of `dcgmi dmon` (dcgmlib/src/dcgm_fields.cpp)."""

_FIELDS = {
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock_mhz",
    "DCGM_FI_DEV_MEM_CLOCK": "memory_clock_mhz",
    "DCGM_FI_DEV_POWER_USAGE": "power_w",
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": "power_w",
    "DCGM_FI_DEV_GPU_TEMP": "temperature_c",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "event_reasons",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "event_reasons",
}
DMON_ADVICE = "dcgmi does not print times; record with `dcgmi dmon -d 100 -e 100,101,155,150,112 | ts %.s`"
EXPORTER_ADVICE = "the exporter does not send times; append them, in ms, to each line, as Prometheus writes them"

_HEADER = re.compile(r"(?:\S+ +){0,2}?# ?Entity +(?P<columns>.*)")
_ROW = re.compile(r"(?:(?P<time>\S+(?: \S+)?) +)?GPU +(?P<index>[0-9]{1,4}) +(?P<cells>.*)")
_METRIC = re.compile(r"(?P<field>DCGM_FI_\w+)\{(?P<labels>.*)\} +(?P<value>\S+)(?: +(?P<ms>[0-9]{12,14}))?", re.ASCII)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class DmonLines:
    """Samples of the lines of `dcgmi dmon`."""

    format = "dcgmi dmon"

    def __init__(self) -> None:
        self._columns: list[str] = []

    @staticmethod
    def begins(line: str) -> bool:
        """Whether a log begins so: with the header."""
        return _HEADER.fullmatch(line) is not None

    def missing(self) -> str | None:
        """What the columns lack to be of any use, in words; None if they suffice."""
        return None if any(c in _SHORT for c in self._columns) else "no clock, power, temperature or event reasons"

    def sample(self, line: str) -> Sample | None:
        """The sample of a line; None for a header, which repeats. Raises `ValueError`: no time, or no sample."""
        header = _HEADER.fullmatch(line)
        if header:
            self._columns = header["columns"].split()
            return None
        if line.split()[-1] == "ID":
            return None
        row = _ROW.fullmatch(line)
        if row is None:
            raise ValueError("it is not a sample of a GPU")
        if row["time"] is None:
            raise ValueError(DMON_ADVICE)
        time, local = stamp_of(row["time"])
        cells = row["cells"].split()
        if len(cells) != len(self._columns):
            raise ValueError(f"it has {len(cells)} columns, not {len(self._columns)}")
        values: dict[str, float] = {}
        for column, cell in zip(self._columns, cells, strict=True):
            name = _SHORT.get(column)
            value = value_of(name, cell) if name else None
            if name and value is not None:
                values[name] = value
        return Sample(Gpu(number=int(row["index"])), time, local, values)


class ExporterLines:
    """Samples of the lines of DCGM's exporter, each with one value."""

    format = "DCGM exporter"

    @staticmethod
    def begins(line: str) -> bool:
        """Whether a log begins so: with a metric of DCGM, or a comment on one."""
        return line.startswith(("# HELP DCGM_FI_", "# TYPE DCGM_FI_", "DCGM_FI_"))

    def missing(self) -> str | None:
        """Nothing: metrics that are of no use are passed over."""
        return None

    def sample(self, line: str) -> Sample | None:
        """The sample of a line; None for a comment or another metric. Raises `ValueError`: no time, or no metric."""
        if line.startswith("#"):
            return None
        match = _METRIC.fullmatch(line)
        if match is None:
            raise ValueError("it is not a metric of DCGM")
        name = _FIELDS.get(match["field"])
        if name is None:
            return None
        if match["ms"] is None:
            raise ValueError(EXPORTER_ADVICE)
        labels = dict(_LABEL.findall(match["labels"]))
        text = match["value"]
        if name == "event_reasons" and text.endswith(".0"):
            text = text[:-2]
        value = value_of(name, text)
        gpu = Gpu(host=labels.get("Hostname"))
        for label in ("UUID", "pci_bus_id", "gpu"):
            if labels.get(label):
                gpu = gpu_of(labels[label], gpu)
        return Sample(gpu, since_1970(int(match["ms"]) * 1_000_000), False, {} if value is None else {name: value})
