"""Kernels that no rule names and that look like communication: a host's ranks end them together.

Ranks that compute the same end as far apart as they began. Ranks that meet in a kernel end together, as the first waits
in it for the last. So kernels are compared by name and place in the sequence, among ranks of one host, which share a
clock.

The import of each rank keeps the first kernels of each such name in a file (`keep_unknown_kernels`). The end of the
import compares ranks (`find_meeting_kernels`) and puts the result into the manifest. Readers of a rank's tables then
see these kernels as of kind `meeting` (`with_meeting_kind`), so that all answers, the replay and the page agree.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.run.clock import clock_map
from alltrace.run.manifest import Manifest, MeetingKernel
from alltrace.run.parquet import read_parquet, write_parquet
from alltrace.run.pieces import Piece
from alltrace.trace.arrays import Int64, coded, integers, is_one_of, is_true
from alltrace.trace.kernel_rules import MEETING, UNCLASSIFIED

UNKNOWN_KERNELS = "unknown_kernels.parquet"
"""In the folder of a rank with kernels without a rule: `name`, `number`, `starts` and `ends` of the first."""

COMPARED = 256  # at most this number of kernels of a name are compared, the first ones of each rank
_MOST_NAMES = 1_000  # of names, those with the longest total time are compared

_APART_NS = 20_000  # ranks that begin a kernel less far apart than this show nothing
_TOGETHER_NS = 10_000
_TOGETHER_SHARE = 0.25  # they end together within 10 us, or within this share of how far apart they began
_LEAST = 5
_MOST_OF = 0.8
_LONGEST = 80
_MOST_NAMED = 3
_ARGUMENTS = re.compile(r"[<(].*", re.DOTALL)


def keep_unknown_kernels(piece: Piece) -> None:
    """Write `UNKNOWN_KERNELS` into the folder of a rank, if it has kernels that no rule names."""
    if not piece.rows.get("kernels"):
        return
    parts = piece.parts("kernels", ["kind", "start", "end", "name", "short_name"], ["kind"])
    table = pa.concat_tables(
        [part.drop_columns("kind").filter(pa.array(is_one_of(part.column("kind"), (UNCLASSIFIED,)))) for part in parts]
    )
    if not table.num_rows:
        return
    start, end = (integers(table.column(c)) for c in ("start", "end"))
    ids, at = coded(_names(table))
    length = np.bincount(at, np.maximum(end - start, 0).astype(np.float64), minlength=len(ids))
    rows = []
    for number in np.argsort(-length[: len(ids)], kind="stable")[:_MOST_NAMES].tolist():
        rows_of = np.flatnonzero(at == number)
        first = rows_of[np.argsort(start[rows_of], kind="stable")][:COMPARED]
        its = {"starts": start[first].tolist(), "ends": end[first].tolist()}
        rows.append({"name": ids[number].as_py(), "number": len(rows_of), **its})
    times = pa.list_(pa.int64())
    schema = pa.schema([("name", pa.int64()), ("number", pa.int64()), ("starts", times), ("ends", times)])
    write_parquet(pa.Table.from_pylist(rows, schema), piece.folder / UNKNOWN_KERNELS)


def find_meeting_kernels(run: Path, manifest: Manifest) -> tuple[MeetingKernel, ...]:
    """The kernels without a rule in which all ranks of a host meet, those of most instances first."""
    of_host: dict[str, list[Any]] = defaultdict(list)
    for record in manifest.ranks:
        of_host[record.host].append(record)
    apart: dict[int, int] = defaultdict(int)
    met: dict[int, int] = defaultdict(int)
    for records in of_host.values():
        paths = [run / r.folder / UNKNOWN_KERNELS for r in records]
        if len(records) < 2 or not all(p.is_file() for p in paths):  # a rank without such kernels takes no part
            continue
        kernels = [_read_kernels(path, clock_map(manifest, r).apply) for path, r in zip(paths, records, strict=True)]
        for name in set(kernels[0]).intersection(*kernels[1:]):
            its = [of_rank[name] for of_rank in kernels]
            if len({number for number, _, _ in its}) > 1:
                continue
            starts, ends = np.stack([s for _, s, _ in its]), np.stack([e for _, _, e in its])
            late = np.ptp(starts, axis=0)
            chosen = (late >= _APART_NS) & (starts.max(axis=0) < ends.min(axis=0))
            apart[name] += int((late >= _APART_NS).sum())
            met[name] += int(
                (chosen & (np.ptp(ends, axis=0) <= np.maximum(_TOGETHER_NS, _TOGETHER_SHARE * late))).sum()
            )
    meeting = [
        MeetingKernel(n, apart[n], met[n]) for n in apart if apart[n] >= _LEAST and met[n] >= _MOST_OF * apart[n]
    ]
    return tuple(sorted(meeting, key=lambda m: (-m.met, m.name)))


def with_meeting_kind(kernels: pa.Table, meeting: Sequence[MeetingKernel]) -> pa.Table:
    """Rows of `kernels` (with `kind`, `name`, `short_name`), `kind` being `meeting` for those in which ranks meet."""
    ids = pa.array([m.name for m in meeting], pa.int64())
    mine = is_one_of(kernels.column("kind"), (UNCLASSIFIED,))
    mine &= is_true(pc.is_in(_names(kernels), value_set=ids))
    if not mine.any():
        return kernels
    at = kernels.schema.get_field_index("kind")
    words, codes = coded(kernels.column("kind"))
    texts = [*words.to_pylist(), MEETING]
    none = (codes == len(words)) & ~mine  # what has no kind
    codes = np.where(mine, len(words), codes)
    kind = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=none), pa.array(texts, pa.string()))
    field = kernels.schema.field("kind")
    return kernels.set_column(at, field, kind.cast(field.type))


def meeting_notes(meeting: Sequence[MeetingKernel], texts: Callable[[pa.Array], pa.Array]) -> list[str]:
    """What a reader must know of kernels in which ranks meet, with the rule that would name each."""
    names = texts(pa.array([m.name for m in meeting[:_MOST_NAMED]], pa.int64())).to_pylist()
    notes = [_text(name or "", m) for name, m in zip(names, meeting, strict=False)]
    if len(meeting) > _MOST_NAMED:
        notes.append(
            f"{len(meeting) - _MOST_NAMED} more kernels without a rule end on all ranks together, so they are no"
            " compute"
        )
    return notes


def _text(name: str, meeting: MeetingKernel) -> str:
    plain = _ARGUMENTS.sub("", name.removeprefix("void ")).strip()[:_LONGEST]
    return (
        f"the kernel {plain!r}, which no rule names, ends on all ranks together in {meeting.met:,} of the"
        f" {meeting.apart:,} compared instances that begin apart, as communication does, so it does not count as"
        " compute, and a replay does not change its length; if it communicates, this line in the file of"
        f" --kernel-rules says so: collective {re.escape(plain)}"
    )


def _read_kernels(path: Path, to_host: Callable[[Int64], Int64]) -> dict[int, tuple[int, Int64, Int64]]:
    """A rank's file by name: the number of all kernels, and starts and ends of the first on the host's clock."""
    rows: Iterable[Mapping[str, Any]] = read_parquet(path, ["name", "number", "starts", "ends"]).to_pylist()
    return {
        row["name"]: (row["number"], *(to_host(np.array(row[c], np.int64)) for c in ("starts", "ends")))
        for row in rows
        if row["name"] is not None
    }


def _names(kernels: Any) -> Any:
    """The best name that each kernel has."""
    return pc.coalesce(kernels.column("name"), kernels.column("short_name"))
