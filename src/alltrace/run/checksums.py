"""The checksums of a run's files: written once a folder is whole, and compared before anything of a file is read.

Neither Arrow nor DuckDB notices a changed bit in a Parquet file. So each folder of a run that is written as a whole has
a record in JSON, with its own checksum, that lists the files in the folder with the XXH3-128 of their bytes. A file is
read once from start to end before use: that takes a hundredth of the time of decoding, and covers footers and page
headers too, which the checksums that Parquet has for the data of pages do not.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from alltrace.run.json_files import REPAIR, read_json, write_json
from alltrace.run.manifest import RANK_RECORD, RankRecord, plain
from alltrace.run.report_hash import content_hash
from alltrace.trace.errors import DamageError, InputError

LOGS = "logs"
LOGS_RECORD = "logs.json"
FILES = "files"  # in a record: the checksum of each file by its path relative to the record's folder

_CHECKSUM_BYTES = 16
_CHANGED = "it is damaged: its checksum does not match"


def checksums(folder: Path, record: str) -> dict[str, str]:
    """The checksum of each file below a folder but its `record`, by relative path. Raises `InputError`: unreadable."""
    paths = sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return {name: checksum(p) for p in paths if (name := p.relative_to(folder).as_posix()) != record}


def checksum(path: Path) -> str:
    """The checksum of a file. Raises `InputError`: it cannot be read."""
    return content_hash(path)[1]


class CheckedFiles:
    """The files of a folder, each compared with its checksum (`expected`, by relative path) before it is first read."""

    def __init__(self, folder: Path, expected: Mapping[str, str]) -> None:
        self.folder = folder
        self.expected = expected
        self._checked: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the folder was written with such a file."""
        return name in self.expected

    def path(self, name: str) -> Path:
        """The path of a file that is as it was written. Raises `DamageError`: it is not, or not of the folder."""
        path = self.folder / name
        if name not in self._checked:
            try:
                written = checksum(path)
            except InputError as error:
                raise DamageError(path, found=error.found, advice=REPAIR) from error
            if written != self.expected.get(name):
                raise DamageError(path, found=_CHANGED, advice=REPAIR)
            self._checked.add(name)
        return path

    def damaged(self) -> Iterator[tuple[str, DamageError]]:
        """The files that are not as they were written, and what is wrong with each."""
        for name in self.expected:
            try:
                self.path(name)
            except DamageError as error:
                yield name, error


class RankFiles:
    """The files of each rank of an opened run, and those of its logs; each record is read once."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._folders: dict[str, CheckedFiles] = {}

    def of(self, record: RankRecord) -> CheckedFiles:
        """The files of a rank. Raises `DamageError`: its record is damaged, or not there."""
        if record.folder not in self._folders:
            self._folders[record.folder] = recorded(self._run / record.folder, RANK_RECORD)
        return self._folders[record.folder]

    def logs(self) -> CheckedFiles | None:
        """What is kept of the job's logs; None if there are no logs. Raises `DamageError`: their record is damaged."""
        if LOGS not in self._folders:
            files = log_files(self._run)
            if files is None:
                return None
            self._folders[LOGS] = files
        return self._folders[LOGS]


def with_checksum(content: Any) -> tuple[Any, bytes]:
    """The content of a file that no record lists, and the checksum behind it; `checked_content` reads both."""
    import xxhash

    return content, xxhash.xxh3_128_digest(content)


def checked_content(path: Path) -> memoryview:
    """The content of a file with an appended checksum. Raises `DamageError`: it is damaged, or cannot be read."""
    import xxhash

    try:
        whole = memoryview(path.read_bytes())
    except OSError as error:
        raise DamageError.cannot_be("read", path, error, advice=REPAIR) from error
    content, written = whole[:-_CHECKSUM_BYTES], whole[-_CHECKSUM_BYTES:]
    if xxhash.xxh3_128_digest(content) != written:
        raise DamageError(path, found=_CHANGED, advice=REPAIR)
    return content


def write_rank_record(
    folder: Path, rank: RankRecord, signature: Mapping[str, Any], files: Mapping[str, str] | None = None
) -> None:
    """Write the record of a rank next to its complete files; `files`: their checksums, if known.

    The disk is waited for once, with the manifest of the whole run: after a power cut the checksums tell which ranks
    are not whole, and these are imported again.
    """
    digests = checksums(folder, RANK_RECORD) if files is None else dict(files)
    write_json(folder / RANK_RECORD, {"signature": dict(signature), "rank": plain(rank), FILES: digests}, lasting=False)


def recorded(folder: Path, record: str) -> CheckedFiles:
    """The files that a folder's `record` lists. Raises `DamageError`: the record is damaged, or not there."""
    path = folder / record
    try:
        return CheckedFiles(folder, files_of(read_json(path), path))
    except DamageError:
        raise
    except InputError as error:
        raise DamageError(path, found="it is missing", advice=REPAIR) from error


def log_files(run: Path) -> CheckedFiles | None:
    """The files kept of the job's logs; None without logs. Raises `DamageError`: their record is damaged."""
    return recorded(run / LOGS, LOGS_RECORD) if (run / LOGS).is_dir() else None


def files_of(record: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The checksums that a record lists. Raises `DamageError`: it lists none."""
    files = record.get(FILES)
    if not isinstance(files, dict):
        raise DamageError(
            path, found="it lists no files", expected="the checksum of each file in its folder", advice=REPAIR
        )
    return files
