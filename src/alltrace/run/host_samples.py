"""Samples of GPU metrics by the rank that uses the GPU.

One report of a host samples all of the host's GPUs, most often that of its first rank, so the samples of a rank's GPU
are in another rank's table. A GPU is known across reports by its UUID, or else by its bus id; CUDA ordinals do not
identify it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from alltrace.run.manifest import Manifest, RankRecord

TABLE = "gpu_metrics"


def samplers(manifest: Manifest, record: RankRecord) -> list[RankRecord]:
    """The ranks of the same host with samples in their reports, the rank itself first."""
    ranks = [r for r in manifest.ranks_of_host[record.host] if r.rows.get(TABLE)]
    return sorted(ranks, key=lambda r: (r.rank != record.rank, r.rank))


def samples_of_host(
    own: Any, others: Sequence[RankRecord], opened: Callable[[RankRecord], Any], columns: Sequence[str]
) -> Any:
    """Samples (`gpu_metrics`) of the rank, and of its other GPUs by `others` of its host, in the order of belief."""
    import numpy as np
    import pyarrow as pa

    wanted = list(columns)
    read = [*wanted, *([] if "device" in wanted else ["device"])]
    samples = own.table(TABLE, read)
    known = set(samples.column("device").unique().to_pylist())
    others = [record for record in others if record.rank != own.rank]
    lacking = {name: device for name, device in _named(own).items() if device not in known} if others else {}
    tables = [samples]
    for record in others:
        if not lacking:
            break
        other = opened(record)
        places = {device: lacking[name] for name, device in _named(other).items() if name in lacking}
        seen: set[int] = set()
        numbers = other.pieces_of_devices(TABLE, set(places)) if places else []
        for piece in (other.piece(TABLE, number, read) for number in numbers):
            device = piece.column("device").fill_null(-1).to_numpy()
            mine = np.isin(device, list(places))
            if mine.any():
                chosen = piece.filter(pa.array(mine))
                moved = np.array([places[d] for d in device[mine].tolist()])
                seen.update(np.unique(moved).tolist())
                at = chosen.column_names.index("device")
                tables.append(
                    chosen.set_column(at, chosen.schema.field(at), pa.array(moved, chosen.schema.field(at).type))
                )
        lacking = {name: device for name, device in lacking.items() if device not in seen}
    return pa.concat_tables(tables).select(wanted)


def sample_sources(
    own: Any, manifest: Manifest, others: Sequence[RankRecord], opened: Callable[[RankRecord], Any]
) -> list[tuple[Any, dict[int, int]]]:
    """Tables with samples of a rank's GPUs, its own with unused ones too, and the rank's row of each device there."""
    if not others:
        return []
    works_on = {d.device for d in own.record.devices}
    beside = (record for record in manifest.ranks_of_host[own.host] if record.rank != own.rank)
    taken = {d.identity for record in beside for d in record.devices}
    of_others = {device for name, device in _named(own).items() if (own.host, name) in taken} - works_on
    sources = [(own, {device: device for device in _sampled(own) if device not in of_others})]
    lacking = {name: d for name, d in _named(own).items() if d in works_on and d not in sources[0][1]}
    for record in others:
        if record.rank != own.rank and lacking:
            other = opened(record)
            there, sampled = _named(other), _sampled(other)
            places = {there[name]: device for name, device in lacking.items() if there.get(name) in sampled}
            sources.append((other, places))
            lacking = {name: device for name, device in lacking.items() if device not in places.values()}
    return [(tables, places) for tables, places in sources if places]


def _sampled(rank: Any) -> set[int]:
    """The devices that a rank's report has samples of; -1 means none."""
    return set(rank.table(TABLE, ["device"]).column("device").unique().fill_null(-1).to_pylist())


def _named(rank: Any) -> dict[str, int]:
    """The rows of a rank's `devices` by UUID or bus id, if they have one."""
    table = rank.table("devices", ["device", "uuid", "bus_id"])
    names = zip(*(table.column(c).to_pylist() for c in table.column_names), strict=True)
    return {uuid or bus: device for device, uuid, bus in names if uuid or bus}
