import struct
import xml.etree.ElementTree as ET
from importlib import util

import pytest
from tests.charts.answers import HOSTILE, answer, every_kind, hostile, of_ranks
from tests.together import together

from alltrace.charts import draw, picture_bytes
from alltrace.charts.files import check_picture
from alltrace.recipes.base import Chart
from alltrace.trace.amounts import shortened, text
from alltrace.trace.errors import UsageError

KINDS = every_kind()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_into_a_png(kind):
    made = picture_bytes(draw(KINDS[kind], title=kind), dpi=60)
    assert made.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", made[16:24])
    assert width == 570
    assert 100 < height < 700


@pytest.mark.parametrize("kind", ["bars", "scatter"])
def test_names_are_text_in_an_svg(kind):
    made = picture_bytes(draw(hostile(kind)), "svg").decode()
    tree = ET.fromstring(made)
    words = {"".join(t.itertext()).strip() for t in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert {shortened(text(n), 44) for n in HOSTILE} <= words
    assert "<img" not in made
    assert "<script" not in made


def test_equal_large_and_empty_drawings():
    assert picture_bytes(draw(of_ranks(4)), "svg") == picture_bytes(draw(of_ranks(4)), "svg")
    made = picture_bytes(draw(of_ranks(1024)), dpi=60)
    assert struct.unpack(">II", made[16:24]) == struct.unpack(">II", picture_bytes(draw(of_ranks(4)), dpi=60)[16:24])
    some = of_ranks(1)
    made = picture_bytes(draw(type(some)(some.table.slice(0, 0), some.columns, chart=some.chart)), "svg")
    assert b"nothing to show" in made
    columns = {"rank": (None, [0, 1]), "a_percent": ("%", [float("nan")] * 2), "b_percent": ("%", [float("nan")] * 2)}
    made = picture_bytes(draw(answer(Chart("bars", "rank", ("a_percent", "b_percent")), columns)), "svg")
    assert b"nothing to show" in made


@together("names", [["_Z4gemmv", "a", "z"], ["_Z4gemmv", "_z"]])
@together("kind", ["stacked_bars", "lines", "scatter"])
def test_names_with_an_underscore_in_front_are_in_the_legend(kind, names):
    columns = {"rank": (None, [0] * len(names)), "op": (None, names), "calls": (None, [1] * len(names))}
    tree = ET.fromstring(picture_bytes(draw(answer(Chart(kind, "rank", ("calls",), "op"), columns)), "svg"))
    legend = next(g for g in tree.iter("{http://www.w3.org/2000/svg}g") if g.get("id", "").startswith("legend"))
    found = ["".join(t.itertext()).strip() for t in legend.iter("{http://www.w3.org/2000/svg}text")]
    assert found == names


def test_what_cannot_be_drawn_is_refused_before_the_work(tmp_path, monkeypatch):
    for name in ("a.jpg", "a", "png"):
        with pytest.raises(UsageError, match=r"ends in \.png or \.svg"):
            check_picture(tmp_path / name)
    check_picture(tmp_path / "a.SVG")
    monkeypatch.setattr(
        "alltrace.charts.files.find_spec", lambda name: None if name == "matplotlib" else util.find_spec(name)
    )
    with pytest.raises(UsageError, match=r"alltrace\[pictures\]"):
        check_picture(tmp_path / "a.png")
    with pytest.raises(UsageError, match=r"alltrace\[pictures\]"):
        picture_bytes(draw(of_ranks(1)))


@together(
    ("values", "labels"), [((1.9, 6.1), {"2", "3", "5"}), ((5.0, 9.0), {"5.4", "6.6"}), ((2.0, 9e5), {"10", "1000"})]
)
def test_a_logarithmic_axis_has_labels(values, labels):
    import matplotlib.pyplot as plt

    from alltrace.charts import files
    from alltrace.charts.drawing import Axis, Drawing, Series

    figure, axes = plt.subplots()
    axes.plot([0, 1], values)
    drawing = Drawing("t", Axis("x"), Axis("y", log=True), (Series("s", "lines", (0.0, 1.0), values, "#000000"),))
    files._scales(drawing, axes, axes.xaxis, axes.yaxis)
    figure.canvas.draw()
    low, high = axes.get_ylim()
    shown = [t.get_text() for t in axes.get_yticklabels() if low <= t.get_position()[1] <= high]
    plt.close(figure)
    assert labels <= set(shown)
    assert "20" not in shown


def test_sizes_stand_at_their_marks():
    columns = {"bytes": ("bytes", [4, 2**20]), "busbw_gb_per_s": ("GB/s", [0.1, 20.0])}
    drawing = draw(answer(Chart("lines", "bytes", ("busbw_gb_per_s",), log_x=True), columns))
    shown = picture_bytes(drawing, "svg").decode()
    assert all(f">{n}<" in shown for n in ("4 B", "1 KiB", "1 MiB"))
    assert "1e-06" not in shown
