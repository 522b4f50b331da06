"""Addresses of rows with a time; that the page makes the same ones is tested in a browser, in
`tests/ui/test_timeline_page.py`."""

from urllib.parse import parse_qs

import pytest
from tests.making import kernel, make_run

from alltrace.charts.timeline_links import PAGE, places_of
from alltrace.trace.columns import Column

MS = 1_000_000


def columns(*names):
    return [Column(n, "any", "ns" if n.endswith(("_ns", "(ns)")) else None, "") for n in names]


def values_of(fragment):
    assert fragment.startswith("#timeline?")
    return {k: v[0] for k, v in parse_qs(fragment.partition("?")[2]).items()}


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"rank": 3, "start_ns": 5000, "end_ns": 9000}, {"start": "-3000", "end": "17000", "cursors": "5000,9000"}),
        ({"rank": 3, "start_ns": 5000, "duration_ns": 600}, {"start": "3800", "end": "6800", "cursors": "5000,5600"}),
        ({"rank": 3, "time_ns": 5000}, {"start": "4000", "end": "6000", "cursors": "5000"}),
        (
            {"rank": 3, "Start (ns)": 5000, "Duration (ns)": 600},
            {"start": "3800", "end": "6800", "cursors": "5000,5600"},
        ),
    ],
)
def test_a_row_leads_to_its_rank_and_time(row, wanted):
    places = places_of(columns(*row))
    assert values_of(places.fragment(row)) == wanted | {"ranks": "3", "open": "3"}


def test_without_a_time_nothing_leads_anywhere():
    assert places_of(columns("rank", "duration_ns")) is None
    assert places_of([Column("time", "any", "s", "")]) is None, "a time of another unit is none"
    places = places_of(columns("start_ns", "rank"))
    assert places.fragment({"start_ns": None, "rank": 1}) is None
    assert "ranks" not in values_of(places.fragment({"start_ns": 4, "rank": None}))


def test_times_of_the_session_are_counted_and_linked(tmp_path):
    run = make_run(tmp_path / "run", {0: {"kernels": [kernel(2 * MS, 3 * MS), kernel(9 * MS, 10 * MS)]}})
    (link,) = {values_of(f.removeprefix(PAGE))["cursors"] for f in run.recipe("gaps").timeline_links()}
    assert link == f"{1 * MS},{7 * MS}", "from the run's first event"
    result = run.recipe("stats:cuda_gpu_trace")
    starts = [int(values_of(f.removeprefix(PAGE))["cursors"].split(",")[0]) for f in result.timeline_links()]
    assert result.zero_ns == run.origin_ns
    assert starts == [t - run.origin_ns for t in result.to_arrow().column("Start (ns)").to_pylist()]
    assert run.recipe("breakdown").timeline_links() == [None]
    run = make_run(tmp_path / "2" / "run", {0: {"kernels": [kernel(2 * MS, 3 * MS), kernel(9 * MS, 10 * MS)]}})
    shown = run.recipe("gaps")._repr_html_()
    assert f'<a href="{PAGE}#timeline?' in shown
    assert "alltrace ui RUN --port 8765" in shown
    assert "<a " not in run.recipe("breakdown")._repr_html_()
