"""Every view in a real browser, light and dark: nothing keeps people out, and the browser's console stays empty."""

import pytest
from tests.history_rows import put
from tests.ui.browser import barriers, go, served, shot

from alltrace.history.store import open_history
from alltrace.synth import write_run
from alltrace.synth.faults.parse import parse_fault

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("playwright.sync_api")
pytest.importorskip("uvicorn")

SLOW = 2


@pytest.fixture(scope="module", params=["two-runs", "one-rank"])
def runs(request):
    return request.param


@pytest.fixture(scope="module")
def address(tmp_path_factory, runs):
    """Two runs with a history, in the first of which a rank is slow; or a run of one rank."""
    from alltrace.run.importer import import_reports
    from alltrace.ui.history import HistoryFile

    folder = tmp_path_factory.mktemp("views")
    faults = (
        {"slow": (parse_fault(f"slow-rank:ranks={SLOW}:factor=1.6"),), "healthy": ()}
        if runs == "two-runs"
        else {"one": ()}
    )
    ranks = 4 if runs == "two-runs" else 1
    for name, planted in faults.items():
        write_run(
            "healthy", folder / f"{name}-reports", ranks=ranks, hosts=min(ranks, 2), steps=4, faults=planted, ideal=True
        )
        import_reports([str(folder / f"{name}-reports")], folder / name, jobs=1)
    with open_history(folder / "h.duckdb", write=True) as history:
        for number in range(6):
            put(history, number, hosts=[{"host": "a"}, {"host": "b", "slow": number > 3, "kind": "sync"}])
    base, stop = served(
        [folder / name for name in faults], folder / "scratch", history=HistoryFile(folder / "h.duckdb")
    )
    yield base
    stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_people_out_and_the_console_stays_empty(page, runs, scheme):
    page.emulate_media(color_scheme=scheme)
    page.wait_for_selector(".finding, .told .verdict:not(.muted)")
    found = {}

    def looked_at(name):
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(300)
        shot(page, f"view-{runs}-{name}-{scheme}")
        found[name] = barriers(page)

    if runs == "one-rank":
        page.wait_for_selector(".few-bars li >> nth=1")
        assert page.locator(".few h3").all_inner_texts() == [
            "Time per step",
            "Kernels with most time",
            "Why devices were idle",
        ]
        assert page.locator(".few svg a").count() == 4
        assert "ms" in page.locator(".few-value").first.inner_text()
    looked_at("overview")
    if page.locator(".told >> text=show me").count():
        page.click(".told >> text=show me")
        page.wait_for_selector(".main-sentence:has-text('rank')")
        looked_at("show-me")
    views = {
        "timeline": "#timeline",
        "events": "#events?tables=kernels&ranks=0&start=0&end=100000000",
        "recipes": "#recipes?name=kernels",
        "sql": "#sql",
        "history": "#history",
    }
    for view, hash_ in (
        views | ({"compare": "#compare", "matrix": "#matrix"} if runs == "two-runs" else {"compare": "#compare"})
    ).items():
        go(page, hash_, view)
        if view == "recipes":
            page.wait_for_selector(".js-plotly-plot .bars")
        if view == "compare" and runs == "two-runs":
            page.wait_for_selector(".verdict:has-text('a step takes')")
            assert page.locator("main > *").first.inner_text().startswith("B is ")
        looked_at(view)
    assert {name: what for name, what in found.items() if what} == {}
