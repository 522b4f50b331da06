"""What the timeline does for those who come from other viewers: journeys in a real browser."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from tests.charts.test_timeline_links import values_of
from tests.making import make_run
from tests.tiles.conftest import rank_rows
from tests.tiles.test_details import rows as event_rows
from tests.ui.browser import SCREENSHOTS, asked, click_event, go, served, settled, shot, state_of
from tests.ui.conftest import TOKEN

from alltrace.api import OpenRun
from alltrace.report import gather, to_html
from alltrace.report.content import ASKS
from alltrace.synth import write_run
from alltrace.synth.faults.parse import parse_fault

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("playwright.sync_api")
pytest.importorskip("uvicorn")


RUNS: dict[str, Path] = {}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A run in which one rank is slow."""
    from alltrace.run.importer import import_reports

    folder = tmp_path_factory.mktemp("timeline")
    faults = (parse_fault("slow-rank:ranks=2:factor=1.6"),)
    write_run("healthy", folder / "reports", ranks=4, hosts=2, steps=5, faults=faults, ideal=True)
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    base, stop = served([folder / "run"], folder / "scratch")
    RUNS[base] = folder / "run"
    yield base
    stop()


def row_of(page, track):
    """The middle of a row on the screen."""
    return page.evaluate(
        "(id) => { const t = window.alltraceTimeline, r = t.rows.find((x) => x.id === id), b ="
        " t.tracksBox.getBoundingClientRect(); return b.top + r.y - t.scrolled + r.height / 2 }",
        track,
    )


def drag(page, start, end):
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    page.mouse.up()


def test_an_area_of_tracks_is_selected_and_its_flame_graph_leads_to_the_longest(page):
    go(page, "#timeline?ranks=0-3&open=-", "timeline")
    settled(page)
    drag(page, (400, row_of(page, "1/summary")), (900, row_of(page, "2/summary")))
    details = page.locator(".details")
    details.get_by_text("2 tracks of 2 ranks").wait_for()
    assert state_of(page, "area") == "1-2"
    flame = details.locator(".flame canvas")
    box = flame.bounding_box()
    assert "chains of names" in flame.get_attribute("aria-label")
    page.mouse.click(box["x"] + 20, box["y"] + 9)
    assert re.search(r"of its own", flame.get_attribute("aria-label"))
    flame.press("ArrowDown")
    assert re.search(r"graph: \S+", flame.get_attribute("aria-label"))
    flame.press("ArrowUp")
    flame.press("ArrowUp")
    assert "chains of names" in flame.get_attribute("aria-label")
    shot(page, "area")
    details.locator("[aria-label=totals] tbody tr").first.click()
    details.get_by_text("those called").wait_for()
    details.locator("[aria-label=longest] tbody tr").first.click()
    details.locator("summary:text-is('all columns')").wait_for()
    assert re.match(r"[12]/\w+/\d+", state_of(page, "event"))


def test_an_area_is_one_track_and_its_address_shows_it_again(page):
    go(page, "#timeline?ranks=0&open=0", "timeline")
    settled(page)
    track = page.evaluate("() => window.alltraceTimeline.rows.find((r) => r.key.startsWith('ranges/')).id")
    y = row_of(page, track)
    drag(page, (400, y), (800, y + 2))
    page.locator(".details").get_by_text("1 track of 1 rank").wait_for()
    assert state_of(page, "area") == track
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator(".details").get_by_text("1 track of 1 rank").wait_for()
    kinds = page.locator(".details [aria-label=totals] tbody td:first-child").all_inner_texts()
    assert set(kinds) == {"range"}


def test_a_number_of_a_table_leads_to_its_place(page):
    go(page, "#recipes?name=gaps", "recipes")
    page.wait_for_selector("tbody tr")
    answer = asked(page, "/api/recipe", {"name": "gaps", "options": {}})
    start = answer["rows"][0][[c["name"] for c in answer["columns"]].index("start_ns")]
    page.locator(f"tbody tr a:text-is('{start:,}')").first.click()
    page.wait_for_selector("body[data-shown=timeline]")
    assert state_of(page, "cursors").split(",")[0] == str(start)
    assert int(state_of(page, "start")) < start < int(state_of(page, "end"))


