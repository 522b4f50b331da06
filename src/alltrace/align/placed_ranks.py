"""The ranks of a run at their UTC stamps, before their clocks are known."""

from __future__ import annotations

from dataclasses import dataclass

from alltrace.run.manifest import Manifest


@dataclass(frozen=True)
class PlacedRank:
    """A rank before its clock is known."""

    rank: int
    host: str
    report: int  # that its times are of
    shift_ns: int  # from the time of its files to ns since the run's zero, by its UTC stamp
    system_ns: int | None = None  # the host's monotonic clock at the zero of its files
    stamped: bool = True  # there is a UTC stamp


def place_ranks(manifest: Manifest) -> list[PlacedRank]:
    """The ranks of a run at their UTC stamps."""
    zero = manifest.zero_utc_ns
    ranks = []
    for rank in manifest.ranks:
        base = rank.time_base_utc_ns
        stamped = base is not None and zero is not None
        report = rank.reports[0] if rank.reports else -1 - rank.rank
        system = manifest.reports[report].system_clock_ns if 0 <= report < len(manifest.reports) else None
        shift = base - zero if base is not None and zero is not None else 0
        ranks.append(PlacedRank(rank.rank, rank.host, report, shift, system, stamped))
    return ranks
