"""The report `network_congestion`: when network devices had to hold back what they had to send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from alltrace.nvidia.stats.base import BY_RANK, Cell, TraceReport
from alltrace.recipes.analysis.lookups import column
from alltrace.recipes.base import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alltrace.recipes.base import RankTables

_METRIC = "IB: Send waits"


class NetworkCongestion(TraceReport):
    """The samples of adapters and switches in which sending waited for more than a threshold of ticks per ms."""

    name = "network_congestion"
    title = "Network Devices Congestion"
    options: ClassVar[tuple[Option, ...]] = (
        Option("ticks_threshold", int, default=10000, help="Ticks per ms above which a sample counts as congestion."),
        BY_RANK,
    )
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "nic_metrics": ("start", "end", "guid", "metric", "value", "model"),
        "switch_metrics": ("start", "end", "guid", "metric", "value"),
    }
    cells: ClassVar[tuple[Cell, ...]] = (
        Cell("Start", "time", "Start of the sample."),
        Cell("End", "time", "End of the sample."),
        Cell("Duration", "time", "Length of the sample."),
        Cell("Send wait rate", "ticks", "Ticks per ms in which data waited for credits or arbitration."),
        Cell("GUID", "text", "GUID of the device."),
        Cell("Device name", "text", "Model of the adapter; switches have none."),
    )
    height = "Send wait rate"
    called = "GUID"

    def rows(self, rank: RankTables, options: Mapping[str, Any]) -> Any:
        """The rank's samples above the threshold."""
        made = []
        for name, columns in self.tables.items():
            samples = rank.table(name, columns)
            waits = pc.equal(rank.texts(column(samples, "metric")), _METRIC)
            high = pc.greater(column(samples, "value"), float(options["ticks_threshold"]))
            samples = samples.filter(pc.fill_null(pc.and_(waits, high), False))
            guids = [None if g is None else f"{g & (1 << 64) - 1:x}" for g in samples.column("guid").to_pylist()]
            nothing = pa.nulls(samples.num_rows, pa.string())
            made.append(
                pa.table(
                    {
                        "Start": samples.column("start"),
                        "End": samples.column("end"),
                        "Duration": pc.subtract(samples.column("end"), samples.column("start")),
                        "Send wait rate": samples.column("value").cast(pa.int64(), safe=False),
                        "GUID": pa.array(guids, pa.string()),
                        "Device name": rank.texts(column(samples, "model")) if name == "nic_metrics" else nothing,
                    }
                )
            )
        return pa.concat_tables(made)


RECIPE = NetworkCongestion()