def test_what_a_query_finds_is_laid_on_the_timeline(page):
    query = 'SELECT rank, short_name AS name, "start", "end" FROM kernels WHERE rank < 2 AND "end" - "start" > 1000000'
    go(page, f"#sql?query={quote(query)}", "sql")
    page.click("text=lay the rows on the timeline")
    page.wait_for_function("() => window.alltraceTimeline?.rows.some((r) => r.id === '0/query')")
    settled(page)
    assert state_of(page, "ranks") == "0-1"
    hit = page.evaluate(
        "() => { const t = window.alltraceTimeline, b = t.tracksBox.getBoundingClientRect();"
        " const h = t.hits.find((x) => x.track === '1/query');"
        " return [b.left + h.x + h.w / 2, b.top + h.y + h.h / 2] }"
    )
    shot(page, "laid")
    page.mouse.click(*hit)
    page.locator(".details").get_by_text(re.compile(r"row \d+ of the query")).wait_for()


def test_a_search_counts_all_ranks_marks_folded_ones_and_steps_from_one_to_the_next(page):
    go(page, "#timeline?ranks=0-1&open=-", "timeline")
    settled(page)
    page.keyboard.press("/")
    page.keyboard.type("(?i)allreduce.*ring")
    page.keyboard.press("Enter")
    bar = page.locator(".found-bar")
    bar.get_by_text(re.compile(r"^[\d,]+ found$")).wait_for()
    total = int(bar.inner_text().split()[0].replace(",", ""))
    assert total == page.evaluate(
        "() => Object.values(window.alltraceTimeline.search.hits.by_rank).reduce((a, b) => a + b)"
    )
    assert len(page.evaluate("() => Object.keys(window.alltraceTimeline.search.hits.by_rank)")) == 4, (
        "those not shown too"
    )
    assert "found" in page.locator(".label.rank").first.inner_text()
    shot(page, "marks")
    page.keyboard.press("Enter")
    bar.get_by_text(f"1 of {total:,}").wait_for()
    page.locator(".details summary:text-is('all columns')").wait_for()
    page.keyboard.press("Shift+Enter")
    bar.get_by_text(f"{total:,} of {total:,}").wait_for()
    page.keyboard.press("Escape")
    assert page.locator("input[aria-label^='search names']").input_value() == ""
    assert bar.is_hidden()
    assert "found" not in page.locator(".label.rank").first.inner_text()
    assert state_of(page, "search") is None


def test_panes_are_resized_and_stay_so_and_dragging_selects_no_text(page):
    go(page, "#timeline?ranks=0-3&open=0&range=20000000-60000000", "timeline")
    page.locator(".details h3:text-is('Totals by name')").wait_for()
    border = page.locator(".border.horizontal").bounding_box()
    drag(page, (600, border["y"] + 2), (600, border["y"] - 98))
    height = page.locator(".details").bounding_box()["height"]
    assert height == pytest.approx(800 * 0.33 + 100, abs=3)
    page.locator(".border.vertical").focus()
    page.keyboard.press("ArrowRight")
    labels = page.locator(".label").first.bounding_box()["width"]
    assert labels == 234
    page.reload()
    page.locator(".details h3:text-is('Totals by name')").wait_for()
    assert page.locator(".details").bounding_box()["height"] == pytest.approx(height, abs=1)
    assert page.locator(".label").first.bounding_box()["width"] == labels
    drag(page, (20, 220), (800, 400))
    assert page.evaluate("() => String(getSelection())") == ""
    page.keyboard.press("Escape")
    page.wait_for_timeout(300)
    lines = page.locator(".details").bounding_box()["height"]
    assert lines < 40, "nothing chosen takes one line"
    assert page.locator(".tracks").bounding_box()["height"] > 550


def test_a_folded_rank_tells_its_shares_under_the_pointer(page):
    go(page, "#timeline?ranks=0-3&open=-", "timeline")
    settled(page)
    page.mouse.move(600, row_of(page, "1/summary"))
    page.locator(".tip").get_by_text("rank 1").wait_for()
    assert re.search(r"(compute|communication|idle): \d+ %", page.locator(".tip").inner_text())


def labels_of(page):
    settled(page)
    return [
        label.partition(" · ")[0] for label in page.evaluate("() => window.alltraceTimeline.rows.map((r) => r.label)")
    ]


