"""What is drawn of a rank comes from one reading of each of its tables."""

from alltrace.align.store import aligned
from alltrace.tiles.build import pyramid
from alltrace.tiles.rank_tiles import shared_tables, summary_of, tracks_of


def test_each_table_is_read_once_and_forgotten_by_the_end(run):
    aligned(run)
    grid = pyramid(run, jobs=1).grid
    rank = run.rank(0)
    tables = shared_tables(rank)
    assert summary_of(tables, grid)["compute"].sum() == 50_000
    assert tables.reads == {"kernels": 1, "copies": 1, "graphs": 1}
    keys = [track.key for track in tracks_of(rank, tables, grid, grid.start_ns + grid.span_ns)]
    assert {"gpu/0/0/7", "ranges/0", "api/0"} <= set(keys)
    assert set(tables.reads.values()) == {1}
    tables.table("kernels", ["start"])
    assert tables.reads["kernels"] == 2
