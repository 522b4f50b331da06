import html
import json

import pytest
from tests.charts.answers import HOSTILE, answer, every_kind, hostile, of_ranks
from tests.together import together

from alltrace.charts import draw, figure
from alltrace.recipes.base import Chart
from alltrace.trace.amounts import text

KINDS = every_kind()


@together("kind", KINDS)
def test_every_figure_is_plain_json_that_plotly_takes(kind):
    made = figure(draw(KINDS[kind], title=kind))
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    objects = pytest.importorskip("plotly.graph_objects")
    assert objects.Figure(made).to_plotly_json()["layout"]["title"]["text"] == kind


def test_a_bar_keeps_its_number_and_what_it_is():
    compute, idle = figure(draw(of_ranks(2)))["data"]
    assert (compute["x"], compute["y"], compute["hovertext"][1]) == ([0, 1], [1, 2], "rank 1: 2 ms")
    assert (idle["name"], idle["y"]) == ("idle", [2, 2])


@pytest.mark.parametrize("kind", ["bars", "scatter"])
def test_names_are_neither_markup_nor_formulas(kind):
    made = json.dumps(figure(draw(hostile(kind), title=HOSTILE[0])), ensure_ascii=False)
    assert not set("<>$") & set(made)
    found = figure(draw(hostile("bars")))["layout"]["yaxis"]["ticktext"]
    assert [html.unescape(t) for t in found] == [text(n) for n in HOSTILE]


def test_empty_figures_missing_cells_and_marks_of_sizes():
    some = of_ranks(1)
    made = figure(draw(type(some)(some.table.slice(0, 0), some.columns, chart=some.chart)))
    assert made["layout"]["annotations"][0]["text"] == "nothing to show"
    (heat,) = figure(draw(KINDS["heatmap"]))["data"]
    assert heat["z"] == [[10, 20, 30], [11, 21, None]]
    assert heat["x"] == [0.5, 1.5, 2.5]
    columns = {"bytes": ("bytes", [4, 2**20]), "busbw_gb_per_s": ("GB/s", [0.1, 20.0])}
    axis = figure(draw(answer(Chart("lines", "bytes", ("busbw_gb_per_s",), log_x=True), columns)))["layout"]["xaxis"]
    assert (axis["type"], axis["tickvals"][:2], axis["ticktext"][:2]) == ("log", [4.0, 16.0], ["4 B", "16 B"])
    assert "dtick" not in axis