def test_tracks_are_filtered_hidden_and_ordered_and_the_address_says_so(page):
    go(page, "#timeline?ranks=0-3&open=0-3", "timeline")
    page.wait_for_function("() => window.alltraceTimeline.tracks.size === 4")
    before = labels_of(page)
    page.select_option("label:has-text('kind') select", "gpu")
    streams = [label for label in labels_of(page) if "stream" in label]
    assert set(labels_of(page)) == {*(f"rank {r}" for r in range(4)), *streams}
    page.fill("input[aria-label^='show tracks']", "13")
    page.keyboard.press("Enter")
    assert labels_of(page)[:3] == ["rank 0", "GPU 0 stream 13", "rank 1"]
    page.locator("button[aria-label='hide GPU 0 stream 13']").first.click()
    assert "GPU 0 stream 13" not in labels_of(page)[:2]
    page.locator("text=show 1 hidden track").wait_for()
    page.select_option("label:has-text('order by') select", "tracks")
    assert labels_of(page)[:4] == [f"rank {r}" for r in range(4)]
    assert {state_of(page, n) for n in ("kind", "tracks", "order")} == {"gpu", "13", "tracks"}
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_function("() => window.alltraceTimeline?.tracks.size === 4")
    assert [label for label in labels_of(page) if "stream" in label] == [
        f"{r}: GPU {r % 2} stream 13" for r in (1, 2, 3)
    ]
    shot(page, "arranged")
    page.locator("text=show 1 hidden track").click()
    page.fill("input[aria-label^='show tracks']", "")
    page.keyboard.press("Enter")
    page.select_option("label:has-text('kind') select", "")
    page.select_option("label:has-text('order by') select", "")
    assert labels_of(page) == before


def test_a_stream_is_pinned_on_all_ranks(page):
    go(page, "#timeline?ranks=0-3&open=0", "timeline")
    settled(page)
    page.locator("button[aria-label='pin GPU 0 stream 13']").click(modifiers=["Shift"])
    page.wait_for_function("() => window.alltraceTimeline.tracks.size === 4")
    pinned = [f"{r}: GPU {r % 2} stream 13" for r in range(4)]
    assert labels_of(page)[:4] == pinned
    assert re.fullmatch(r"\*0/gpu/\d+/\d+/13", state_of(page, "pin"))
    shot(page, "pinned-stream")
    page.evaluate("() => { for (let r = 0; r < 4; r++) window.alltraceTimeline.open.add(r) }")
    page.evaluate("() => { const t = window.alltraceTimeline; t.layout(); t.tracksBox.scrollTop = 100 }")
    page.wait_for_function("() => window.alltraceTimeline.scrolled === 100")
    settled(page)
    tops = page.evaluate(
        "() => { const t = window.alltraceTimeline; return [t.stuck, t.rows.slice(0, 4).map((r) => t.top(r))] }"
    )
    assert tops == [76, [0, 19, 38, 57]], "they stay in sight"
    boxes = [page.locator(f"button[aria-label='pin {p}']").bounding_box()["y"] for p in pinned]
    above = page.locator(".tracks").bounding_box()["y"]
    assert [b - above for b in boxes] == pytest.approx([1, 20, 39, 58], abs=3)
    page.mouse.click(
        *page.evaluate(
            "() => { const t = window.alltraceTimeline, b = t.tracksBox.getBoundingClientRect();"
            " const h = t.hits.find((x) => x.track === t.rows[1].id && x.y < t.stuck);"
            " return [b.left + h.x + h.w / 2, b.top + h.y + h.h / 2] }"
        )
    )
    page.locator(".details").get_by_text("rank 1 on").wait_for()
    shot(page, "pinned-scrolled")
    page.fill("input[aria-label^='ranks shown']", "1-2")
    page.keyboard.press("Enter")
    assert labels_of(page)[:2] == pinned[1:3], "those of the ranks that are shown"
    assert state_of(page, "ranks") == "1-2"
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_function("() => window.alltraceTimeline?.rows[0]?.label.includes('stream 13')")
    page.locator("button[aria-label='pin 2: GPU 0 stream 13']").click()
    assert labels_of(page)[0] == "rank 1", "a pin is taken away as a whole"


