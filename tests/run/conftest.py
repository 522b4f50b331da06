"""Simulated reports and the run made from them, written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alltrace.run.importer import import_reports
from alltrace.synth import write_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def reports(tmp_path_factory) -> Path:
    """The two reports of the scenario `tiny`; not to be changed."""
    folder = tmp_path_factory.mktemp("reports")
    write_run("tiny", folder, ideal=True)
    return folder


@pytest.fixture(scope="session")
def tiny_run(reports, tmp_path_factory) -> Path:
    """The run directory made from `reports`; not to be changed."""
    run = tmp_path_factory.mktemp("run") / "run"
    import_reports([str(reports)], run, jobs=1)
    return run
