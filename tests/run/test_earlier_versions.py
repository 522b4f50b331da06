"""A run of an earlier version is answered by the command that imports its reports again, and is made again by it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.run.verify import verify
from alltrace.trace.errors import InputError
from alltrace.trace.schema import FORMAT_VERSION

EARLIER = sorted((Path(__file__).parent / "earlier").iterdir())
"""Runs that released versions made of `alltrace synth tiny -o reports`, by version."""


@pytest.fixture(params=EARLIER, ids=lambda path: path.name)
def earlier(request, tmp_path):
    """A copy of the run of a version."""
    return Path(shutil.copytree(request.param, tmp_path / "run"))


def test_a_run_of_an_earlier_version_is_answered_by_the_command_that_imports_it_again(earlier):
    said = (
        rf"format version \d; expected version {FORMAT_VERSION}; import the reports again: `alltrace import reports -o"
        rf" {earlier}`"
    )
    before = {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}
    for opened in (Run, verify):
        with pytest.raises(InputError, match=said):
            opened(earlier)
    assert {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()} == before


def test_importing_again_leaves_nothing_of_an_earlier_version(earlier, reports, tiny_run):
    import_reports([str(reports)], earlier, jobs=1)
    assert verify(earlier) == verify(tiny_run)
    names = [{str(path.relative_to(run)) for path in run.rglob("*")} for run in (earlier, tiny_run)]
    assert names[0] == names[1]
    assert Run(earlier).rank(0).table("kernels").equals(Run(tiny_run).rank(0).table("kernels"))
