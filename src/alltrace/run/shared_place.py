"""What workers of a cluster must see before they begin: the place they write to, and the reports they read."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from alltrace.engine.tasks import remote, sharing
from alltrace.run.host_paths import host_path

_MOST_LOOKED_AT = 256


@contextmanager
def shared_place(place: Path) -> Iterator[Path | None]:
    """A block in which workers of a cluster write to a place: a new file, yielded, shows that they see the same place.

    None if the work is done on this machine, or no file can be made. Raises `UsageError`: a worker does not see it.
    """
    if not remote():
        yield None
        return
    folder = next(p for p in (place.absolute(), *place.absolute().parents) if p.is_dir())
    file = folder / f".alltrace-{uuid.uuid4().hex}.tmp"
    try:
        file.touch(exist_ok=False)
    except OSError:  # the writer to the place reports the reason
        with sharing([folder]):
            yield None
        return
    try:
        with sharing([file]):
            yield file
    finally:
        with suppress(OSError):
            file.unlink()


@contextmanager
def shared_reports(reports: Sequence[Path]) -> Iterator[None]:
    """A block in which workers read reports; one per folder is checked. Raises `UsageError`: it is not seen."""
    if not remote():
        yield
        return
    of_folder = {path.parent: path for path in reports if host_path(str(path)).host is None}
    with sharing([path for path in list(of_folder.values())[:_MOST_LOOKED_AT] if path.exists()]):
        yield
