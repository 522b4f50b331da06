"""What a rank contributes to questions, kept with the run in `RUN/findings`: made anew only where the rank or its part changed.

A part is kept with what it was made from: the rank as it was imported, its steps and matched operations in the time of its files,
its clock, and the code. A clock that gives all times of a rank the same number of ns more moves the part; it does not make it anew.
So a question that was interrupted goes on where it was, and of a run with one rank anew little else is read.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from alltrace.run.overlay import MEMBERS, STEPS, collectives_file, rank_signature
from alltrace.run.verify import FINDINGS
from alltrace.trace.errors import AlltraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from alltrace.run.manifest import Rank
    from alltrace.run.store import Run

ROWS_WORTH_KEEPING = 200_000
"""Of fewer rows parts are made as fast as it is found out whether those that are kept are of this run."""

_ENDING = ".part"
_MADE_FROM, _AT = "alltrace.made_from", "alltrace.at_ns"


class Movable(Protocol):
    """A part with times."""

    def moved(self, by_ns: int) -> Self:
        """The part with all moments later, as the rank has it under such a clock."""
        ...


_Part = TypeVar("_Part", bound=Movable)


class RankParts(NamedTuple):
    """The parts of one rank that are kept.

    Attributes:
        folder: Where those of the run are.
        rank: The rank.
        made_from: What a part of it is made from, but for when time 0 of its files is.
        at_ns: When that is.
    """

    folder: Path
    rank: int
    made_from: str
    at_ns: int

    def get(self, name: str, classes: Sequence[type], make: Callable[[], _Part]) -> _Part:
        """The part of some name: the one that is kept, or a new one.

        Args:
            name: What it is called.
            classes: The dataclasses that may be in it.
            make: Makes it.
        """
        from alltrace.run.object_files import read_object, write_object

        path = self.folder / name / f"rank={self.rank}{_ENDING}"
        with suppress(AlltraceError, ValueError, KeyError):
            found = read_object(path, {_MADE_FROM: self.made_from}, classes)
            if found is not None:
                kept: _Part = found[0]
                return kept.moved(self.at_ns - int(found[1][_AT]))
        made = make()
        with suppress(OSError, AlltraceError):  # what cannot be kept is made again
            path.parent.mkdir(parents=True, exist_ok=True)
            write_object(path, made, {_MADE_FROM: self.made_from, _AT: str(self.at_ns)})
        return made


def rank_parts(run: Run, ranks: Sequence[Rank]) -> dict[int, RankParts]:
    """For each rank where its parts are kept; empty where they are not, because the run is small or cannot be written.

    Args:
        run: The run, aligned.
        ranks: The ranks in question.
    """
    manifest, overlay = run.manifest, run.overlay
    few = sum(sum(r.rows.values()) for r in run.ranks) < ROWS_WORTH_KEEPING
    if few or overlay is None or not manifest.complete or not os.access(run.path, os.W_OK):
        return {}
    folder = (run.path / FINDINGS).absolute()  # for processes that were started in another folder
    _remove_others(folder, {r.rank for r in run.ranks})
    shared = _shared_digests(run)
    logs = [(log.kind, log.content_hash) for log in manifest.logs]
    found = {}
    for record in ranks:
        clock = run.clock(record)
        # the correction of a clock that runs faster depends on the moment
        at = 0 if clock.drift else clock.shift_ns - clock.origin_ns
        made_from = [
            rank_signature(manifest, record),
            tuple(clock) if clock.drift else 0,
            overlay.files.expected.get(collectives_file(record.rank)),
            *(digests.get(record.rank) for digests in shared),
            logs,
            _samples_beside(run, record, at),
        ]
        digest = blake2b(json.dumps(made_from).encode(), digest_size=16).hexdigest()
        found[record.rank] = RankParts(folder, record.rank, digest, at)
    return found


def _shared_digests(run: Run) -> list[dict[int, str]]:
    """For each rank what it has of the alignment: which of its operations are matched, and its steps in the time of its files."""
    from alltrace.run.parquet import read_parquet
    from alltrace.trace.distinct import rows_by

    files = run.overlay.files if run.overlay is not None else None
    found: list[dict[int, str]] = []
    for table, columns in ((MEMBERS, ["row"]), (STEPS, [c for c in STEPS.column_names if c != "rank"])):
        digests: dict[int, str] = {}
        if files is not None and files.has(f"{table.name}.parquet"):
            enums = [c for c in columns if table.column(c).type == "enum"]
            held = read_parquet(files.path(f"{table.name}.parquet"), ["rank", *columns], enums)
            for rank, rows in rows_by(held.column("rank").to_numpy()).items():
                own = held.select(columns).take(rows)
                # of operations there are many, and they are numbers
                content = own.column("row").to_numpy().tobytes() if table is MEMBERS else json.dumps(own.to_pydict()).encode()
                digests[rank] = blake2b(content, digest_size=16).hexdigest()
        found.append(digests)
    return found


def _samples_beside(run: Run, record: Rank, at_ns: int) -> list[Any]:
    """Which reports of other ranks of the host may hold samples of the rank's GPU, and when they are."""
    from alltrace.run.host_samples import samplers

    others = [r for r in samplers(run.manifest, record) if r.rank != record.rank]
    return [(rank_signature(run.manifest, r), c.shift_ns - c.origin_ns - at_ns) for r in others for c in [run.clock(r)]]


def _remove_others(folder: Path, ranks: set[int]) -> None:
    """Remove the parts of ranks that the run has no more."""
    own = {f"rank={rank}{_ENDING}" for rank in ranks}
    for path in folder.glob(f"*/rank=*{_ENDING}"):
        if path.name not in own:
            with suppress(OSError):
                path.unlink()
