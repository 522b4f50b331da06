from tests.together import together

from alltrace.tiles.grid import MOST_SPAN_NS, TILE_BINS, Grid, grid_of, level_for, power_of_two


def test_the_level_of_a_span_is_the_finest_that_fits():
    assert [level_for(span, 64) for span in (0, 1, 64, 65, 128, 129)] == [0, 0, 0, 1, 1, 2]
    assert level_for(MOST_SPAN_NS, 1) == 62


@together(("number", "found"), [(0.1, 64), (64, 64), (127, 64), (128, 128), (1e9, 4096)])
def test_powers_of_two_stay_in_their_bounds(number, found):
    assert power_of_two(number, 64, 4096) == found


def test_bins_of_a_rank_and_edges_of_the_grid():
    assert grid_of((-10, 1_000_000 - 10), 1, 16 * 256).bins(grid_of((-10, 1_000_000 - 10), 1, 16 * 256).level) <= 256
    many = grid_of((0, 10**12), 8192, 8192 * 10**6)
    assert 512 < many.bins(many.level) <= 1024
    assert grid_of((0, 0), 0, 0) == Grid(0, 1, 0)
    grid = Grid(-100, 1000, 4)
    assert grid.bins(4) == 63
    assert grid.edges(2, 2, 4).tolist() == [-68, -52, -36]
    assert grid.tile_span(0, 1) == (-100 + TILE_BINS, -100 + 2 * TILE_BINS)
    assert grid.edges(5, 1, 62).tolist() == [MOST_SPAN_NS - 100] * 2
    for level in (0, 20, 54, 62):
        for first in (0, 1, 1 << 30, 1 << 62, 1 << 71):
            edges = grid.edges(first, TILE_BINS, level).tolist()
            assert edges == [min(first + n << level, MOST_SPAN_NS) - 100 for n in range(TILE_BINS + 1)]
    assert grid.tile_span(62, 7) == (MOST_SPAN_NS - 100, MOST_SPAN_NS - 100)
    assert grid_of((-(1 << 62), (1 << 62) - 1), 1, 10).span_ns == MOST_SPAN_NS
