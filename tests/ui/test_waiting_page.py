"""The page while clocks, levels of detail and findings are still being made, in a real browser."""

import threading

import pytest
from tests.ui.browser import barriers, go, served, settled, shot, wait_inked
from tests.ui.conftest import TOKEN
from tests.ui.gates import Gate, hold
from tests.ui.test_session import being_imported

from alltrace.synth import write_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("playwright.sync_api")
pytest.importorskip("uvicorn")


@pytest.fixture
def gates():
    return {name: Gate() for name in ("aligned", "pyramid", "findings")}


@pytest.fixture
def address(tmp_path, monkeypatch, gates):
    """A run of two hosts of which nothing is kept; each stage waits at its gate."""
    from alltrace.run.importer import import_reports
    from alltrace.ui.facts import make_answers

    write_run("straggler", tmp_path / "reports", ranks=4, hosts=2, steps=3, ideal=True)
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    hold(monkeypatch, "alltrace.ui.session.aligned", gates["aligned"])
    hold(monkeypatch, "alltrace.ui.session.pyramid", gates["pyramid"])
    hold(monkeypatch, "alltrace.ui.facts._findings", gates["findings"])

    def begin(session):
        def work():
            session.prepare()
            make_answers(session)

        threading.Thread(target=work, daemon=True).start()

    base, stop = served([tmp_path / "run"], tmp_path / "scratch", begin=begin)
    yield base
    for gate in gates.values():
        gate.open()
    stop()


def wait_told(page, text):
    page.wait_for_function("t => document.querySelector('.stages')?.innerText.includes(t)", arg=text)


def test_a_run_is_looked_at_unaligned_and_everything_moves_into_place(page, gates):
    """A journey: what is in this run that nobody has looked at before?"""
    wait_told(page, "aligning clocks: 0 of 4 ranks")
    wait_told(page, "Times are not aligned yet")
    wait_inked(page, ".heat-scroll canvas", 5)
    shot(page, "waiting-overview")
    go(page, "#timeline?ranks=0-3&open=0", "timeline")
    settled(page)
    span = page.evaluate("() => alltraceTimeline.whole")
    tracks = page.evaluate("() => alltraceTimeline.tracks.get(0).map((t) => t.key)")
    assert any(t.startswith("gpu/") for t in tracks)
    assert page.evaluate("() => alltraceTimeline.ctx.run.steps.length") == 0
    shot(page, "waiting-timeline")
    gates["aligned"].open()
    page.wait_for_function("() => alltraceTimeline.ctx.run.steps.length === 3")
    settled(page)
    assert page.evaluate("() => alltraceTimeline.whole") != span, "the hosts' clocks are milliseconds apart"
    assert "not aligned" not in page.inner_text(".stages")
    wait_told(page, "drawing levels of detail")
    assert page.evaluate("() => [...alltraceTimeline.open]") == [0], "what was open is open"
    assert any(
        k.startswith("collectives/") for k in page.evaluate("() => alltraceTimeline.tracks.get(0).map((t) => t.key)")
    )
    gates["pyramid"].open()
    go(page, "#overview", "overview")
    page.wait_for_selector(".jobbar")
    wait_told(page, "looking for what costs time")
    assert page.locator(".finding").count() == 0
    gates["findings"].open()
    page.wait_for_selector(".finding")
    page.wait_for_selector(".stages", state="hidden")
    shot(page, "waiting-over")


def test_what_a_person_types_is_not_taken_away(page, gates):
    go(page, "#timeline", "timeline")
    settled(page)
    page.fill(".bar input.wide", "gem")
    gates["aligned"].open()
    gates["pyramid"].open()
    page.wait_for_timeout(1200)
    assert page.input_value(".bar input.wide") == "gem"
    assert page.evaluate("() => document.activeElement.classList.contains('wide')")
    page.keyboard.press("Escape")
    page.wait_for_function("() => alltraceTimeline.ctx.run.steps.length === 3")


@pytest.mark.parametrize("width", [400, 1280])
def test_the_bar_needs_no_scrolling_sideways(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    wait_told(page, "aligning clocks")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    shot(page, f"waiting-{width}")
    page.emulate_media(color_scheme="light" if width == 400 else "dark")
    assert barriers(page) == []


def test_ranks_that_come_later_are_shown_without_asking(browser, tmp_path):
    being_imported(tmp_path / "run", {0})
    base, stop = served([tmp_path / "run"], tmp_path / "scratch")
    page = browser.new_page()
    try:
        page.goto(f"{base}?token={TOKEN}")
        page.wait_for_selector("text=This run is still being imported")
        wait_inked(page, ".heat-scroll canvas", 5)
        assert page.locator(".cards li:has-text('rank') b").inner_text() == "1"
        (tmp_path / "run/ranks/.staging-2").rename(tmp_path / "run/ranks/rank=2")
        page.wait_for_function("() => document.querySelector('.cards')?.innerText.includes('2\\nranks')")
    finally:
        page.close()
        stop()