def test_the_mouse_does_what_perfetto_has_taught(page):
    go(page, "#timeline?ranks=0-3&open=0-3", "timeline")
    page.wait_for_function("() => window.alltraceTimeline.tracks.size === 4")
    settled(page)
    page.mouse.move(700, row_of(page, "0/summary"))
    page.mouse.wheel(0, 120)
    page.wait_for_function("() => window.alltraceTimeline.scrolled === 120")
    page.mouse.wheel(0, -120)
    page.keyboard.press("Home")
    whole = int(state_of(page, "end"))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    assert int(state_of(page, "end")) - int(state_of(page, "start")) < whole * 0.7
    page.keyboard.down("Shift")
    page.mouse.wheel(0, 200)
    page.keyboard.up("Shift")
    page.keyboard.press("Home")
    go(page, "#timeline?ranks=0&open=0&event=0/kernels/30", "timeline")
    page.locator(".details summary:text-is('all columns')").wait_for()
    page.keyboard.press("Shift+M")
    span = page.evaluate("() => window.alltraceTimeline.facts.span")
    assert state_of(page, "cursors") == f"{span['start']},{span['end']}"
    box = page.locator(".tracks").bounding_box()
    page.mouse.click(700, box["y"] + box["height"] - 10)
    page.locator(".details.empty").wait_for()
    assert state_of(page, "event") is None


def test_an_address_without_a_selection_shows_none(page):
    go(page, "#timeline?ranks=0&open=0&range=20000000-60000000&area=0", "timeline")
    page.locator(".details h3:text-is('Totals by name')").wait_for()
    go(page, "#timeline?ranks=0&open=0", "timeline")
    page.locator(".details.empty").wait_for()
    assert state_of(page, "range") is None


def test_ranks_stand_by_their_place_in_the_grid(page):
    order = page.evaluate(
        "async () => { const main = document.querySelector('script[src*=main]').src; const { Arrangement } = await"
        " import(main.replace('main', 'arrange')); const run = {dimensions: [{name: 'TP', size: 2}, {name: 'DP', size:"
        " 2}, {name: 'PP', size: 2}], ranks: [...Array(8).keys()].map((rank) => ({rank, host: `h${rank % 3}`}))}; const"
        " a = new Arrangement(run, () => {}), all = run.ranks.map((r) => r.rank); const of = (order) => {"
        " a.read({order}); return a.sorted(all) }; return [of('grid0'), of('grid1'), of('grid2'), of('host'),"
        " a.told(5), (a.read({order: 'grid1'}), a.told(5))] }"
    )
    roles = page.evaluate(
        "async () => { const main = document.querySelector('script[src*=main]').src; const { Arrangement } = await"
        " import(main.replace('main', 'arrange')); const run = {ranks: [0, 1, 2, 3].map((rank) => ({rank, host: 'h',"
        " role: ['critic', 'actor', null, 'actor'][rank]}))}; const a = new Arrangement(run, () => {}); a.read({order:"
        " 'role'}); return [a.sorted([0, 1, 2, 3]), a.told(1), a.told(2),"
        " [...a.element.querySelectorAll('option')].map((o) => o.value)] }"
    )
    assert roles[:3] == [[2, 1, 3, 0], " · actor", ""]
    assert "role" in roles[3]
    assert order[:4] == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0, 2, 1, 3, 4, 6, 5, 7],
        [0, 4, 1, 5, 2, 6, 3, 7],
        [0, 3, 6, 1, 4, 7, 2, 5],
    ]
    assert order[4:] == ["", " · TP 1, DP 0, PP 1"]


def test_the_arrows_are_followed(page):
    go(page, "#timeline?ranks=1&open=1&event=1/kernels/100", "timeline")
    details = page.locator(".details")
    details.get_by_text("Launched by").wait_for()
    page.keyboard.press("g")
    details.get_by_text("Launched", exact=True).wait_for()
    assert state_of(page, "event").startswith("1/api/")
    page.keyboard.press("g")
    details.get_by_text("Launched by").wait_for()
    assert state_of(page, "event") == "1/kernels/100"
    go(page, "#timeline?ranks=0-3&open=0&event=0/collectives/3", "timeline")
    details.get_by_text("The same operation on 4 ranks").wait_for()
    last = page.evaluate("() => window.alltraceTimeline.facts.instance.last_rank")
    page.keyboard.press("g")
    page.wait_for_function("(r) => window.alltraceTimeline.facts.rank === r", arg=last)
    page.keyboard.press("g")
    page.wait_for_function("(r) => window.alltraceTimeline.facts.rank === (r + 1) % 4", arg=last)


