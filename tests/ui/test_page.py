"""The page in a real browser."""

import re
import time
from pathlib import Path

import pytest
from tests.making import make_run
from tests.tiles.conftest import rank_rows
from tests.ui.browser import asked as asked_by_page
from tests.ui.browser import click_event, go, served, settled, shot, state_of, wait_inked
from tests.ui.conftest import HOSTILE, TOKEN

from alltrace.synth import write_run
from alltrace.synth.faults.parse import parse_fault

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("playwright.sync_api")
pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Two runs with the same steps, in the second one rank is slow."""
    from alltrace.run.importer import import_reports

    folder = tmp_path_factory.mktemp("page")
    paths = []
    for name, faults in (("healthy", ()), ("slow", (parse_fault("slow-rank:ranks=2:factor=1.6"),))):
        write_run("healthy", folder / f"{name}-reports", ranks=4, hosts=2, steps=5, faults=faults, ideal=True)
        import_reports([str(folder / f"{name}-reports")], folder / name, jobs=1)
        paths.append(folder / name)
    base, stop = served([paths[1], paths[0]], folder / "scratch")
    yield base
    stop()


def test_the_slow_rank_is_named_at_once_and_seen_by_one_click(page):
    """A journey: which rank is slow, and what proves it?"""
    verdict = page.locator(".told .verdict:not(.muted)")
    assert re.match(r"Rank 2 computes \d+ % slower than its peers; the other 3 wait for it", verdict.inner_text())
    assert page.locator("label:has-text('show') select").input_value() == "waiting", (
        "the heat map shows what the finding is about"
    )
    page.wait_for_selector(".jobbar")  # it comes behind the findings
    assert page.locator(".jobbar > div").count() == 4
    wait_inked(page, ".heat-scroll canvas", 5)
    shot(page, "overview")
    page.click(".told >> text=show me")
    page.wait_for_selector("body[data-shown=timeline]")
    settled(page)
    page.wait_for_selector("text=Rank 2 arrived last")
    assert state_of(page, "ranks") == "all"
    assert re.match(r"2/collectives/\d+", state_of(page, "event"))
    peer = next(rank for rank in re.split("[,-]", state_of(page, "open")) if rank != "2")
    assert state_of(page, "first") == f"2,{peer}", "the culprit and a peer are open"
    heads = page.locator(".labels .label.rank")
    assert heads.nth(0).locator("span").inner_text().startswith("rank 2"), "the culprit is the first row"
    assert heads.nth(1).locator("span").inner_text().startswith(f"rank {peer}"), "the peer is the second"
    red = page.locator(".label.culprit span")
    assert red.count() == 1
    box, view = red.bounding_box(), page.locator(".tracks").bounding_box()
    assert view["y"] <= box["y"] < view["y"] + view["height"], "it is on the screen"
    shot(page, "finding")


def test_the_culprit_is_on_top_and_a_choice_stays(page):
    page.wait_for_selector(".finding")
    wait_inked(page, ".heat-scroll canvas", 5)
    box = page.locator(".heat-scroll canvas").bounding_box()
    page.mouse.click(box["x"] + 400, box["y"] + 5)
    page.wait_for_selector("body[data-shown=timeline]")
    assert state_of(page, "open") == "2"
    go(page, "#overview?metric=compute&sort=rank", "overview")
    page.wait_for_selector(".finding")
    assert page.locator("label:has-text('show') select").input_value() == "compute"
    assert (state_of(page, "metric"), state_of(page, "sort")) == ("compute", "rank")


def test_the_table_that_a_finding_rests_on_is_one_click_away(page):
    page.click(".finding:has-text('Rank 2 computes') >> text=prove it")
    page.wait_for_selector("body[data-shown=recipes]")
    page.wait_for_selector("table:has-text('caused_ns'), table:has-text('caused')")
    assert state_of(page, "name") == "stragglers"


def test_of_two_runs_both_are_told(page):
    page.wait_for_selector("h2:text-is('healthy')")
    page.wait_for_selector("text=compare both runs")
    assert page.locator(".verdict:not(.muted)").count() == 2
    page.click("text=compare both runs")
    page.wait_for_selector("body[data-shown=compare]")


def test_nothing_moves_when_the_findings_come(page):
    wait_inked(page, ".heat-scroll canvas", 20)
    page.goto("about:blank")
    held = []
    page.route(re.compile("/api/findings"), lambda route: held.append(route))
    go(page, "#overview", "overview")
    wait_inked(page, ".heat-scroll canvas", 20)
    page.wait_for_timeout(200)
    before = page.locator(".heat-scroll canvas").bounding_box()
    assert page.locator(".told").inner_text() == "What costs time is told here once it is found."
    held[0].continue_()
    page.wait_for_selector(".jobbar")
    after = page.locator(".heat-scroll canvas").bounding_box()
    assert {**after, "height": 0} == {**before, "height": 0}
    assert 0 <= after["height"] - before["height"] <= 8, "only the culprit's row is a little higher"
    shot(page, "findings")


def test_the_heat_map_zooms_sorts_and_opens_the_timeline(page):
    wait_inked(page, ".heat-scroll canvas", 20)
    box = page.locator(".heat-scroll canvas").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 30, steps=4)
    page.mouse.up()
    assert int(state_of(page, "start")) > 0
    page.select_option("label:has-text('show') select", "waiting")
    page.select_option("label:has-text('sort by') select", "caused_ns")
    page.select_option("label:has-text('group by') select", "none")
    assert (state_of(page, "metric"), state_of(page, "sort"), state_of(page, "group")) == (
        "waiting",
        "caused_ns",
        "none",
    )
    page.mouse.click(box["x"] + 400, box["y"] + 5)
    page.wait_for_selector("body[data-shown=timeline]")
    assert state_of(page, "open") == "2", "the rank that others wait for is on top"


def test_the_heat_map_shows_more_where_it_is_zoomed(page):
    level = asked_by_page(page, "/api/run")["grid"]["level"]
    start, span = 40_000_000, 8_000_000
    with page.expect_response(lambda r: "heat-fine" in r.url) as answer:
        go(page, f"#overview?metric=compute&sort=rank&start={start}&end={start + span}", "overview")
    asked = answer.value.request.post_data_json
    assert asked["level"] < level
    assert asked["ranks"] == [0, 1, 2, 3]
    wait_inked(page, ".heat-scroll canvas", 5)
    page.wait_for_timeout(500)
    # columns of the slow rank that differ from their neighbour: coarse bins would give a handful
    changes = page.eval_on_selector(
        ".heat-scroll canvas",
        "c => { const w = c.width - 110, d = new Uint32Array(c.getContext('2d').getImageData(105, 55, w,"
        " 1).data.buffer); let n = 0; for (let i = 1; i < w; i++) n += d[i] !== d[i - 1]; return n }",
    )
    shot(page, "heat-fine")
    page.allowed.append("willReadFrequently")
    assert changes > 4 * span / 2**level + 4


def test_the_timeline_zooms_to_nanoseconds_and_back(page):
    go(page, "#timeline?ranks=2&open=2", "timeline")
    settled(page)
    whole = int(state_of(page, "end"))
    box = page.locator(".tracks").bounding_box()
    page.mouse.move(box["x"] + 700, box["y"] + 40)
    page.mouse.wheel(0, -200)
    assert int(state_of(page, "end")) == whole, "the wheel alone scrolls"
    page.keyboard.down("Control")
    for _ in range(60):
        page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function("() => window.alltraceTimeline.span.end - window.alltraceTimeline.span.start < 100")
    settled(page)
    start, end = (int(state_of(page, n)) for n in ("start", "end"))
    assert 0 < end - start < 100
    page.keyboard.press("Home")
    assert int(state_of(page, "end")) == pytest.approx(whole, rel=0.01)
    page.keyboard.press("w")
    page.keyboard.press("d")
    assert int(state_of(page, "start")) > 0
    shot(page, "timeline")


def test_a_click_tells_all_of_an_event(page):
    go(page, "#timeline?ranks=0-3&open=2", "timeline")
    track = page.evaluate(
        "() => new Promise((r) => { const f = () => { const t = window.alltraceTimeline.tracks.get(2);"
        " t ? r('2/' + t.find((x) => x.group === 'collectives').key) : setTimeout(f, 50) }; f() })"
    )
    click_event(page, track, 3)
    details = page.locator(".details")
    details.get_by_text("The same operation on 4 ranks").wait_for()
    assert "Rank 2 arrived last; 3 others together waited" in details.inner_text()
    assert state_of(page, "event").startswith("2/collectives/")
    shot(page, "collective")
    page.keyboard.press(".")
    page.wait_for_timeout(600)
    first = state_of(page, "event")
    page.keyboard.press(",")
    page.wait_for_timeout(600)
    assert state_of(page, "event") != first


def test_what_the_clocks_cannot_tell_is_not_said(page):
    facts = {"sure": {1}}

    def doubt(route):
        answer = route.fetch()
        found = answer.json()
        for m in found["instance"]["members"]:
            m |= {"least_ns": 900_000, "certain": m["rank"] in facts["sure"]}
        found["instance"]["perhaps_last"] = [m["rank"] for m in found["instance"]["members"] if not m["certain"]]
        route.fulfill(response=answer, json=found)

    page.route("**/api/event?*", doubt)
    go(page, "#timeline?ranks=0-3&open=2&event=2/collectives/3", "timeline")
    told = page.locator(".details .sentence")
    told.wait_for()
    assert "Rank 0,2-3 arrived last: which of them, the clocks cannot tell; 1 other waited" in told.inner_text()
    assert "below what the clocks can tell (the clocks may be off by 900 µs)" in told.inner_text()
    assert page.locator("td:text-is('perhaps last to arrive')").count() == 3
    facts["sure"] = set()
    go(page, "#overview", "overview")
    go(page, "#timeline?ranks=0-3&open=2&event=2/collectives/3", "timeline")
    told.wait_for()
    assert "who was last, and how long others waited, is not known" in told.inner_text()
    assert page.locator("td:text-is('below what the clocks can tell')").count() == 4
    waits = page.locator(".details [aria-label=members] tbody tr td:nth-child(3)").all_inner_texts()
    assert waits == [""] * 4
    shot(page, "doubt")


def test_a_kernel_shows_its_call_and_ranges(page):
    go(page, "#timeline?ranks=1&open=1&event=1/kernels/100", "timeline")
    details = page.locator(".details")
    details.get_by_text("Launched by").wait_for()
    assert "cudaLaunchKernel" in details.inner_text()
    assert "step" in details.inner_text().lower()
    page.keyboard.press("f")
    settled(page)
    shot(page, "kernel")
    page.locator(".details >> text=cudaLaunchKernel").first.click()
    details.get_by_text("Launched", exact=True).wait_for()
    page.wait_for_url(re.compile("event=1/api/"))  # the address follows what is shown


def test_a_range_is_selected_and_counted(page):
    go(page, "#timeline?ranks=0-1&open=0", "timeline")
    settled(page)
    box = page.locator(".tracks").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 800, box["y"] + 10, steps=4)
    page.mouse.up()
    page.locator(".details h3:text-is('Totals by name')").wait_for()
    assert "compute" in page.locator(".details").inner_text()
    assert re.fullmatch(r"\d+-\d+", state_of(page, "range"))
    shot(page, "range")
    page.click(".details a:text-is('its events')")
    page.wait_for_selector("body[data-shown=events]")
    page.wait_for_selector("text=A row shows what came before")


def test_names_are_searched_by_expression(page):
    go(page, "#timeline?ranks=0-1&open=0", "timeline")
    settled(page)
    page.keyboard.press("/")
    page.keyboard.type("(?i)allreduce.*ring")
    page.keyboard.press("Enter")
    page.locator(".details table tbody tr").first.wait_for()
    page.wait_for_url(lambda address: "search=" in address)
    shot(page, "search")
    page.locator(".details table tbody tr").first.click()
    page.locator(".details summary:text-is('all columns')").wait_for()
    page.fill("input[aria-label^='search names']", "(")
    page.keyboard.press("Enter")
    page.locator(".details:has-text('not a valid regular expression')").wait_for()
    page.allowed.append("400")


def test_tracks_are_pinned_folded_and_measured_by_keyboard(page):
    go(page, "#timeline?ranks=0-2&open=0", "timeline")
    settled(page)
    page.focus(".tracks")
    page.keyboard.press("t")
    page.keyboard.press("t")
    page.keyboard.press("p")
    assert state_of(page, "pin")
    page.keyboard.press("]")
    page.locator(".details summary:text-is('all columns')").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    page.keyboard.press("d")
    page.keyboard.press("m")
    page.locator(".bar >> text=cursors").wait_for()
    assert len(state_of(page, "cursors").split(",")) == 2
    rows = page.evaluate("() => window.alltraceTimeline.rows.length")
    page.click("button:text-is('fold')")
    assert page.evaluate("() => window.alltraceTimeline.rows.length") < rows
    page.keyboard.press("?")
    assert page.locator("dialog[open]").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("5")
    page.wait_for_selector("body[data-shown=compare]")


def test_events_are_sorted_filtered_and_shown_with_their_neighbours(page):
    go(page, "#events?ranks=1&tables=kernels", "events")
    page.wait_for_selector("text=A row shows what came before")
    page.click("th button:text-is('duration')")
    cells = page.locator("tbody tr td:nth-child(6)")
    titles = [int(cells.nth(i).get_attribute("title").replace(",", "").split()[0]) for i in range(5)]
    assert titles == sorted(titles, reverse=True)
    assert state_of(page, "sort") == "-duration_ns"
    page.fill("input[aria-label='filter rows']", "flash")
    assert "flash" in page.locator("tbody tr").first.inner_text()
    page.locator("tbody tr td").first.click()  # the name leads to the timeline
    page.locator("h2:text-is('Before and after')").wait_for()
    with page.expect_download() as download:
        page.click("button:text-is('CSV') >> nth=0")
    text = Path(download.value.path()).read_text()
    assert text.startswith("rank,table,track,name,start,duration_ns,row\n1,kernels,")
    assert all("flash" in line for line in text.splitlines()[1:])
    shot(page, "events")


def test_what_lies_around_an_event_is_told_where_there_are_more_than_are_told_at_once(page):
    """The answer for the whole run is cut before the event: its first events are not those after it."""
    cut = {c: [v] for c, v in {"rank": 1, "table": "kernels", "row": 0, "name": "first of all"}.items()}
    cut |= {"track": [""], "start": [0], "duration_ns": [5], "complete": False}

    def answer(route):
        asked = route.request.post_data_json
        whole = asked["track"] and asked["start"] <= 0
        route.fulfill(json=cut) if whole else route.continue_()

    page.route(re.compile("/api/events"), answer)
    go(page, "#events?ranks=1&tables=kernels&sort=-start", "events")
    page.wait_for_selector("text=A row shows what came before")
    page.locator("tbody tr td").first.click()
    page.locator("h2:text-is('Before and after')").wait_for()
    told = page.locator("section[aria-label='before and after']").inner_text()
    assert "this" in told
    assert "first of all" not in told


def test_an_empty_selection_says_so(page):
    go(page, "#events?ranks=99", "events")
    page.wait_for_selector("text=The selection is empty")
    go(page, "#timeline?ranks=99", "timeline")
    page.wait_for_timeout(300)
    assert page.evaluate("() => window.alltraceTimeline.rows.length") == 0


def test_recipes_are_asked_with_their_picture(page):
    go(page, "#recipes?name=breakdown&ranks=0-1&o.span=run", "recipes")
    page.wait_for_selector("tbody tr")
    assert page.locator("tbody tr").count() == 2
    page.wait_for_selector(".picture .main-svg")
    assert page.eval_on_selector(".picture .main-svg", "s => getComputedStyle(s).position") == "absolute"
    shot(page, "recipes")
    page.select_option("label:has-text('recipe') select", "steps")
    page.wait_for_selector("th:has-text('step')")
    assert state_of(page, "name") == "steps"


def test_two_runs_are_compared_step_by_step(page):
    go(page, "#compare?step=3", "compare")
    page.wait_for_selector("h2:text-is('Breakdown, mean of the devices')")
    wait_inked(page, ".heat-scroll canvas", 10)
    rows = page.locator("[aria-label=differences] tbody tr")
    rows.first.wait_for()
    shot(page, "compare")
    heads = {mark: page.locator(f"h3 .mark-{mark}").first for mark in "ab"}
    assert [head.inner_text() for head in heads.values()] == ["A", "B"]
    assert len({head.evaluate("e => getComputedStyle(e).color") for head in heads.values()}) == 2
    more = page.locator("[aria-label=steps] tbody tr td:nth-child(5)").all_inner_texts()
    assert len(more) == 5
    assert all(float(t) < 0.95 for t in more[1:]), "the second run has no slow rank"


def test_things_of_two_runs_are_matched_by_what_they_are(page):
    """As the recipe `diff` has them: of the same call with the same steps."""
    found = asked_by_page(page, "/api/diff", {"what": "kernel", "steps": "2:3"})
    names = [c["name"] for c in found["columns"]]
    rows = [dict(zip(names, r, strict=True)) for r in found["rows"]]
    go(page, "#compare?step=2&what=kernel", "compare")
    table = page.locator("[aria-label=differences]")
    table.locator("tbody tr").first.wait_for()
    shown = table.locator("tbody tr")
    assert shown.count() == len(rows)
    assert shown.first.inner_text().split("\t")[1] == rows[0]["name"]
    assert rows[0]["p_value"] is not None
    for verdict in ("slower", "faster", "same"):
        page.select_option("label:has-text('verdict') select", verdict)
        assert shown.count() == sum(r["verdict"] == verdict for r in rows)
    assert (state_of(page, "what"), state_of(page, "verdict")) == ("kernel", "same")
    page.select_option("label:has-text('of') select", "step")
    page.select_option("label:has-text('verdict') select", "")
    page.wait_for_function("() => document.querySelectorAll('[aria-label=differences] tbody tr').length === 1")
    page.select_option("label:has-text('aligned at') select", "")
    page.wait_for_selector("text=whole runs, 4 ranks of A")
    assert state_of(page, "step") is None


def test_sql_is_asked_and_refused(page):
    go(page, "#sql", "sql")
    page.fill("textarea", "SELECT count(*) AS n FROM ranks")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("td:text-is('4')")
    page.fill("textarea", "DROP TABLE ranks")
    page.click("button:text-is('Run')")
    page.wait_for_selector("text=not a single statement that only reads")
    page.allowed.append("400")
    shot(page, "sql")


def test_a_url_shows_the_same_again(page, browser):
    go(
        page,
        "#timeline?ranks=1-2&open=2&start=20000000&end=60000000&event=2/kernels/50&cursors=30000000,40000000",
        "timeline",
    )
    page.locator(".details summary:text-is('all columns')").wait_for()
    settled(page)
    page.wait_for_timeout(400)
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector(".details summary:text-is('all columns')")
    same = (
        "() => { const t = window.alltraceTimeline; return JSON.stringify([t.span, t.ranks, [...t.open], t.chosen,"
        " t.cursors]) }"
    )
    assert other.evaluate(same) == page.evaluate(same)
    other.close()


def test_dark_and_light_differ_and_stay_chosen(page):
    wait_inked(page, ".heat-scroll canvas", 20)
    back = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(back)
    page.click("#theme")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    assert page.evaluate(back) != light
    page.wait_for_timeout(300)
    shot(page, "overview-dark")
    go(page, "#timeline?ranks=0-3&open=2", "timeline")
    settled(page)
    shot(page, "timeline-dark")
    page.reload()
    page.wait_for_selector("body[data-shown]")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("width", [360, 700, 2400])
def test_no_width_needs_scrolling_sideways(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    for view in ("overview", "timeline", "events", "sql", "compare"):
        go(page, f"#{view}", view)
        page.wait_for_timeout(500)
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth"), view
    go(page, "#overview", "overview")
    page.wait_for_timeout(300)
    shot(page, f"width-{width}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.emulate_media(color_scheme=scheme)
    script = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    # the dark one differs in its colours alone
    for hash_ in (
        "#overview",
        "#timeline?ranks=0-1&open=0&event=0/kernels/9",
        "#events?tables=copies",
        "#sql",
        "#recipes",
        "#compare",
    )[: 6 if scheme == "light" else 3]:
        view = hash_[1:].partition("?")[0]
        go(page, hash_, view)
        page.wait_for_timeout(700)
        page.evaluate(script)  # by the debugger, which the content policy does not bind
        found = page.evaluate("() => axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})")
        told = [(v["id"], v["nodes"][0]["html"][:120]) for v in found["violations"]]
        assert told == [], view


def test_the_keys_go_from_event_to_event_where_several_start_together(browser, tmp_path):
    spans = ((0, 9000), (10, 5000), (10, 3000), (10, 2000), (6000, 7000))
    rows = [{"start": s, "end": e, "name": f"r{i}", "kind": "pushpop", "depth": i} for i, (s, e) in enumerate(spans)]
    make_run(tmp_path / "run", {0: {"ranges": rows}})
    base, stop = served([tmp_path / "run"], tmp_path / "scratch")
    try:
        page = browser.new_page()
        page.goto(f"{base}?token={TOKEN}")
        page.wait_for_selector("body[data-shown]")
        page.goto(f"{base}#timeline?ranks=0&open=0&event=0/ranges/0")
        page.wait_for_selector("body[data-shown=timeline]")
        for key, names in (("]", "01234"), ("[", "43210")):
            for number in names:
                page.locator(f".details strong:text-is('r{number}')").wait_for(timeout=5000)
                if number != names[-1]:
                    page.keyboard.press(key)
        page.close()
    finally:
        stop()


def test_a_range_that_nobody_closed_is_shown_to_the_end_of_the_run(browser, tmp_path):
    rows = [
        {"start": s, "end": e, "name": n, "kind": "pushpop"} for s, e, n in ((0, 90_000, "all"), (60_000, None, "open"))
    ]
    make_run(tmp_path / "run", {0: {"ranges": rows}})
    base, stop = served([tmp_path / "run"], tmp_path / "scratch")
    try:
        page = browser.new_page()
        page.goto(f"{base}?token={TOKEN}")
        page.wait_for_selector("body[data-shown]")
        page.goto(f"{base}#timeline?ranks=0&open=0&start=0&end=1000&event=0/ranges/1")
        page.locator(".details strong:text-is('open')").wait_for()
        assert "30 µs from" in page.locator(".details .muted").first.inner_text()
        page.keyboard.press("f")
        assert (state_of(page, "start"), state_of(page, "end")) == ("56995", "93005")
        page.goto(f"{base}#timeline?ranks=0&open=0&start=0&end=1000&search=open")
        page.locator(".details tbody tr").first.click()
        page.locator(".details strong:text-is('open')").wait_for()
        assert int(state_of(page, "start")) <= 60_000 <= int(state_of(page, "end"))
        page.close()
    finally:
        stop()


def test_a_hostile_name_is_shown_and_does_nothing(browser, tmp_path):
    rows = rank_rows()
    rows["kernels"][0] |= {"name": HOSTILE, "short_name": HOSTILE}
    rows["ranges"][0] |= {"name": HOSTILE}
    make_run(tmp_path / "run", {0: rows, 1: {}})
    base, stop = served([tmp_path / "run"], tmp_path / "scratch")
    try:
        page = browser.new_page()
        page.goto(f"{base}?token={TOKEN}")
        page.wait_for_selector("body[data-shown]")
        requests = []
        page.on("request", lambda r: requests.append(r.url))
        page.goto(f"{base}#timeline?ranks=0-1&open=0&event=0/kernels/0&search=onerror")
        page.wait_for_selector(".details table tbody tr, .details h3")
        page.goto(f"{base}#events?ranks=0")
        page.wait_for_selector("tbody tr")
        assert HOSTILE in page.locator("tbody").inner_text()
        page.goto(f"{base}#recipes?name=kernels")
        page.wait_for_selector("tbody tr")
        page.wait_for_timeout(1000)
        assert page.title() == "run - alltrace"
        assert page.locator("img").count() == 0
        assert not [u for u in requests if u.endswith("/x") or "/static/x" in u]
        page.close()
    finally:
        stop()


def test_without_the_token_the_page_shows_nothing(browser, address):
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    assert "token is missing" in page.inner_text("body")
    shot(page, "token-missing")
    page.fill("#token", TOKEN)
    page.click("button")
    page.wait_for_selector("body[data-shown=overview]")
    context.close()


def test_the_server_gone_is_said(browser, tmp_path):
    make_run(tmp_path / "run", {0: rank_rows()})
    base, stop = served([tmp_path / "run"], tmp_path / "scratch")
    page = browser.new_page()
    page.goto(f"{base}?token={TOKEN}")
    page.wait_for_selector("body[data-shown]")
    stop()
    time.sleep(0.3)
    page.evaluate("() => { location.hash = '#timeline?ranks=0&open=0' }")
    page.wait_for_selector("#status.bad")
    assert "does not answer" in page.inner_text("#status")
    page.close()
