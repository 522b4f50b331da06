from __future__ import annotations

import alltrace
from alltrace.synth import write_run


def test_reports_are_kept_in_the_folder_given_as_text_or_path(tmp_path):
    write_run("tiny", tmp_path / "reports")
    cache = tmp_path / "cache"
    ranks = [len(alltrace.open(tmp_path / "reports", cache_dir=given).ranks) for given in (str(cache), cache)]
    assert ranks == [2, 2]
    (run,) = [path.parent for path in cache.rglob("manifest.json")]
    assert len(alltrace.open(str(run)).ranks) == 2
