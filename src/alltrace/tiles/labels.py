"""Readable names of the tracks of a rank."""

from typing import Any

from alltrace.tiles.tracks import SUMMARY, parse_key
from alltrace.tiles.view import View

_GROUPS = {
    "gpu": "GPU {0} stream {1}", "collectives": "collectives {0}", "ranges": "ranges, {0}", "api": "CUDA API, {0}",
    "mpi": "MPI, {0}", "ucx": "UCX, {0}", "osrt": "OS runtime, {0}", "syscalls": "system calls, {0}",
    "openacc": "OpenACC, {0}", "openmp": "OpenMP, {0}", "samples": "CPU samples, {0}", "sched": "scheduling, {0}",
    "allocations": "allocated memory, {0}", "memory": "CUDA memory, {0}", "metric": "GPU {0}: {1}",
    "nic": "NIC {0}: {1}", "switch": "switch {0}: {1}", "generic": "{0}: {1}",
}  # fmt: skip


def labelled(view: View, rank: int) -> list[dict[str, Any]]:
    """The tracks of a rank: `key`, `group`, `label`, `rows`, `first`, `last` (ns from the run's first event)."""
    import pyarrow as pa

    stored = view.events.rank(rank)
    record = stored.record
    ordinals = {d.device: d.device if d.ordinal is None else d.ordinal for d in record.devices}
    threads = _threads(stored)
    tracks = view.tracks(rank)
    parsed = [parse_key(t.key) for t in tracks]
    ids = sorted(
        {v for g, values in parsed if g in ("collectives", "metric", "nic", "switch", "generic") for v in values}
    )
    words = dict(zip(ids, stored.texts(pa.array(ids, pa.int64())).to_pylist(), strict=True)) if ids else {}
    rows = []
    for track, (group, values) in zip(tracks, parsed, strict=True):
        first, second = _words_of(group, values, ordinals, threads, words)
        label = "devices" if track.key == SUMMARY else _GROUPS[group].format(first, second)
        rows.append(
            {
                "key": track.key,
                "group": group,
                "label": label[:200],
                "rows": track.rows,
                "first": track.first_ns,
                "last": track.last_ns,
            }
        )
    return rows


def _words_of(
    group: str, values: tuple[int, ...], ordinals: dict[int, int], threads: dict[int, str], words: dict[int, str | None]
) -> tuple[str, str]:
    if group == "gpu":
        return str(ordinals.get(values[1], values[1])), str(values[2])
    if group in ("allocations", "memory"):
        return ("host" if values[0] < 0 else f"GPU {ordinals.get(values[0], values[0])}"), ""
    if group == "metric":
        return str(ordinals.get(values[0], values[0])), words.get(values[1]) or str(values[1])
    if group == "switch":
        return f"{values[0] & (1 << 64) - 1:x}", words.get(values[1]) or str(values[1])
    if group in ("nic", "generic"):
        return words.get(values[0]) or "?", words.get(values[1]) or str(values[1])
    if group == "collectives":
        return words.get(values[0]) or "of unknown communicator", ""
    return (threads.get(values[0], f"thread {values[0]}") if values else ""), ""


def _threads(stored: Any) -> dict[int, str]:
    """The names of threads, by their row; the name of a thread without a name is its number."""
    if not stored.has("threads"):
        return {}
    table = stored.table("threads", ["thread", "tid", "name"])
    names = stored.texts(table.column("name")).to_pylist()
    rows = zip(table.column("thread").to_pylist(), table.column("tid").to_pylist(), names, strict=True)
    return {thread: f"{name} ({tid})" if name else f"thread {tid}" for thread, tid, name in rows}
