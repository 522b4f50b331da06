"""What reports of host runtimes share: how long calls took."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from alltrace.recipes.analysis.distribution import VALUE


def timed(calls: Any) -> Any:
    """The rows of a table with a start and an end, with the duration in ns as the column `value`."""
    calls = calls.append_column(VALUE, pc.subtract(calls.column("end"), calls.column("start")))
    return pc.filter(calls, pc.is_valid(calls.column(VALUE))) if calls.column(VALUE).null_count else calls
