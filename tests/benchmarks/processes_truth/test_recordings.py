"""The first finding about recorded real processes, against what was planted in them.

`recordings/` holds what `python -m benchmarks.processes_truth --pack` recorded: 60 steps of four processes, each with
the cause.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.processes_truth.causes import CAUSES, RANKS
from benchmarks.processes_truth.packing import pack, unpack
from benchmarks.processes_truth.score import score

FOLDER = Path(__file__).with_name("recordings")
RECORDINGS = sorted(f.name.removesuffix(".tar.xz") for f in FOLDER.glob("*.tar.xz"))
_MOST_BYTES = 600_000


def test_recordings_are_small_and_of_known_causes():
    names = {c.name for c in CAUSES}
    assert len(RECORDINGS) == 5
    assert all(r.partition("-")[2] in names for r in RECORDINGS)
    assert all((FOLDER / f"{r}.tar.xz").stat().st_size <= _MOST_BYTES for r in RECORDINGS)


@pytest.fixture(scope="module", params=RECORDINGS)
def scored(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    program, _, name = request.param.partition("-")
    gain = unpack(FOLDER / f"{request.param}.tar.xz", folder / "reports")
    return score(program, next(c for c in CAUSES if c.name == name), gain, folder / "reports", folder / "cache")


def test_the_first_finding_names_the_culprits(scored):
    assert scored.gain.share > 0.05
    assert scored.ranks == (scored.cause.culprits or tuple(range(RANKS))), scored.row()


def test_the_first_finding_has_the_kind_of_what_was_planted(scored):
    assert scored.kind_right, scored.row()


def test_a_packed_recording_is_the_same_without_hosts(tmp_path):
    recording = RECORDINGS[0]
    gain = unpack(FOLDER / f"{recording}.tar.xz", tmp_path / "first")
    again = tmp_path / "again.tar.xz"
    pack(tmp_path / "first", gain, again)
    assert unpack(again, tmp_path / "second") == gain
    assert sorted(f.name for f in (tmp_path / "second").iterdir()) == sorted(
        f.name for f in (tmp_path / "first").iterdir()
    )
