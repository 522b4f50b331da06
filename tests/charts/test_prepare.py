import pyarrow as pa
import pytest
from tests.charts.answers import answer, every_kind, hostile, of_ranks
from tests.together import together

from alltrace.charts import draw
from alltrace.charts.words import size, sizes
from alltrace.recipes.base import Answer, Chart
from alltrace.trace.columns import Column
from alltrace.trace.errors import UsageError


def test_bars_have_units_names_and_room():
    drawing = draw(of_ranks(3), title="breakdown")
    assert (drawing.title, drawing.x.title, drawing.y.title) == ("breakdown", "rank", "time [ms]")
    assert [(s.name, s.mark, s.x, s.y) for s in drawing.series] == [
        ("compute", "stacked", (0, 1, 2), (1, 2, 3)),
        ("idle", "stacked", (0, 1, 2), (2, 2, 2)),
    ]
    drawing = draw(of_ranks(3000))
    assert len(drawing.series[0].x) == 1000
    assert drawing.series[0].y[:2] == (0.002, 0.005)  # the means of 1, 2, 3 and of 4, 5, 6 ms, in s
    assert drawing.notes == ("a bar is the mean of 3 neighbours",)
    assert draw(of_ranks(1024)).notes == ()
    columns = {"rank": (None, [0, 0, 1]), "gpu": (None, ["A", "B", "A"]), "busy_ns": ("ns", [1, 2, 3])}
    drawing = draw(answer(Chart("bars", "rank", ("busy_ns",), detail="gpu"), columns))
    assert drawing.x.labels == ("0 · A", "0 · B", "1")
    drawing = draw(answer(Chart("bars", "gpu", ("busy_ns",)), columns))
    assert drawing.x.labels == ("A", "B", "A (2)")


def test_the_first_things_are_shown_and_groups_summed():
    columns = {"name": (None, [f"kernel {i}" for i in range(100)]), "total_ns": ("ns", list(range(100, 0, -1)))}
    drawing = draw(answer(Chart("bars", "name", ("total_ns",)), columns))
    assert len(drawing.series[0].x) == len(drawing.x.labels) == 40
    assert drawing.lying
    assert drawing.notes == ("the first 40 of 100",)
    rows = [(r, f"op{g}", g + 1) for r in (0, 1) for g in range(12)]
    columns = {
        "rank": (None, [r[0] for r in rows]),
        "op": (None, [r[1] for r in rows]),
        "calls": (None, [r[2] for r in rows]),
    }
    drawing = draw(answer(Chart("stacked_bars", "rank", ("calls",), "op"), columns))
    assert [s.name for s in drawing.series] == [*(f"op{g}" for g in range(3, 12)), "other"]
    assert drawing.series[-1].y == (6, 6)  # 1 + 2 + 3 of each rank


@pytest.mark.parametrize("kind", ["stacked_bars", "lines", "scatter"])
def test_names_with_digits_that_are_no_numbers_are_sorted_too(kind):
    names = ["b\u00b2", "\u00b2", "a10", "a9", "\u0663"]  # superscripts, and a digit that is not ASCII
    columns = {"rank": (None, [0] * 5), "op": (None, names), "calls": (None, [1] * 5)}
    drawing = draw(answer(Chart(kind, "rank", ("calls",), "op"), columns))
    assert [s.name.removeprefix("op ") for s in drawing.series] == ["a9", "a10", "b\u00b2", "\u00b2", "\u0663"]


