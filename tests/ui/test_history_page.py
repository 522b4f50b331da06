"""The history of many runs in a real browser."""

import pytest
from tests.history_rows import put
from tests.making import make_run
from tests.tiles.conftest import rank_rows
from tests.ui.browser import barriers, go, served, shot, state_of

from alltrace.history.run_rows import run_id
from alltrace.history.store import open_history
from alltrace.run.manifest import read_manifest
from alltrace.ui.history import HistoryFile

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("playwright.sync_api")
pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Runs of two jobs on changing hosts, of which one is slow in most; the run that is shown is the last of its
    job."""
    folder = tmp_path_factory.mktemp("history")
    make_run(folder / "run", {0: rank_rows()})
    with open_history(folder / "h.duckdb", write=True) as history:
        for number in range(40):
            job = ("llm-7b", "vision")[number % 4 == 3]
            slow = number % 5 in (1, 2)
            hosts = [{"host": f"node{(number + i) % 12:03d}"} for i in range(3)]
            if slow:
                hosts.append(
                    {"host": "node042", "slow": True, "kind": "slow-host", "lost_percent": 6.0, "blame_percent": 80.0}
                )
            step = (
                (220 if job == "llm-7b" else 95)
                * (1 + 0.004 * (number * 7 % 5))
                * (1.08 if slow else 1)
                * (1.2 if number > 33 else 1)
            )
            found = [{"kind": "slow-host", "lost_percent": 6.0, "hosts": ["node042"]}] if slow else []
            shares = {"compute_percent": 80.0 - 6 * slow, "exposed_communication_percent": 15.0 + 6 * slow}
            put(
                history,
                number,
                job=job,
                step_ns=int(step * 1e6),
                hosts=hosts,
                findings=found,
                lost_percent=6.0 * slow,
                **shares,
            )
        own = run_id(read_manifest(folder / "run"))
        for table in ("runs", "hosts", "findings"):
            history._connection.execute(f"UPDATE {table} SET run_id = ? WHERE run_id = 'run38'", [own])
    base, stop = served([folder / "run"], folder / "scratch", history=HistoryFile(folder / "h.duckdb"))
    yield base
    stop()


def test_the_runs_before_this_one_are_told(page):
    """A journey: is this run slower than those before, and is it always the same host?"""
    go(page, "#history", "history")
    page.wait_for_selector(".verdict")
    assert page.inner_text(".verdict").startswith(
        "The run that is shown is number 30 of llm-7b. Its median step takes "
    )
    assert "more than the median of earlier runs: slower than their spread." in page.inner_text(".verdict")
    page.wait_for_function("() => document.querySelectorAll('.picture .main-svg').length >= 4")
    assert "node042" in page.locator("main table").first.locator("tbody tr").first.inner_text(), (
        "the slowest host is on top"
    )
    shot(page, "history")
    page.set_viewport_size({"width": 1280, "height": 3200})
    page.wait_for_timeout(600)
    shot(page, "history-all")
    page.select_option("label:has-text('job') select", "vision")
    page.wait_for_function("() => document.querySelector('.verdict').innerText.includes('not among')")
    assert state_of(page, "job") == "vision"


@pytest.mark.parametrize("width", [400, 3840])
def test_the_history_needs_no_scrolling_sideways(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    go(page, "#history?job=llm-7b", "history")
    page.wait_for_function("() => document.querySelectorAll('.picture .main-svg').length >= 4")
    page.wait_for_timeout(400)
    assert page.evaluate(
        "() => document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth"
    )
    shot(page, f"history-{width}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(page, scheme):
    page.emulate_media(color_scheme=scheme)
    go(page, "#history", "history")
    page.wait_for_function("() => document.querySelectorAll('.picture .main-svg').length >= 4")
    shot(page, f"history-{scheme}")
    assert barriers(page) == []
