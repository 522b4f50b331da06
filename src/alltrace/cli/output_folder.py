"""A folder that answers are written to: on this machine, or at a URL that fsspec opens."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alltrace.trace.errors import InputError, UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alltrace.recipes.base import Answer

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


def is_folder(place: str) -> bool:
    """Whether an output place names a folder: a URL, a name that ends with a slash, or a folder that is there."""
    return bool(_URL.match(place)) or place.endswith(("/", "\\")) or Path(place).is_dir()


# `place`: A path or a URL. `kinds`: The forms of each table: `csv`, `json`, `md`, `parquet`. `csv_safe`: CSV has no
# cells that a spreadsheet takes for formulas. Raises `UsageError`: nothing can be written there.
class Folder:
    """Where tables are written, each file completely or not at all."""

    def __init__(self, place: str, kinds: tuple[str, ...], *, csv_safe: bool = False) -> None:
        self.kinds: tuple[str, ...] = kinds
        self._csv_safe = csv_safe
        self.place = place
        self._system: Any = None
        self._local = Path(place)
        if _URL.match(place):
            self._open(place)
        elif not place or (self._local.exists() and not self._local.is_dir()):
            raise UsageError(f"-o is {printable(place)!r}; expected a folder")

    def _open(self, place: str) -> None:
        import fsspec

        try:
            self._system, self._root = fsspec.core.url_to_fs(place)
        except (ImportError, ValueError, OSError) as error:
            raise UsageError(
                f"-o is {printable(place)!r}, which cannot be opened ({printable(str(error))}); expected a URL that"
                " fsspec knows"
            ) from error

    def write(
        self, verb: str, answer: Answer, facts: Mapping[str, int], *, within: str = "", main: str | None = None
    ) -> list[dict[str, Any]]:
        """Write every table of `answer`; returns `table`, `file`, `rows` and `columns` of each file."""
        # `main`: The name of the main table's file, with which the names of the others begin; None for the tables' own
        # names.
        from alltrace.cli.output import save_tables

        written = []
        for name, table in answer.all_tables().items():
            stem = name if main is None else main if name == answer.name else f"{main}-{name}"
            files = {
                k: "/".join(_SAFE.sub("_", p) for p in (*([within] if within else []), f"{stem}.{k}"))
                for k in self.kinds
            }
            with ExitStack() as places:
                # all forms at once: the rows may be there once only
                paths = {kind: places.enter_context(self._place(file)) for kind, file in files.items()}
                rows = save_tables(verb, answer.only(name), facts, paths, csv_safe=self._csv_safe)
            columns = [{"name": c.name, "unit": c.unit} for c in table.columns]
            written += [{"table": name, "file": file, "rows": rows, "columns": columns} for file in files.values()]
        return written

    def write_text(self, file: str, text: str) -> None:
        """Write a text file. Raises `InputError`: it cannot be written."""
        with self._place(file) as path:
            _replace(path, text)

    @contextmanager
    def _place(self, file: str) -> Iterator[Path]:
        """Where to write a file of the folder; uploaded at the end of the block if it is remote."""
        if self._system is None:
            path = self._local / file
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError.cannot_be("created", path.parent, error) from error
            yield path
            return
        from alltrace.trace.scratch import scratch_folder

        with scratch_folder("alltrace-draft-") as place:
            draft = Path(place) / "draft"
            yield draft
            target = f"{self._root.rstrip('/')}/{file}"
            try:
                self._system.makedirs(target.rpartition("/")[0], exist_ok=True)
                # an object appears when it is whole
                self._system.put_file(str(draft), target)
            except Exception as error:  # file systems raise their own errors
                raise InputError(
                    f"{self.place.rstrip('/')}/{file}",
                    found=f"it cannot be written ({type(error).__name__}: {printable(str(error))})",
                ) from error


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.tmp")
    try:
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")
        draft.replace(path)
    except OSError as error:
        raise InputError.cannot_be("written", path, error) from error
    finally:
        draft.unlink(missing_ok=True)