def test_histograms_boxes_and_lines():
    drawing = draw(every_kind()["histogram"])
    assert (drawing.x.title, drawing.x.labels) == ("size, from", ("0 bytes", "1 kB", "1 MB"))
    assert {s.name: s.y for s in drawing.series} == {"a": (1, 2, 0), "b": (0, 3, 4)}
    (box,) = draw(every_kind()["box"]).series
    assert (box.ends[1], box.low[1], box.y[1], box.high[1]) == ((2, 18), 4, 6, 8)
    drawing = draw(every_kind()["lines"])
    assert [(s.name, s.y) for s in drawing.series] == [("rank 0", (10, 20, 30)), ("rank 1", (11, 21, None))]
    rows = [(s, r, 100 + r % 3 + (500 if r == 7 else 0)) for r in range(50) for s in range(3)]
    columns = {
        n: (u, [r[i] for r in rows]) for i, (n, u) in enumerate((("step", None), ("rank", None), ("time_ns", "ns")))
    }
    drawing = draw(answer(Chart("lines", "step", ("time_ns",), "rank"), columns))
    assert [s.name for s in drawing.series] == ["all", "middle half", "median", "rank 7"]
    band, middle, median, _ = drawing.series
    assert (band.low[0], middle.low[0], median.y[0], middle.high[0], band.high[0]) == (100, 100, 101, 102, 601)
    assert drawing.notes == ("50 lines as a band",)


def test_points_are_drawn_once_and_above_zero():
    columns = {"start_ns": ("ns", [i % 50 for i in range(9000)]), "duration_ns": ("ns", [i % 2 for i in range(9000)])}
    drawing = draw(answer(Chart("scatter", "start_ns", ("duration_ns",)), columns))
    assert len(drawing.series[0].x) == 50
    assert drawing.notes == ("50 of 9,000 points, the others are hidden by them",)
    columns = {"bytes": ("bytes", [0, 10, 100]), "time_ns": ("ns", [1, 0, 3])}
    (points,) = draw(answer(Chart("scatter", "bytes", ("time_ns",), log_x=True, log_y=True), columns)).series
    assert (points.x, points.y) == ((100,), (3,))


def test_a_heat_map_has_a_row_for_each_rank_in_order_and_says_what_it_put_together():
    heat = draw(every_kind()["heatmap"]).heat
    assert (heat.rows, heat.edges) == (("0", "1"), (0, 1, 2, 3))
    assert heat.values[0] == (10, 20, 30)
    assert heat.values[1][:2] == (11, 21)
    assert heat.values[1][2] != heat.values[1][2]
    ranks = list(range(2100))
    columns = {
        "rank": (None, ranks),
        "start_ns": ("ns", [0] * 2100),
        "busy_percent": ("%", [r % 3 * 50.0 for r in ranks]),
    }
    drawing = draw(answer(Chart("heatmap", "start_ns", ("busy_percent",), "rank"), columns))
    assert (len(drawing.heat.rows), drawing.heat.low, drawing.heat.high) == (700, 0, 100)
    assert {v for row in drawing.heat.values for v in row} == {50.0}
    assert drawing.notes == ("a row is the mean of 3 neighbours",)


@pytest.mark.parametrize(("times", "edges"), [([0, None, 100], (0, 100, 200)), ([None, None, None], None)])
def test_a_cell_without_a_time_has_no_place_in_a_heat_map(times, edges):
    cells = pa.array(times, pa.int64())
    columns = {"rank": (None, [0, 1, 0]), "start_ns": ("ns", cells), "busy_percent": ("%", [1.0, 2.0, 3.0])}
    drawing = draw(answer(Chart("heatmap", "start_ns", ("busy_percent",), "rank"), columns))
    assert drawing.empty is (edges is None)
    if edges is not None:
        assert (drawing.heat.edges, drawing.heat.rows, drawing.heat.values[0]) == (edges, ("0", "1"), (1, 3))


def test_ceilings_meet_at_the_ridge_and_share_a_line():
    dram, fp16, *points = draw(every_kind()["roofline"]).series
    assert (dram.x[1], dram.y[1]) == (20, 60)
    assert (fp16.x[0], fp16.y) == (20, (60, 60))
    assert [(p.name, p.x, p.y) for p in points] == [("gemm", (8,), (30,)), ("gemv", (0.5,), (1,))]
    ceilings = [
        {"name": n, "kind": "compute", "value": v} for n, v in (("A", 60.0), ("C", 61.0), ("B", 60.0), ("D", 90.0))
    ]
    given = every_kind()["roofline"]
    lines = [s for s in draw(given._replace(extra={"ceilings": ceilings})).series if s.tag]
    assert [(s.tag, s.y) for s in lines] == [("A, B, C 61", (61, 61)), ("D 90", (90, 90))]


