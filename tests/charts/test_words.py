import re
from importlib.resources import files
from itertools import pairwise

import pytest
from tests.charts.color_vision import SEEN_BY, ciede2000, lab
from tests.together import together

from alltrace.charts.words import DARK, NEIGHBOURS, PALETTE, SEVERITIES, color
from alltrace.tiles.tracks import CLASSES

LEAST = 12
ROWS = [
    *((row, PALETTE) for row in NEIGHBOURS),
    *((row, PALETTE | DARK) for row in NEIGHBOURS),
    (tuple(SEVERITIES), SEVERITIES),
]


@together(
    ("one", "other", "apart"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, -1.0, 2.0), (50.0, 0.0, 0.0), 2.3669),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0009), 7.1792),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_difference_of_colours_is_that_of_the_paper(one, other, apart):
    assert ciede2000(one, other) == pytest.approx(apart, abs=5e-5)
    assert ciede2000(other, one) == pytest.approx(apart, abs=5e-5)


@together("eyes", SEEN_BY)
def test_classes_side_by_side_are_told_apart(eyes):
    for row, colors in ROWS:
        for one, other in pairwise(row):
            apart = ciede2000(lab(colors[one], eyes), lab(colors[other], eyes))
            assert apart >= LEAST, f"{one} and {other} for {eyes}: {apart:.1f}"


def test_the_page_and_every_class_have_the_colours():
    script = files("alltrace.ui").joinpath("static/palette.js").read_text()
    tables = re.findall(r"export const (\w+) = \{(.*?)\n\}", script, re.DOTALL)
    found = {
        name: dict(re.findall(r'^  "?([a-z ]+)"?: "(#[0-9a-f]{6})",$', body, re.MULTILINE)) for name, body in tables
    }
    assert found == {"PALETTE": PALETTE, "DARK": DARK}
    assert {c for c in CLASSES if c not in ("range", "collective")} <= set(PALETTE)
    assert color("compute", 3) == PALETTE["compute"]
    assert color("exposed copy", 0) == PALETTE["exposed copy"]
    assert color("high", 0) == SEVERITIES["high"]