@contextmanager
def page_of(browser, folder, rows):
    """A page of a run of one rank with these rows."""
    base, stop = served([make_run(folder / "run", {0: rows}).path], folder / "scratch")
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(20_000)
        page.base = base
        page.goto(f"{base}?token={TOKEN}")
        page.wait_for_selector("body[data-shown]")
        yield page
        page.close()
    finally:
        stop()


def test_a_link_opened_while_the_state_is_still_to_be_put_into_the_address_is_followed(browser, tmp_path):
    with page_of(browser, tmp_path, event_rows()) as page:
        page.goto(f"{page.base}#timeline?ranks=0")
        settled(page)
        opened = """async (link) => {
            const url = await import(document.querySelector("script[type=module]").src.replace("main.js", "url.js"));
            url.keep("timeline", { ranks: "0", open: "0" });
            location.hash = link;
            url.settle();
            return location.hash;
        }"""
        assert (
            page.evaluate(opened, "#timeline?ranks=0&open=0&event=0/api/1") == "#timeline?ranks=0&open=0&event=0/api/1"
        )
        page.locator(".details").get_by_text("Waits for CUDA event 3 of stream 7").wait_for()


def test_a_wait_for_a_cuda_event_leads_to_its_record_and_back(browser, tmp_path):
    """A journey: what does this stream wait for?"""
    with page_of(browser, tmp_path, event_rows()) as page:
        page.goto(f"{page.base}#timeline?ranks=0&open=0")
        settled(page)
        names = asked(page, "/api/event?rank=0&table=api&row=1")["name"]
        assert names == "cudaStreamWaitEvent_v3020"
        page.goto(f"{page.base}#timeline?ranks=0&open=0&event=0/api/1")
        details = page.locator(".details")
        details.get_by_text("Waits for CUDA event 3 of stream 7").wait_for()
        assert "last work before the record: b" in details.inner_text()
        assert "first work behind the wait: d" in details.inner_text()
        settled(page)
        shot(page, "event-wait")
        page.keyboard.press("g")
        details.get_by_text("Calls that wait for its event").wait_for()
        assert details.locator("strong").first.inner_text() == "cudaEventRecord_v3020"
        page.keyboard.press("g")
        details.get_by_text("Waits for CUDA event 3 of stream 7").wait_for()
        details.get_by_role("button", name="b", exact=True).click()
        details.get_by_text("kernels of rank 0").wait_for()
        assert details.locator("strong").first.inner_text() == "b"


def test_scheduling_samples_and_memory_are_tracks(browser, tmp_path):
    us = 1000
    tables = {
        "sched": [{"time": 10 * us * i, "cpu": i % 3, "scheduled_in": i % 2 == 0} for i in range(10)],
        "samples": [{"time": 7 * us * i, "symbol": f"work{i % 2}"} for i in range(12)],
        "memory": [{"time": 20 * us * i, "kind": "allocate", "memory": "device", "bytes": 1 << 20} for i in range(4)],
    }
    with page_of(browser, tmp_path, rank_rows() | tables) as page:
        page.goto(f"{page.base}#timeline?ranks=0&open=0")
        page.wait_for_function("() => window.alltraceTimeline?.rows.some((r) => r.key.startsWith('sched/'))")
        assert {"scheduling, main (4001)", "CPU samples, main (4001)", "CUDA memory, GPU 0"} <= set(labels_of(page))
        shot(page, "moments")
        click_event(page, "0/sched/0", 1)
        page.locator(".details strong:text-is('CPU 2')").wait_for()
        assert "10 µs from" in page.locator(".details .muted").first.inner_text()
        page.mouse.move(1100, row_of(page, "0/memory/0"))
        page.locator(".tip").get_by_text("4.1943 MB").wait_for()


