"""The first ten seconds in a real browser: from an address to the rank that is slow, and to what proves it."""

import re

import pytest
from tests.ui.browser import go, served, settled, shot, state_of, wait_inked

from alltrace.synth import write_run
from alltrace.synth.faults.parse import parse_fault
from benchmarks.show_me import MEASURED, shown

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("playwright.sync_api")
pytest.importorskip("uvicorn")

SLOW = 37


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A run of 64 ranks on 8 hosts, one of which computes slower."""
    from alltrace.run.importer import import_reports

    folder = tmp_path_factory.mktemp("first")
    write_run(
        "healthy",
        folder / "reports",
        ranks=64,
        hosts=8,
        steps=3,
        faults=(parse_fault(f"slow-rank:ranks={SLOW}:factor=1.3"),),
        ideal=True,
    )
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    base, stop = served([folder / "run"], folder / "scratch")
    yield base
    stop()


def shown_measure(page):
    return page.locator("label:has-text('show') select").input_value()


def test_the_slow_rank_is_named_without_a_click_and_its_worst_instance_is_one_away(page):
    """A journey: which rank is slow, and what proves it?"""
    page.wait_for_selector(".told .verdict:not(.muted)", timeout=60_000)  # it is looked for while the page is open
    verdict = page.locator(".told .verdict").inner_text()
    assert re.match(
        rf"Rank {SLOW} computes \d+ % slower than its peers; the other 63 wait for it, which costs", verdict
    )
    assert shown_measure(page) == "waiting", "the heat map shows what the finding is about"
    page.wait_for_selector(".jobbar")
    assert page.locator(".joblegend li").count() == 4
    wait_inked(page, ".heat-scroll canvas", 5)
    shot(page, "first-seconds")
    page.click(".told >> text=show me")
    page.wait_for_selector("body[data-shown=timeline]")
    page.wait_for_selector(f"text=Rank {SLOW} arrived last; 63 others together waited")
    ranks = state_of(page, "ranks")
    assert str(SLOW) in re.split("[,-]", ranks)
    open_ = re.split("[,-]", state_of(page, "open"))
    assert str(SLOW) in open_, "the culprit is open"
    assert len(open_) == 2, "and a peer"
    assert re.match(rf"{SLOW}/collectives/\d+$", state_of(page, "event"))
    settled(page)
    says = page.locator(".main-sentence").inner_text()
    assert re.match(rf"In step \d, rank {SLOW} reaches AllReduce #\d+ [\d.]+ ms after the others\.", says)
    shot(page, "first-proof")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (900, 700)])
def test_the_culprit_a_peer_and_the_instance_are_on_the_screen(page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_selector(".told .actions", timeout=60_000)
    assert shown(page, SLOW) == []
    below = page.locator(".labels .label.rank").nth(2).locator("button").first
    assert below.get_attribute("aria-expanded") == "false", "those that wait are folded"
    shot(page, f"show-me-{width}")


def test_the_screen_of_another_rank_is_none_that_shows_the_culprit(page):
    """What the measure says of a screen that shows something else."""
    page.wait_for_selector(".told .actions", timeout=60_000)
    assert shown(page, SLOW) == []
    misses = [what for what, is_so in page.evaluate(MEASURED, 0).items() if not is_so]
    assert misses == ["the culprit is the first row", "a sentence stands above"]
    page.locator(".tracks").evaluate("(box) => { box.scrollTop = 1000 }")
    page.wait_for_timeout(300)
    assert "what is chosen is drawn" in [what for what, is_so in page.evaluate(MEASURED, SLOW).items() if not is_so]


def test_the_culprit_is_on_top_of_the_heat_map(page):
    page.wait_for_selector(".finding")
    wait_inked(page, ".heat-scroll canvas", 5)
    box = page.locator(".heat-scroll canvas").bounding_box()
    page.mouse.click(box["x"] + 400, box["y"] + 4)
    page.wait_for_selector("body[data-shown=timeline]")
    assert state_of(page, "open") == str(SLOW)


def test_what_a_person_chose_stays_when_the_findings_come(page):
    go(page, "#sql", "sql")  # so that what is looked at next is the new overview
    go(page, "#overview?metric=compute&sort=rank", "overview")
    page.wait_for_selector(".finding")
    assert shown_measure(page) == "compute"
    assert (state_of(page, "metric"), state_of(page, "sort")) == ("compute", "rank")


def test_the_table_that_a_finding_rests_on_is_one_click_away(page):
    page.click(f".finding:has-text('Rank {SLOW} computes') >> text=prove it")
    page.wait_for_selector("body[data-shown=recipes]")
    page.wait_for_selector(f"table tbody tr:first-child td:text-is('{SLOW}')")
    assert state_of(page, "name") == "stragglers"


@pytest.mark.parametrize("width", [400, 1280, 3840])
def test_the_story_needs_no_scrolling_sideways(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_selector(".finding")
    page.wait_for_selector(".jobbar")
    assert page.evaluate(
        "() => document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth"
    )
    shot(page, f"first-{width}")
