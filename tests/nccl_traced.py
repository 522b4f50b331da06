"""Adds to exports what NVIDIA documents of NCCL's own trace (`nsys profile -t nccl`): ranges per operation and
channel."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

_PUSH_POP = 59
_CHANNELS = 2
_ELEMENT_BYTES = 2
_CALLS = """
    SELECT e.start, e."end", e.globalTid, e.domainId, e.jsonText, coalesce(e.text, s.value) AS name
    FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId WHERE e.eventType = 59 AND name LIKE 'nccl%' ORDER BY
    e.start
"""
_KERNELS = """
    SELECT k.start, k."end", r.start, r.globalTid, k.deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN StringIds s ON s.id = k.shortName JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
    WHERE s.value LIKE 'nccl%' ORDER BY k.start
"""


def add_nccl_trace(export: Path, *, scatter_ns: int = 0, keeps_ranges: bool = True, names_calls: bool = True) -> int:
    """Adds the trace to an export of `synth`; returns how many operations it holds.

    Args:
        export: The SQLite export, which is changed.
        scatter_ns: The most that a time on the device is off, to each side.
        keeps_ranges: Whether the ranges that NCCL writes itself stay.
        names_calls: Whether each operation has a range of its call, on the calling thread.
    """
    rng = np.random.default_rng(int(scatter_ns))
    with closing(sqlite3.connect(export)) as database:
        ranges = database.execute(_CALLS).fetchall()
        ranks = {}
        for *_, payload, name in ranges:
            if name == "ncclCommInitRank":
                told = json.loads(payload)
                ranks[told["NCCL communicator ID"]] = told["Rank"]
        calls = [r for r in ranges if r[5] not in ("ncclGroupStart", "ncclGroupEnd") and "CommInit" not in r[5]]
        groups = _groups([r for r in ranges if r[5] in ("ncclGroupStart", "ncclGroupEnd")])
        made: list[tuple[Any, ...]] = []
        numbers: dict[tuple[Any, ...], int] = {}
        for begin, end, launch, thread, _ in database.execute(_KERNELS).fetchall():
            span = next((g for g in groups if g[0] <= launch < g[1] and g[2] == thread), None)
            for call in calls:
                within = span or call[:3]
                if call[2] == thread and within[0] <= call[0] < within[1] and within[0] <= launch < within[1]:
                    made += _rows(
                        call, (begin, end), ranks, numbers, rng.integers(-scatter_ns, scatter_ns + 1, 2 * _CHANNELS)
                    )
        if not names_calls:
            made = [row for row in made if "channelId" in row[4]]
        if not keeps_ranges:
            database.execute("DELETE FROM NVTX_EVENTS WHERE jsonText IS NOT NULL OR text LIKE 'ncclGroup%'")
            database.execute(
                "DELETE FROM NVTX_EVENTS WHERE textId IN (SELECT id FROM StringIds WHERE value LIKE 'nccl%')"
            )
        database.executemany(
            'INSERT INTO NVTX_EVENTS (start, "end", eventType, globalTid, domainId, jsonText, text) VALUES (?, ?, 59,'
            " ?, ?, ?, ?)",
            made,
        )
        database.commit()
    return len({(json.loads(row[4])["apiId"]) for row in made})


def _groups(ranges: list[tuple[Any, ...]]) -> list[tuple[int, int, int]]:
    """Start, end and thread of each group; `synth` nests none."""
    starts = {}
    found = []
    for start, end, thread, _, _, name in ranges:
        if name == "ncclGroupStart":
            starts[thread] = start
        else:
            found.append((starts[thread], end, thread))
    return found


def _rows(
    call: tuple[Any, ...], kernel: tuple[int, int], ranks: dict[int, int], numbers: dict[tuple[Any, ...], int], off: Any
) -> list[tuple[Any, ...]]:
    """The range of an operation's call, and those of its channels: start, end, thread, domain, payload, text."""
    start, end, thread, domain, payload, name = call
    told = json.loads(payload)
    communicator, peer = told["NCCL communicator ID"], told.get("Peer rank")
    own = ranks[communicator]
    # a message has no place in the order of a communicator's collectives, but both of its sides have one number
    key = (communicator, *(() if peer is None else (own, peer) if name == "ncclSend" else (peer, own)))
    number = numbers[key] = numbers.get(key, -1) + 1
    about = {
        "commHash": communicator,
        "commRank": own,
        "count": told["Message size [bytes]"] // _ELEMENT_BYTES,
        "dataType": "ncclBfloat16",
        "apiId": (start << 1) + (name == "ncclRecv"),
        "operationId": hash((*key, number)) & 0x7FFFFFFFFFFF,
        **({"seqNumber": number} if peer is None else {"peer": peer}),
    }
    text = name.removeprefix("nccl")
    channels = [
        (
            kernel[0] + 50 * channel + int(off[2 * channel]),
            kernel[1] - 50 * channel + int(off[2 * channel + 1]),
            thread + 7,
            domain,
            json.dumps({**about, "channelId": channel}),
            text,
        )
        for channel in range(_CHANNELS)
    ]
    return [(start + 1, end - 1, thread, domain, json.dumps(about), text), *channels]
