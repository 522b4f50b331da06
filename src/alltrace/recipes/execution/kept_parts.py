"""What a rank contributes to questions, stored in `RUN/findings`: computed again only if the rank changed.

Parts are made in the time of the rank's files and put on the run's clock when they are used, since every added or
removed rank can change all clocks by a nanosecond. A part is stored with its inputs: the rank as imported, its steps
and matched operations, and the code. So an interrupted question continues, and if one rank changed, only that rank is
read. A digest of the inputs is in the file's name too, so that a list of the files shows which parts are there.
"""

import json
import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from alltrace.recipes.execution.shared_tables import kept_once
from alltrace.run.derived import Place, digest, remove_drafts
from alltrace.run.manifest import RankRecord
from alltrace.run.overlay import MEMBERS, STEPS, collectives_file, rank_signature
from alltrace.run.rank import Placeable, Rank
from alltrace.run.store import Run
from alltrace.run.verify import FINDINGS
from alltrace.trace.schema import TABLES

ROWS_WORTH_KEEPING = 200_000
"""Of fewer rows parts are made as fast as it is found out whether those that are kept are of this run."""

_ENDING = ".part"


_Part = TypeVar("_Part", bound=Placeable)


class RankParts(NamedTuple):
    """Where the parts of one rank are kept."""

    folder: Path  # the folder of the parts of the run
    rank: int  # the rank
    made_from: str  # what its parts are made from; in the names of their files
    names: frozenset[str]  # the names of the parts that are there

    def get(self, rank: Rank, name: str, classes: Sequence[type], make: Callable[[Rank], _Part]) -> _Part:
        """The part in the time of the rank's files: the kept one, or made of the rank; it has only `classes`."""
        from alltrace.run.checked_arrow import read_object, write_object

        place = Place(self.folder / name / f"rank={self.rank}-{self.made_from}{_ENDING}", self.made_from)
        stored: _Part | None = place.find(lambda path, signature: read_object(path, signature, classes))
        if stored is not None:
            return stored
        part = make(rank)
        place.keep(lambda path, signature: write_object(path, part, signature), tidy=False)
        return part


class PlacedParts:
    """The parts of a rank on the run's clock; `wanted`: the tables and columns that they are made from."""

    def __init__(self, parts: RankParts, rank: Rank, wanted: Mapping[str, Sequence[str]]) -> None:
        self._clock = rank.clock
        self._own = rank.in_file_time().view(wanted=wanted, kept=parts)

    def get(self, _rank: Rank, name: str, classes: Sequence[type], make: Callable[[Rank], _Part]) -> _Part:
        part = kept_once(self._own, name, classes, make).placed(self._clock)
        self._own.release(tuple(TABLES))  # others ask for tables on the run's clock
        return part


def rank_parts(run: Run, ranks: Sequence[RankRecord]) -> dict[int, RankParts]:
    """For each rank where its parts are kept; empty if the (aligned) run is small or cannot be written."""
    manifest, overlay = run.manifest, run.overlay
    few = sum(sum(r.rows.values()) for r in run.ranks) < ROWS_WORTH_KEEPING
    if few or overlay is None or not manifest.complete or not os.access(run.path, os.W_OK):
        return {}
    shared = _shared_digests(run)
    logs = [(log.kind, log.content_hash) for log in manifest.logs]
    digests: dict[int, str] = {}
    for record in ranks:
        made_from = [
            rank_signature(manifest, record),
            overlay.files.expected.get(collectives_file(record.rank)),
            *(of_ranks.get(record.rank) for of_ranks in shared),
            logs,
            _samples_beside(run, record),
        ]
        digests[record.rank] = digest(made_from)
    folder = (run.path / FINDINGS).absolute()  # for processes that were started in another folder
    names = _existing(folder, digests, {r.rank for r in run.ranks}.difference(digests))
    return {rank: RankParts(folder, rank, signature, names[rank]) for rank, signature in digests.items()}


def _shared_digests(run: Run) -> list[dict[int, str]]:
    """For each rank what it has of the alignment: matched operations, and steps in the time of its files."""
    from alltrace.run.parquet import read_parquet
    from alltrace.trace.distinct import rows_by

    files = run.overlay.files if run.overlay is not None else None
    by_table: list[dict[int, str]] = []
    for table, columns in ((MEMBERS, ["row", "communicator"]), (STEPS, [c for c in STEPS.column_names if c != "rank"])):
        digests: dict[int, str] = {}
        if files is not None and files.has(f"{table.name}.parquet"):
            enums = [c for c in columns if table.column(c).type == "enum"]
            shared = read_parquet(files.path(f"{table.name}.parquet"), ["rank", *columns], enums)
            for rank, rows in rows_by(shared.column("rank").to_numpy()).items():
                own = shared.select(columns).take(rows)
                content = _operations(own) if table is MEMBERS else json.dumps(own.to_pydict()).encode()
                digests[rank] = blake2b(content, digest_size=16).hexdigest()
        by_table.append(digests)
    return by_table


def _operations(members: pa.Table) -> bytes:
    """A rank's matched operations, and which of them are in one communicator, whatever its number is."""
    numbers, first, of_row = np.unique(
        members.column("communicator").to_numpy(), return_index=True, return_inverse=True
    )
    by_first = np.empty(len(numbers), np.int64)
    by_first[np.argsort(first)] = np.arange(len(numbers))
    return b"".join((members.column("row").to_numpy().tobytes(), by_first[of_row].tobytes()))


def _samples_beside(run: Run, record: RankRecord) -> list[Any]:
    """Reports of other ranks of the host that may have samples of the rank's GPU, and how far their times are ahead."""
    from alltrace.run.host_samples import samplers

    others = [r for r in samplers(run.manifest, record) if r.rank != record.rank]
    own = run.clock(record).shift_ns
    return [(rank_signature(run.manifest, r), run.clock(r).shift_ns - own) for r in others]


def _existing(folder: Path, made_from: Mapping[int, str], others: Container[int]) -> dict[int, frozenset[str]]:
    """For each rank the names of its parts that are there; outdated ones are removed, unless of `others`."""
    by_rank: dict[int, set[str]] = {rank: set() for rank in made_from}
    for path in folder.glob(f"*/rank=*{_ENDING}"):
        number, _, digest = path.name.removeprefix("rank=").removesuffix(_ENDING).partition("-")
        rank = int(number) if number.isdecimal() else -1
        if digest and made_from.get(rank) == digest:
            by_rank[rank].add(path.parent.name)
        elif rank not in others:
            with suppress(OSError):
                path.unlink()
    for draft in folder.glob(f"*/.rank=*{_ENDING}.*"):  # of all parts at once: each one's folder lists all ranks
        with suppress(OSError):
            remove_drafts(draft.with_name(draft.name.removeprefix(".").partition(_ENDING)[0] + _ENDING))
    return {rank: frozenset(names) for rank, names in by_rank.items()}