def test_the_matrix_names_who_is_waited_for_and_leads_there(page):
    go(page, "#matrix", "matrix")
    page.wait_for_selector("[aria-label=pairs] tbody tr")
    rows = page.locator("[aria-label=pairs] tbody tr").all_inner_texts()
    assert {r.split("\t")[1] for r in rows} == {"2"}, "all wait for the slow rank"
    shot(page, "matrix")
    page.select_option("select:has(option[value=host])", "host")
    page.locator("canvas[aria-label*='2 by 2 hosts']").wait_for()
    assert state_of(page, "by") == "host"
    page.select_option("label:has-text('show') select", "message_bytes")
    page.get_by_text("No messages were matched").wait_for()
    go(page, "#matrix?measure=collective_bytes", "matrix")
    page.locator("canvas[aria-label*='4 by 4 ranks']").wait_for()
    page.locator("[aria-label=pairs] tbody a").first.click()
    page.wait_for_selector("body[data-shown=timeline]")
    assert len(state_of(page, "ranks").split(",")) + state_of(page, "ranks").count("-") == 2


def test_two_steps_of_a_run_are_compared(page):
    go(page, "#compare", "compare")
    page.get_by_text("What takes more or less").wait_for()
    rows = page.locator("[aria-label=names] tbody tr").count()
    assert rows > 3
    page.locator("label", has_text=re.compile("^A")).locator("select").select_option("1")
    page.locator("label", has_text=re.compile("^B")).locator("select").select_option("1")
    page.wait_for_timeout(200)
    page.get_by_text("What takes more or less").wait_for()
    more = page.locator("[aria-label=names] tbody td:nth-child(5)").all_inner_texts()
    assert set(more) == {"0 ns"}, "a step differs in nothing from itself"
    assert (state_of(page, "first"), state_of(page, "second")) == ("1", "1")
    shot(page, "steps")


def test_a_chart_is_saved_as_svg_that_shows_what_the_page_shows(page, tmp_path, browser):
    go(page, "#recipes?name=breakdown", "recipes")
    page.wait_for_selector(".picture svg")
    with page.expect_download() as saving:
        page.click("#save")
    assert saving.value.suggested_filename == "run-recipes.svg"
    path = tmp_path / "run-recipes.svg"
    saving.value.save_as(path)
    tree = ET.parse(path)
    names = {e.tag.rpartition("}")[2] for e in tree.iter()}
    assert not names & {"script", "foreignObject", "image", "iframe", "animate", "set", "use"}
    attributes = [(n.rpartition("}")[2].lower(), v) for e in tree.iter() for n, v in e.attrib.items()]
    assert not [(n, v) for n, v in attributes if n.startswith("on") or n == "href" or "javascript:" in v or "://" in v]
    texts = "() => [...document.querySelectorAll('svg text')].map((t) => t.textContent).filter(Boolean)"
    colors = "() => [...document.querySelectorAll('svg.main-svg path')].map((p) => getComputedStyle(p).fill)"
    shown, inked = page.evaluate(texts), page.evaluate(colors)
    other = browser.new_page()
    other.goto(path.as_uri())
    assert sorted(other.evaluate(texts)) == sorted(shown)
    assert set(inked) == set(other.evaluate(colors)), "its colours do not depend on the page's style sheet"
    box = page.locator(".picture svg").first.bounding_box()
    root = other.evaluate(
        "() => { const b = document.documentElement.getBoundingClientRect(); return [b.width, b.height] }"
    )
    assert root == pytest.approx([box["width"], box["height"]], abs=1)
    shot(other, "saved-svg")
    other.close()


