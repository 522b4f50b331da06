"""The checksums of a run's files: written once a folder is whole, and compared before anything of a file is read.

Neither Arrow nor DuckDB notices a changed bit in a Parquet file. So each folder of a run that is made as a whole has a record in
JSON, with a checksum of its own, that lists the files beside it with the XXH3-128 of their bytes. A file is read once from end to
end before it is used: that takes a hundredth of the time that decoding takes, and covers footers and page headers too, which the
checksums that Parquet has for the data of pages do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alltrace.run.json_files import REPAIR, read_json, write_json
from alltrace.run.manifest import RANK_RECORD, plain
from alltrace.run.report_hash import content_hash
from alltrace.trace.errors import DamageError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from alltrace.run.manifest import Rank

FILES = "files"
"""In a record: the checksum of each file by its path relative to the record's folder."""


def checksums(folder: Path) -> dict[str, str]:
    """The checksum of each file in a folder and the folders in it, by its path relative to it.

    Raises:
        InputError: A file cannot be read.
    """
    return {p.relative_to(folder).as_posix(): checksum(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def checksum(path: Path) -> str:
    """The checksum of a file.

    Raises:
        InputError: It cannot be read.
    """
    return content_hash(path)[1]


class CheckedFiles:
    """The files of a folder, each of which is compared with its checksum before it is first read.

    Args:
        folder: The folder.
        expected: The checksum of each file by its path relative to the folder.
    """

    def __init__(self, folder: Path, expected: Mapping[str, str]) -> None:
        self.folder = folder
        self.expected = expected
        self._checked: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the folder was written with such a file."""
        return name in self.expected

    def path(self, name: str) -> Path:
        """The path of a file that is as it was written.

        Raises:
            DamageError: The file is not as it was written, cannot be read, or was not written with the folder.
        """
        path = self.folder / name
        if name not in self._checked:
            try:
                found = checksum(path)
            except InputError as error:
                raise DamageError(path, found=error.found, advice=REPAIR) from error
            if found != self.expected.get(name):
                raise DamageError(path, found="it is damaged: its checksum does not match", advice=REPAIR)
            self._checked.add(name)
        return path

    def damaged(self) -> list[DamageError]:
        """What is wrong with the files; nothing where all are as they were written."""
        found = []
        for name in self.expected:
            try:
                self.path(name)
            except DamageError as error:
                found.append(error)
        return found


class RankFiles:
    """The files of each rank of an opened run; a rank's record is read once.

    Args:
        run: The run directory.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._folders: dict[str, CheckedFiles] = {}

    def of(self, record: Rank) -> CheckedFiles:
        """The files of a rank.

        Raises:
            InputError: Its record cannot be read.
            DamageError: Its record is damaged.
        """
        if record.folder not in self._folders:
            folder = self._run / record.folder
            self._folders[record.folder] = CheckedFiles(folder, files_of(read_json(folder / RANK_RECORD), folder / RANK_RECORD))
        return self._folders[record.folder]


def write_rank_record(folder: Path, rank: Rank, signature: Mapping[str, Any]) -> None:
    """Write the record of a rank beside its files, which must be whole; it may not outlast a power cut without them.

    Args:
        folder: Where the rank's files are.
        rank: Its facts.
        signature: What it was made from.
    """
    write_json(folder / RANK_RECORD, {"signature": dict(signature), "rank": plain(rank), FILES: checksums(folder)})


def files_of(record: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The checksums that a record lists.

    Raises:
        DamageError: It lists none.
    """
    found = record.get(FILES)
    if not isinstance(found, dict):
        raise DamageError(path, found="it lists no files", expected="the checksum of each file beside it", advice=REPAIR)
    return found
