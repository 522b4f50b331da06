"""Answers as values that JSON and JavaScript have: no number loses a digit on its way."""

from __future__ import annotations

import math
from typing import Any

from alltrace.recipes.base import Answer

EXACT = 1 << 53
"""Larger whole numbers are not exact in JavaScript; they go as text."""

MOST_ROWS = 20_000


def plain(value: Any) -> Any:
    """`value` with large whole numbers as text, and null for numbers that are not finite."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -EXACT <= value <= EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value[:1024].hex()
    return str(value)


def plain_answer(answer: Answer) -> dict[str, Any]:
    """An answer: `columns` (`name`, `unit`, `doc`), `rows` (lists), `total_rows`, `notes`, `extra`, `verdict`."""
    table = answer.table.slice(0, MOST_ROWS)
    columns = [c.to_pylist() for c in table.columns]
    return {
        "columns": [{"name": c.name, "unit": c.unit, "doc": c.doc} for c in answer.columns],
        "rows": [[plain(v) for v in row] for row in zip(*columns, strict=True)],
        "total_rows": answer.table.num_rows,
        "notes": list(answer.notes),
        "extra": {k: [plain(dict(r)) for r in v] for k, v in answer.extra.items()},
        **({} if answer.verdict is None else {"verdict": answer.verdict}),
    }