def test_answers_without_rows_or_a_picture_and_printable_names():
    some = of_ranks(1)
    assert draw(type(some)(some.table.slice(0, 0), some.columns, chart=some.chart)).empty
    assert not draw(some).empty
    with pytest.raises(UsageError, match="has no chart"):
        draw(type(some)(some.table, some.columns))
    with pytest.raises(UsageError, match="needs the column 'gone'"):
        draw(some, Chart("bars", "rank", ("gone",)))
    assert all(t.isprintable() for t in draw(hostile()).x.labels)


@pytest.mark.parametrize(
    ("given", "marks"),
    [
        ([1, 100], ["1 B", "2 B", "4 B", "8 B", "16 B", "32 B", "64 B", "128 B"]),
        ([4, 2**30], ["4 B", "16 B", "64 B", "256 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB",
            "16 MiB",
                      "64 MiB", "256 MiB", "1 GiB"]),
        ([8, 2**60], ["1 B", "32 B", "1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB", "32 GiB", "1 TiB", "32 TiB",
            "1 PiB", "32 PiB",
                      "1 EiB"]),
        ([0, -5, float("inf"), float("nan")], []),
        ([4096], ["4 KiB"]),
    ],
)  # fmt: skip
def test_sizes_have_marks_with_binary_prefixes(given, marks):
    found = sizes(given)
    assert [name for _, name in found] == marks
    powers = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50, "EiB": 60}
    assert [place for place, _ in found] == [float(n.split()[0]) * 2 ** powers[n.split()[1]] for n in marks]


def test_a_logarithmic_axis_of_sizes_keeps_bytes():
    table = pa.table({"bytes": [4, 2**20, 3 * 2**30], "busbw_gb_per_s": [0.1, 20.0, 40.0], "time_ns": [10, 20, 30]})
    columns = (
        Column("bytes", "any", "bytes", "."),
        Column("busbw_gb_per_s", "any", "GB/s", "."),
        Column("time_ns", "any", "ns", "."),
    )
    for kind in ("scatter", "lines"):
        drawing = draw(Answer(table, columns, chart=Chart(kind, "bytes", ("busbw_gb_per_s",), log_x=True)))
        assert drawing.series[0].x == (4.0, 2.0**20, 3 * 2.0**30)
        assert (drawing.x.unit, drawing.x.ticks[0]) == ("bytes", (4.0, "4 B"))
        assert drawing.y.ticks == ()
    drawing = draw(Answer(table, columns, chart=Chart("scatter", "time_ns", ("bytes",), log_y=True)))
    assert (drawing.y.ticks[-1], drawing.series[0].y[1]) == ((2.0**32, "4 GiB"), 2.0**20)
    assert draw(Answer(table, columns, chart=Chart("lines", "bytes", ("busbw_gb_per_s",)))).x.unit == "GB"


@together(
    ("given", "called"), [(0, "0 B"), (1023, "1023 B"), (65536, "64 KiB"), (3 * 2**19, "1.5 MiB"), (2**70, "1024 EiB")]
)
def test_a_size_is_called_by_its_binary_prefix(given, called):
    assert size(given) == called


def test_an_axis_of_several_columns_without_a_unit_has_a_title_too():
    columns = {"rank": (None, [0]), "balance": (None, [0.5]), "overlap": (None, [0.9])}
    drawing = draw(answer(Chart("bars", "rank", ("balance", "overlap")), columns))
    assert [drawing.x.title, drawing.y.title] == ["rank", "value"]
