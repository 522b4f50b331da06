"""Answers made by hand, for drawing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from alltrace.recipes.base import Answer, Chart
from alltrace.trace.columns import Column

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "$\\frac{a}{$ & <b>bold</b>",
    "a\nb\x1b[31m",
    "%{x}",
    "訓練 🚀",
)


def answer(chart: Chart, columns: dict[str, tuple[str | None, list[Any]]], **extra: Any) -> Answer:
    """An answer of columns given as (unit, cells)."""
    table = pa.table({name: pa.array(cells) for name, (_, cells) in columns.items()})
    return Answer(table, tuple(Column(n, "any", unit, n) for n, (unit, _) in columns.items()), extra=extra, chart=chart)


def of_ranks(ranks: int, **options: Any) -> Answer:
    """Compute and idle time of so many ranks."""
    chart = Chart("stacked_bars", "rank", ("compute_ns", "idle_ns"), **options)
    return answer(
        chart,
        {
            "rank": (None, list(range(ranks))),
            "compute_ns": ("ns", [(r + 1) * 1_000_000 for r in range(ranks)]),
            "idle_ns": ("ns", [2_000_000] * ranks),
        },
    )


def hostile(kind: str = "bars") -> Answer:
    """Things whose names attack whoever shows them."""
    chart = (
        Chart(kind, "name", ("total_ns",))
        if kind == "bars"
        else Chart(kind, "start_ns", ("total_ns",), "name", detail="name")
    )
    return answer(
        chart,
        {"name": (None, list(HOSTILE)), "start_ns": ("ns", list(range(6))), "total_ns": ("ns", [6, 5, 4, 3, 2, 1])},
    )


def every_kind() -> dict[str, Answer]:
    """An answer for each kind of picture."""
    numbers = {
        "step": (None, [0, 1, 2, 0, 1, 2]),
        "rank": (None, [0, 0, 0, 1, 1, 1]),
        "time_ns": ("ns", [10, 20, 30, 11, 21, None]),
    }
    quartiles = {
        n: ("ns", [v * 1000, v * 2000])
        for n, v in (("min_ns", 1), ("q1_ns", 2), ("median_ns", 3), ("q3_ns", 4), ("max_ns", 9))
    }
    return {
        "stacked_bars": of_ranks(3),
        "bars": hostile(),
        "box": answer(Chart("box", "name", tuple(quartiles), log_y=True), {"name": (None, ["a", "b"]), **quartiles}),
        "lines": answer(Chart("lines", "step", ("time_ns",), "rank"), numbers),
        "scatter": answer(Chart("scatter", "step", ("time_ns",), "rank"), numbers),
        "heatmap": answer(Chart("heatmap", "step", ("time_ns",), "rank"), numbers),
        "histogram": answer(
            Chart("histogram", "from_bytes", ("calls",), "op"),
            {
                "from_bytes": ("bytes", [0, 1000, 1000, 1000000]),
                "calls": (None, [1, 2, 3, 4]),
                "op": (None, ["a", "a", "b", "b"]),
            },
        ),
        "roofline": answer(
            Chart("roofline", "intensity", ("rate",), "name"),
            {
                "intensity": ("flop/byte", [0.5, 8.0]),
                "rate": ("TFLOP/s", [1.0, 30.0]),
                "name": (None, ["gemv", "gemm"]),
            },
            ceilings=[
                {"name": "FP16", "kind": "compute", "value": 60.0},
                {"name": "DRAM", "kind": "memory", "value": 3.0},
            ],
        ),
    }
