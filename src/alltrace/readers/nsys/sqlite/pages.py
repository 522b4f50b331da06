"""The pages of one table: which they are, and what is in them, read in pieces into one buffer.

The file is read, not mapped: memory is independent of its size, and a file cut short meanwhile is an error, not a
crash.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from alltrace.core import sqlite as core
from alltrace.readers.nsys.sqlite.detect import COPY, Header, error_text
from alltrace.trace.errors import InputError

_CHUNK_BYTES = 1 << 20
_SAMPLED_LEAVES = 64
_MAX_DEPTH = 20  # SQLite's own limit of a tree's depth
_LOCK_BYTE = 1 << 30  # the page here is never used (section 1.3 of the file format)

# What the loops report as broken, for messages
PROBLEMS = {
    core.NOT_A_PAGE: "is not a page of a table",
    core.TOO_MANY_CELLS: "has more cells than it has room for",
    core.CELL_OUTSIDE: "has a cell outside of the page",
    core.NO_SUCH_PAGE: "points to a page that the file does not have",
    core.USED_TWICE: "points to a page that is already in use",
    core.CELL_TOO_LARGE: "has a cell that is larger than the page leaves room for",
    core.OUT_OF_ORDER: "has row numbers out of order",
    core.RECORD_TOO_LARGE: "has a record that is larger than SQLite allows",
    core.OVERLAP: "has cells that overlap",
    core.BAD_HEADER: "has a record whose header is broken",
    core.BAD_VALUES: "has a record whose values do not end where it ends",
    core.EMPTY_PAGE: "is empty",
    core.BAD_SPACE: "has free space that does not fit its cells",
    core.NULL_VALUE: "has no value in a column that must have one",
}


class TreePages:
    """The tree of one table.

    `path`: for messages. `descriptor`: the open file. `header`: of the file. `table`: name of the table, for messages.
    `root`: its first page.
    """

    def __init__(self, path: Path, descriptor: int, header: Header, table: str, root: int) -> None:
        self.header = header
        self.chunk_pages: int = max(1, _CHUNK_BYTES // header.page_size)
        self._path = path
        self._descriptor = descriptor
        self._table = table
        self._root = root
        self._lock_page = _LOCK_BYTE // header.page_size + 1
        self._marks: NDArray[np.uint8] | None = None
        self._buffer: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._root_page: NDArray[np.uint8] | None = None
        self.info: NDArray[np.int64] = np.zeros(4, np.int64)

    def root_page(self) -> NDArray[np.uint8]:
        """The table's first page."""
        if self._root_page is None:
            if self._root < 2 or self._root > self.header.page_count or self._root == self._lock_page:
                raise self.corrupt(f"its first page, {self._root}, is not in the file")
            page = np.empty(self.header.page_size, np.uint8)
            self._read(page.data, self._root)
            self._root_page = page
        return self._root_page

    def root_kind(self) -> int:
        """The first byte of the table's first page: what kind of tree it is."""
        return int(self.root_page()[0])

    def leaves(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The leaf pages in key order, unread, and the largest row of each. Raises `InputError`: the tree is broken."""
        self._marks = None
        level, most = np.array([self._root], np.uint32), np.array([np.iinfo(np.int64).max])
        if self.root_kind() != core.INTERIOR:
            return level, most
        for _ in range(_MAX_DEPTH):
            # All leaves of a tree are at one depth, so the first page of a level decides for all; `cells` detects a
            # wrong one
            if self._kind(int(level[0])) != core.INTERIOR:
                return level, most
            level, most = self._below(level, most)
        raise self.corrupt(f"its tree is deeper than {_MAX_DEPTH} pages")

    def count_about(self) -> int:
        """About the number of rows, from the heads of some leaves; exact for a small table, 0 only without rows.

        Raises `InputError`: the tree is broken.
        """
        leaves, _ = self.leaves()
        if len(leaves) <= _SAMPLED_LEAVES:
            return self._count(leaves)
        sample = leaves[np.linspace(0, len(leaves) - 1, _SAMPLED_LEAVES).astype(np.int64)]
        return self._count(sample) * len(leaves) // _SAMPLED_LEAVES or self._count(leaves)

    def _count(self, leaves: NDArray[np.uint32]) -> int:
        total, size = 0, self.header.page_size
        for pages, buffer in self.chunks(leaves):
            heads = buffer[: len(pages) * size].reshape(len(pages), size)
            counts = heads[:, 3].astype(np.int64) << 8 | heads[:, 4]
            wrong = np.flatnonzero((heads[:, 0] != core.LEAF) | (counts > (self.header.usable - 8) // 6))
            if len(wrong):
                raise self.corrupt(f"page {pages[wrong[0]]} {PROBLEMS[core.NOT_A_PAGE]}")
            total += int(counts.sum())
        return total

    def chunks(
        self, pages: NDArray[np.uint32], at_once: int | None = None
    ) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint8]]]:
        """The given pages, `at_once` or `chunk_pages` at a time: their numbers, and a reused buffer with them."""
        size = self.header.page_size
        at_once = min(at_once or self.chunk_pages, len(pages))
        if len(self._buffer) < at_once * size:
            self._buffer = np.empty(at_once * size, np.uint8)
        for low in range(0, len(pages), max(1, at_once)):
            some = pages[low : low + at_once]
            breaks = np.flatnonzero(np.diff(some.astype(np.int64)) != 1) + 1
            bounds = [0, *breaks.tolist(), len(some)]
            view = self._buffer.data
            for begin, end in pairwise(bounds):
                self._read(view[begin * size : end * size], int(some[begin]))
            yield some, self._buffer

    def overflowing(self, local: NDArray[np.uint8], size: int, page: int) -> bytearray:
        """A whole record of `size` bytes, of which only `local` is in its leaf; `page`: the first overflow page."""
        usable = self.header.usable
        need = -((len(local) - size) // (usable - 4))
        if need > self.header.page_count:
            raise self.corrupt(f"a row of {size} bytes is larger than the file")
        whole = bytearray(local.tobytes())
        content = bytearray(usable)
        while len(whole) < size:
            if page < 2 or page > self.header.page_count or page == self._lock_page:
                raise self.corrupt(f"a long row goes on in page {page}, which the file does not have")
            if self._seen[page]:
                raise self.corrupt(f"a long row goes on in page {page}, which is already in use")
            self._seen[page] = 1
            self._read(memoryview(content), page)
            page = int.from_bytes(content[:4], "big")
            whole += content[4 : 4 + size - len(whole)]
        if page:
            raise self.corrupt(f"a long row goes on in page {page}, after its end")
        return whole

    @property
    def _seen(self) -> NDArray[np.uint8]:
        """A mark for each page of the file that is known to be used; most tables are one page, which needs none."""
        if self._marks is None:
            self._marks = np.zeros(self.header.page_count + 1, np.uint8)
            self._marks[self._root] = 1
        return self._marks

    def corrupt(self, what: str) -> InputError:
        """The error for a table that is not as a table must be."""
        return InputError(self._path, found=f"table {self._table!r} is corrupt: {what}", advice=COPY)

    def corrupt_page(self, pages: NDArray[np.uint32]) -> InputError:
        """The error that a loop reported in `info`, for one of `pages`."""
        return self.corrupt(f"page {pages[self.info[1]]} {PROBLEMS[int(self.info[0])]}")

    def _below(
        self, level: NDArray[np.uint32], most: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        header = self.header
        room = min(self.chunk_pages, len(level)) * ((header.usable - 12) // 2 + 1)
        out, out_most = np.empty(room, np.uint32), np.empty(room, np.int64)
        children: list[NDArray[np.uint32]] = []
        most_of_children: list[NDArray[np.int64]] = []
        done = 0
        for pages, buffer in self.chunks(level):
            count = core.children(
                buffer,
                len(pages),
                header.page_size,
                header.usable,
                header.page_count,
                self._lock_page,
                self._seen,
                most[done:],
                out,
                out_most,
                self.info,
            )
            if count < 0:
                raise self.corrupt_page(pages)
            done += len(pages)
            children.append(out[:count].copy())
            most_of_children.append(out_most[:count].copy())
        return np.concatenate(children), np.concatenate(most_of_children)

    def _kind(self, page: int) -> int:
        one = bytearray(1)
        self._read(memoryview(one), page)
        return one[0]

    def _read(self, into: memoryview, page: int) -> None:
        at, done = (page - 1) * self.header.page_size, 0
        while done < len(into):
            try:
                got = os.preadv(self._descriptor, [into[done:]], at + done)
            except OSError as error:
                raise InputError(
                    self._path, found=f"cannot be read ({error_text(error)})", advice="check the disk it is on"
                ) from None
            if not got:
                raise self.corrupt(f"page {page} is past the end of the file")
            done += got
