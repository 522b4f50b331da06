"""The page of a report in a real Chromium: it draws, zooms, is dark where the reader's screen is, and prints."""

import shutil

import pytest
from tests.charts.answers import HOSTILE

from alltrace.report import gather, to_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    # the driver's own pipes are closed by the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def chromium():
    """A browser; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    if path is None:
        pytest.skip("no Chromium on PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, hostile_run, tmp_path):
    """Opens the hostile run's page; complaints and requests are collected."""
    file = tmp_path / "report.html"
    file.write_text(to_html(gather(hostile_run, HOSTILE[0])), encoding="utf-8")
    contexts = []

    def visit(**options):
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.complaints, page.requests = [], []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("dialog", lambda dialog: page.complaints.append("a dialog"))
        page.on("request", lambda request: page.requests.append(request.url.partition(":")[0]))
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
        return page

    yield visit
    for context in contexts:
        context.close()


def test_every_chart_is_drawn_without_a_complaint_and_without_the_network(opened):
    page = opened()
    assert page.complaints == []
    assert set(page.requests) == {"file", "blob"}
    assert page.locator(".chart").count() == page.locator(".chart .main-svg").count() / 3
    assert page.locator(".chart img, .chart script").count() == 0
    ticks = page.locator("#chart-kernels .ytick text").all_text_contents()
    assert HOSTILE[0].removesuffix("(1)>") in ticks  # the kernel's short name ends before its brackets
    assert HOSTILE[2] in ticks


def test_a_chart_zooms_and_the_heat_map_shows_what_is_chosen(opened):
    page = opened()
    page.locator("#chart-breakdown").scroll_into_view_if_needed()
    box = page.locator("#chart-breakdown .nsewdrag").bounding_box()
    before = page.evaluate("document.getElementById('chart-breakdown').layout.xaxis.range")
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 20, steps=4)
    page.mouse.up()
    after = page.evaluate("document.getElementById('chart-breakdown').layout.xaxis.range")
    assert after[1] - after[0] < 0.6 * (before[1] - before[0])
    page.select_option("select[data-chart=activity]", label="idle")
    assert page.evaluate("document.getElementById('chart-activity').data[0].colorbar.title.text") == "idle [%]"
    assert page.complaints == []


def test_the_page_is_dark_or_narrow_as_the_screen_and_paper_is_light(opened):
    page = opened(color_scheme="dark", viewport={"width": 400, "height": 800})
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    fill = "getComputedStyle(document.querySelector('#chart-breakdown .xtick text')).fill"
    assert page.evaluate(fill) == "rgb(228, 232, 236)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.click("#theme")
    page.wait_for_function(f"{fill} === 'rgb(31, 36, 41)'")
    page = opened(color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.wait_for_function(f"{fill} === 'rgb(31, 36, 41)'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
