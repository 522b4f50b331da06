"""A table with what is hard to write: names with quotes, ends of lines and markup, numbers without a value,
decimals."""

import pyarrow as pa

NAMES = [
    "plain",
    'a "quoted", name',
    "two\nlines\r",
    "\x1b[31m\u202e",
    "naïve 核",
    "<img src=x onerror=alert(1)>",
    "a|b*c",
    None,
]
_TABLE = pa.table(
    {
        "rank": pa.array(range(8), pa.int32()),
        "name": pa.array(NAMES),
        "time_ns": pa.array([0, 1234567, None, -5, 2**62, 7, 8, 9]),
        "share": pa.array([0.5, float("nan"), None, float("inf"), 1e-9, 100.0, 2.0, 12345.678]),
        "rate": pa.array([0.25, 2.0, None, 99.96, 1e300, -0.04, 3.0, 4.0]),
    }
)
TABLE = _TABLE.cast(pa.schema([f.with_metadata({"decimals": "1"}) if f.name == "rate" else f for f in _TABLE.schema]))
