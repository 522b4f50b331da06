from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
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


def two_jobs():
    """Ranks 0 and 1, and ranks 2 and 3, with a communicator each."""
    made = simulated(1, ranks=4, steps=20)
    for rank, table in made.tables.items():
        name = f"job {rank // 2}"
        made.names.append(name)
        named = table_of(communicator=[name] * table.num_rows).column("communicator")
        made.tables[rank] = table.set_column(table.column_names.index("communicator"), "communicator", named)
    return made


def test_ranks_of_two_jobs_are_components(tmp_path):
    made = two_jobs()
    found = clocks(made, tmp_path, 100)
    assert [found[r].component for r in range(4)] == [0, 0, 1, 1]
    assert found[2].shift_ns == made.shifts_ns[2]
    assert [c.certainty for c in found.values()] == pytest.approx([1.0] * 4)
    for ranks in ([0, 1], [2, 3]):
        both = {r: made.tables[r] for r in ranks}
        assert np.quantile(apart(replace(made, tables=both), found), 0.95) < 6_000


def test_ranks_without_operations_have_no_clock(tmp_path):
    made = simulated(1, ranks=4, tensor=2, steps=20)
    for rank in (2, 3):
        made.tables[rank] = made.tables[rank].slice(0, 0)
    assert sorted(clocks(made, tmp_path, 100)) == [0, 1]


def test_members_without_a_clock_in_common_are_for_the_matching_of_the_whole(tmp_path):
    made = two_jobs()
    for rank in (2, 3):  # they have the first job's communicator, but nothing of it at the same time
        table = made.tables[rank]
        named = table.column("communicator").to_pylist()
        named[0] = made.tables[0].column("communicator")[0].as_py()
        made.tables[rank] = table.set_column(table.column_names.index("communicator"), "communicator", pa.array(named))
    assert clocks(made, tmp_path, 100) is None


def test_a_rank_whose_operations_nothing_names_is_for_the_matching_of_the_whole(tmp_path):
    made = simulated(1, ranks=4, steps=50)
    table = made.tables[3].slice(0, 2)
    nothing = pa.nulls(2, table.schema.field("communicator").type)
    made.tables[3] = table.set_column(table.column_names.index("communicator"), "communicator", nothing)
    assert clocks(made, tmp_path, 100) is None
