"""Reports of Nsight Compute and pages that it printed, damaged: launches with all their detail, listings and every
view."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from pkgutil import resolve_name

from alltrace.readers.ncu.listing import Listings
from alltrace.readers.ncu.read import read_report
from alltrace.recipes.ncu import VIEWS, compare, weigh
from alltrace.recipes.ncu.tables import Profiled
from tests.readers.ncu.test_damage import MAIN
from tests.readers.ncu.test_detail import REPORT as DETAILED
from tests.readers.ncu.test_read import REPORT
from tests.readers.ncu.test_text import DETAILS, PLAIN, RAW

_FOLDER = Path(tempfile.gettempdir())
_PLAIN = b"plain"
"""What an input that is read without detail says first."""


def corpus() -> list[bytes]:
    """Reports with and without detail, and the pages."""
    detailed = [DETAILED, *(text.encode() for text in (RAW, DETAILS, PLAIN, MAIN))]
    return [_PLAIN + b"\n" + REPORT, *(b"detail\n" + data for data in detailed)]


def run(data: bytes) -> None:
    """The launches in the file, and the answer of each view."""
    path = _FOLDER / f"fuzz-{os.getpid()}.ncu-rep"
    head, _, body = data.partition(b"\n")
    path.write_bytes(body)
    try:
        report = read_report(path, detail=head != _PLAIN)
        for launch in report.launches:
            for name in launch.instances:
                assert len(launch.instances[name])
        listings = Listings()
        profiled = [Profiled("x", its, listings.of(its, report.codes.get(its.code))) for its in report.launches]
        for view in VIEWS.values():
            resolve_name(view).answer(profiled, ())
        compare.answer(profiled, [profiled], ())
        weigh.answer(profiled, [], ())
    finally:
        path.unlink()
