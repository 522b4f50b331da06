"""The roofline of kernel reports in a real browser."""

from pathlib import Path

import pytest
from tests.ncu_launches import A100, ELAPSED, measured, of
from tests.ui.browser import go, served, shot, state_of
from tests.ui.conftest import HOSTILE

from alltrace.synth import write_run
from alltrace.synth.kernels import ALL_KERNELS

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("playwright.sync_api")
pytest.importorskip("uvicorn")

F = "smsp__sass_thread_inst_executed_op_f"


def launch(kernel, number, work, read, *, duration=100_000.0, more=None):
    """A launch of a kernel of the simulated model that did `work` FP32 operations and moved `read` bytes at each
    level."""
    metrics = {
        f"{F}add_pred_on.sum": work,
        f"{F}mul_pred_on.sum": 0.0,
        f"{F}fma_pred_on.sum": 0.0,
        "gpu__time_duration.sum": duration,
        "dram__bytes.sum": read,
        "lts__t_bytes_srcunit_tex.sum": 2 * read,
        "l1tex__t_bytes.sum": 4 * read,
        f"sm__throughput{ELAPSED}": 20.0,
        f"gpu__compute_memory_throughput{ELAPSED}": 75.0,
        "launch__occupancy_limit_registers": 2.0,
        "launch__occupancy_limit_warps": 4.0,
        "sm__maximum_warps_per_active_cycle_pct": 50.0,
        "lts__t_sectors_srcunit_tex.sum": read / 16,
        "lts__t_sectors_srcunit_tex.sum.pct_of_peak_sustained_elapsed": 40.0,
    }
    return measured(A100 | metrics | (more or {}), number, kernel.demangled, kernel.grid, kernel.block)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A run, and a report of three of its kernels, one with a hostile name, and one that counts no operations."""
    from alltrace.run.importer import import_reports
    from alltrace.ui.kernels import KernelReports

    folder = tmp_path_factory.mktemp("roofline")
    write_run("healthy", folder / "reports", ranks=2, steps=3, ideal=True)
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    gemm, norm, attention = ALL_KERNELS[:3]
    memory, sm = f"gpu__compute_memory_throughput{ELAPSED}", f"sm__throughput{ELAPSED}"
    launches = of(
        launch(
            gemm, 0, 1.5e9, 2e7, more={sm: 85.0, memory: 30.0, f"sm__pipe_tensor_op_hmma_cycles_active{ELAPSED}": 70.0}
        ),
        launch(norm, 1, 1e8, 9e7),
        launch(attention, 2, 6e8, 5e7),
        measured(A100 | {"gpu__time_duration.sum": 900.0}, 3, "memset(char *)"),
        measured(dict(launch(norm, 4, 3e7, 1e7).metrics), 4, HOSTILE),
    )
    base, stop = served([folder / "run"], folder / "scratch", KernelReports(launches))
    yield base
    stop()


def weighed(page):
    page.wait_for_selector(".roof-picture p:has-text('are in the run')")


def test_points_lie_under_ceilings_and_are_weighed_by_the_run(page):
    go(page, "#roofline", "roofline")
    weighed(page)
    assert "3 of 5 launches are in the run" in page.inner_text(".roof-picture p")
    assert "4 launches as points; 1 without one" in page.inner_text("main")
    points = page.locator(".roof-point")
    assert points.count() == 4
    radius = {int(p.get_attribute("data-of")): float(p.get_attribute("r")) for p in points.all()}
    assert radius[0] > radius[1] > radius[4], "the product has the most time in the run, the hostile one none"
    # where points and ceilings lie, from the picture alone: the intensity of launch 0 is 75, of launch 1 is 1.1
    at = {int(p.get_attribute("data-of")): float(p.get_attribute("cx")) for p in points.all()}
    assert at[1] < at[4] < at[2] < at[0]
    names = page.locator(".roof-name").all_text_contents()
    assert "DRAM 1.56 TB/s" in names
    assert "FP32 19.5 TFLOP/s" in names
    rows = page.locator(".roof-table tbody tr")
    assert rows.count() == 5
    assert rows.nth(0).get_attribute("data-key") == "0", "the most time in the run first"
    assert "compute bound" in rows.nth(0).inner_text()
    assert "registers" in rows.nth(0).inner_text()
    shot(page, "roofline")


def test_a_point_tells_all_of_its_launch(page):
    go(page, "#roofline", "roofline")
    weighed(page)
    page.locator(".roof-point[data-of='1']").hover()
    page.wait_for_selector(".tip:has-text('FLOP per byte of DRAM')")
    page.locator(".roof-point[data-of='1']").click()
    details = page.locator("section[aria-label=launch]")
    details.locator("h3:text-is('Advice')").wait_for()
    assert "layer_norm_forward_kernel" in details.inner_text()
    assert "memory bound" in details.inner_text()
    assert "In the run:" in details.inner_text()
    assert page.locator("tr.chosen").get_attribute("data-key") == "1"
    assert state_of(page, "launch") == "1"
    shot(page, "roofline-launch")
    page.click("text=find it on the timeline")
    page.wait_for_selector("body[data-shown=timeline]")
    page.locator(".details table tbody tr").first.wait_for()


def test_precision_and_memory_level_are_chosen(page):
    go(page, "#roofline", "roofline")
    weighed(page)
    page.select_option("label:has-text('memory') select", "all")
    assert page.locator(".roof-point").count() == 12, "a point for each of three levels"
    assert page.locator(".roof-line.strong").count() == 4
    page.select_option("label:has-text('memory') select", "L1")
    assert page.locator(".roof-point").count() == 4
    x = float(page.locator(".roof-point[data-of='1']").get_attribute("cx"))
    page.select_option("label:has-text('precision') select", "FP16/BF16 tensor")
    assert page.locator(".roof-point").count() == 1
    assert (state_of(page, "precision"), state_of(page, "level")) == ("FP16%2FBF16+tensor".replace("%2F", "/"), "L1")
    assert x > 0


def test_it_is_used_by_keyboard_and_an_address_shows_it_again(page):
    go(page, "#roofline?level=L2&launch=2", "roofline")
    weighed(page)
    assert page.locator(".roof-point.chosen").get_attribute("data-of") == "2"
    assert page.eval_on_selector("label:has-text('memory') select", "s => s.value") == "L2"
    page.focus(".roof-point[tabindex='0']")
    assert page.evaluate("() => document.activeElement.getAttribute('data-of')") == "2"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("() => document.activeElement.getAttribute('data-of')") == "0"
    page.keyboard.press("Enter")
    assert state_of(page, "launch") == "0"
    x = page.locator(".roof-point[data-of='1']").get_attribute("cx")
    page.keyboard.press("w")
    assert page.locator(".roof-point[data-of='1']").get_attribute("cx") != x
    page.keyboard.press("0")
    assert page.locator(".roof-point[data-of='1']").get_attribute("cx") == x
    page.locator(".roof-table tbody tr").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator(".roof-point.chosen").get_attribute("data-of") == page.locator("tr.chosen").get_attribute(
        "data-key"
    )


def test_a_hostile_name_is_text_and_no_width_scrolls_sideways(page):
    for width in (360, 900, 2200):
        page.set_viewport_size({"width": width, "height": 800})
        go(page, "#overview", "overview")
        go(page, "#roofline?launch=4", "roofline")
        weighed(page)
        assert HOSTILE in page.inner_text("section[aria-label=launch] h2")
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
        wide = "() => { const m = document.querySelector('main'); return m.scrollWidth - m.clientWidth }"
        assert page.evaluate(wide) <= 0
        shot(page, f"roofline-{width}")
    assert page.title() == "run - alltrace"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.emulate_media(color_scheme=scheme)
    go(page, "#roofline?launch=0", "roofline")
    weighed(page)
    shot(page, f"roofline-{scheme}")
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})")
    assert [(v["id"], v["nodes"][0]["html"][:160]) for v in found["violations"]] == []
