from __future__ import annotations

import numpy as np
import pytest
from tests.align.collectives import pipeline, simulated, table_of
from tests.align.test_windowed_matching import placed

from alltrace.align import clocks_along_communicators as module
from alltrace.align.clocks_along_communicators import clocks_along_communicators
from alltrace.align.matching import match
from alltrace.align.spilled_operations import SpilledOperations


def clocks(made, folder, most):
    spilled = SpilledOperations(folder / "operations", len(made.tables), most)
    for rank in sorted(made.tables):
        spilled.add(rank, made.tables[rank])
    found = clocks_along_communicators(spilled, made.texts, placed(made), most)
    spilled.remove()
    return found


def apart(made, found):
    """How far the ends of each true instance are apart with these clocks, ns."""
    ends: dict[int, list[float]] = {}
    for rank, table in made.tables.items():
        for end, instance in zip(table.column("end").to_numpy().tolist(), made.truth[rank].tolist(), strict=True):
            ends.setdefault(instance, []).append(found[rank].common(end))
    return np.array([max(e) - min(e) for e in ends.values()])


@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("most", [300, 10**6])
def test_all_ranks_are_on_one_clock(tmp_path, tensor, most):
    made = simulated(3, ranks=16, tensor=tensor, steps=40, offset_ns=0.5e9, drift=50e-6)
    found = clocks(made, tmp_path, most)
    assert sorted(found) == list(range(16))
    assert np.quantile(apart(made, found), 0.95) < 6_000  # recorded ends scatter by 2,000
    assert max(c.rate for c in found.values()) - min(c.rate for c in found.values()) > 30e-6


def test_stages_that_only_meet_their_neighbours(tmp_path):
    made = pipeline(5, stages=6)
    found = clocks(made, tmp_path, 200)
    assert np.quantile(apart(made, found), 0.9) < 20_000


def test_at_most_so_many_operations_are_matched_at_once(tmp_path, monkeypatch):
    made = simulated(2, ranks=12, steps=30)
    seen = []

    def counted(tables, *args):
        seen.append(sum(t.num_rows for t in tables.values()))
        return match(tables, *args)

    monkeypatch.setattr(module, "match", counted)
    assert len(clocks(made, tmp_path, 500)) == 12
    assert len(seen) == 4
    assert max(seen) <= 500


def test_ranks_of_two_jobs_have_no_clock_in_common(tmp_path):
    made = simulated(1, ranks=4, tensor=2, steps=20)
    for rank in (2, 3):
        made.tables[rank] = made.tables[rank].slice(0, 0)
    assert sorted(clocks(made, tmp_path, 100)) == [0, 1]
    other = simulated(1, ranks=4, steps=20)
    for rank, table in other.tables.items():
        name = f"job {rank // 2}"
        other.names.append(name)
        named = table_of(communicator=[name] * table.num_rows).column("communicator")
        other.tables[rank] = table.set_column(table.column_names.index("communicator"), "communicator", named)
    assert clocks(other, tmp_path, 100) is None
