"""The benchmark of the page makes its run without changing other files in the folder."""

import pytest

from alltrace.api import OpenRun
from benchmarks.ui import made_run


@pytest.mark.slow
def test_its_run_is_made_beside_what_lies_in_the_folder(tmp_path):
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "mine.txt").write_text("kept")
    run, _ = made_run(tmp_path, 18, 1, keep=False)
    assert [rank.rank for rank in OpenRun(run).ranks] == list(range(18))
    assert (tmp_path / "reports" / "mine.txt").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reports", "run-18-1", "run-18-1.json"]
    assert made_run(tmp_path, 18, 1, keep=True)[0] == run
