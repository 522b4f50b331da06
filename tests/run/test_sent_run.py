"""A run that goes to other processes."""

from __future__ import annotations

import pickle

import pytest
from tests.making import kernel, make_run

from alltrace.align.store import aligned
from alltrace.run.store import PartialRun, Run, SentRun

RANKS = {r: {"kernels": [kernel(10 * r, 40 + r)]} for r in (0, 3)}


def test_here_it_is_the_run_itself_and_there_it_is_opened_once(tmp_path):
    run = make_run(tmp_path / "run", RANKS)
    sent = SentRun(run)
    assert sent.run is run
    there = pickle.loads(pickle.dumps(sent))
    assert there.run is not run
    assert there.run is there.run
    assert there.run.manifest == run.manifest
    assert there.run.overlay is None


def test_it_is_read_there_by_the_same_alignment(tmp_path):
    run = make_run(tmp_path / "run", RANKS)
    aligned(run)
    there = pickle.loads(pickle.dumps(SentRun(run))).run
    assert there.overlay.folder == run.overlay.folder
    assert there.manifest == run.manifest


@pytest.mark.parametrize("kind", [Run, PartialRun])
def test_it_is_of_the_same_kind_and_little_is_sent(tmp_path, kind):
    make_run(tmp_path / "run", dict.fromkeys(range(50), RANKS[0]))
    whole = pickle.dumps(SentRun(kind(tmp_path / "run")))
    assert type(pickle.loads(whole).run) is kind
    assert len(whole) < 1_000