def test_a_picture_is_saved_and_the_address_is_copied_without_the_token(page, tmp_path):
    go(page, "#timeline?ranks=0-3&open=0", "timeline")
    settled(page)
    with page.expect_download() as saving:
        page.click("#save")
    assert saving.value.suggested_filename == "run-timeline.png"
    saving.value.save_as(tmp_path / "timeline.png")
    content = (tmp_path / "timeline.png").read_bytes()
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    assert (content[:4], width) == (b"\x89PNG", 1280)
    assert height > 400
    (SCREENSHOTS / "saved.png").write_bytes(content)
    go(page, "#sql", "sql")
    page.click("#save")
    page.get_by_text("This view has no picture").wait_for()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{page.base}?token={TOKEN}#timeline?ranks=1")
    page.wait_for_selector("body[data-shown=timeline]")
    page.click("#copy")
    page.get_by_text("The address is copied").wait_for()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith(f"{page.base}#timeline?")
    assert TOKEN not in copied


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_the_timeline_shows_is_accessible(page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.emulate_media(color_scheme=scheme)
    script = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    for hash_, ready in (
        ("#timeline?ranks=0-1&open=0&range=20000000-60000000&area=0-1", "text=Totals by name"),
        ("#timeline?ranks=0-1&open=0&search=AllReduce", ".found-bar >> text=found"),
        ("#matrix", "[aria-label=pairs] tbody tr"),
        ("#compare", "text=What takes more or less"),
    ):
        go(page, "#sql", "sql")
        go(page, hash_, hash_[1:].partition("?")[0])
        page.wait_for_selector(ready)
        page.wait_for_timeout(400)
        page.evaluate(script)  # by the debugger, which the content policy does not bind
        found = page.evaluate("() => axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})")
        assert [(v["id"], v["nodes"][0]["html"][:120]) for v in found["violations"]] == [], hash_


def test_a_note_is_kept_with_the_run_and_its_address_shows_it(page):
    go(page, "#timeline?ranks=0-3&open=-", "timeline")
    settled(page)
    drag(page, (400, row_of(page, "1/summary")), (700, row_of(page, "2/summary")))
    page.locator(".details").get_by_text("2 tracks of 2 ranks").wait_for()
    page.keyboard.press("b")
    page.keyboard.type("<b>rank 2</b> is late")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="notes (1)").wait_for()
    page.locator("[aria-label=notes] tbody tr").click()
    page.get_by_text("remove this note").wait_for()
    assert page.locator(".details strong").inner_text() == "<b>rank 2</b> is late"
    assert state_of(page, "note") == "1"
    shot(page, "note")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.get_by_text("remove this note").click()
    page.get_by_text("None yet").wait_for()
    assert asked(page, "/api/notes")["notes"] == []


def test_the_times_of_a_report_lead_to_the_timeline(page, tmp_path, monkeypatch):
    """A journey: from a row of a report to its place."""
    monkeypatch.setattr(
        "alltrace.report.content.ASKS", tuple(a for a in ASKS if a.key in ("findings", "gaps", "ranks"))
    )
    run = OpenRun(RUNS[page.base])
    report = tmp_path / "report.html"
    report.write_text(to_html(gather(run, "r"), "http://127.0.0.1:9/"), encoding="utf-8")
    base, opened = page.base, page
    page = page.context.new_page()  # beside the tab with the run, which has the token
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.fill("#page", "javascript:alert(1)")
    page.keyboard.press("Enter")
    assert page.get_attribute("#page", "aria-invalid") == "true"
    page.fill("#page", base)
    page.keyboard.press("Enter")
    row = run.recipe("gaps").to_pylist()[0]
    link = page.locator("#gaps a.place").first
    assert link.get_attribute("href").startswith(f"{base}#timeline?")
    with page.context.expect_page() as opening:
        link.click()
    other = opening.value
    other.wait_for_selector("body[data-shown=timeline]")
    found = other.evaluate("() => [window.alltraceTimeline.cursors, window.alltraceTimeline.ranks]")
    assert found == [[row["start_ns"], row["start_ns"] + row["duration_ns"]], [row["rank"]]]
    other.close()
    page.close()
    assert not opened.is_closed()


def test_a_report_and_the_page_lead_to_the_same_places(page):
    run = OpenRun(RUNS[page.base])
    for name in ("gaps", "info", "steps", "stats:cuda_gpu_trace", "stats:nvtx_pushpop_trace"):
        result = run.recipe(name, **({"per_step": True} if name == "steps" else {}))
        columns = [{"name": c.name, "unit": c.unit} for c in result.answer.columns]
        rows = [list(r.values()) for r in result.to_pylist()[:5]]
        theirs = page.evaluate(
            "async ([columns, rows, zero]) => { const main = document.querySelector('script[src*=main]').src;"
            " const { placesOf } = await import(main.replace('main', 'places'));"
            " const places = placesOf(columns, zero); return rows.map((r) => places && places.address(r)) }",
            [columns, rows, result.zero_ns],
        )
        ours = [link and link[link.index("#") :] for link in result.timeline_links()[:5]]
        assert [f and values_of(f) for f in ours] == [f and values_of(f) for f in theirs], name
        assert any(ours) == (name != "steps"), name
