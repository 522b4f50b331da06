"""Packs a recording for the tests: the tables that say what MPI did, the records, and nothing of the machine.

`python -m benchmarks.mpi_programs.fixture RECORDING FILE.tar.xz`; RECORDING is a folder that `benchmarks.mpi_truth
--keep` made.
"""

from __future__ import annotations

import argparse
import io
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

KEPT = (
    "MPI_COMMUNICATORS", "MPI_RANKS", "MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS",
    "MPI_OTHER_EVENTS", "StringIds", "META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_SYSTEM_ENV",
)  # fmt: skip
_EVENTS = tuple(t for t in KEPT if t.endswith("_EVENTS"))
_ROWS = {
    "META_DATA_EXPORT": "name LIKE 'EXPORT_SCHEMA%' OR name LIKE 'EXPORT_PRODUCT%'",
    "TARGET_INFO_SYSTEM_ENV": "name = 'Hostname'",
    "StringIds": f"id IN ({' UNION '.join(f'SELECT textId FROM whole.{t}' for t in _EVENTS)})",
}
"""Which rows are kept of the tables that hold more than events."""


def strip(source: Path, target: Path) -> None:
    """Copy the tables in `KEPT`; of the machine its name, of the metadata the versions."""
    with closing(sqlite3.connect(target)) as made:
        made.execute("ATTACH ? AS whole", (str(source),))
        for name, statement in made.execute(
            "SELECT name, sql FROM whole.sqlite_master WHERE type = 'table'"
        ).fetchall():
            if name not in KEPT:
                continue
            made.execute(statement)
            where = f"WHERE {_ROWS[name]}" if name in _ROWS else ""
            made.execute(f"INSERT INTO main.{name} SELECT * FROM whole.{name} {where}")
        made.commit()
        made.execute("DETACH whole")
        made.execute("VACUUM")


def pack(recording: Path, target: Path) -> None:
    """Write the tar file: `rank<r>.sqlite`, `record.<r>.json` and `recording.json`, without files' times and owners."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(target, "w:xz", preset=9) as archive:
        for source in sorted(recording.glob("rank*.sqlite")):
            strip(source, Path(folder) / source.name)
        for path in (*sorted(Path(folder).iterdir()), *sorted(recording.glob("record*.json"))):
            entry = tarfile.TarInfo(path.name)
            content = path.read_bytes()
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def main() -> None:
    """Pack what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mpi_programs.fixture", description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    pack(args.recording, args.target)


if __name__ == "__main__":
    main()
