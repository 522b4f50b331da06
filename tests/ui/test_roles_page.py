"""Roles of ranks on the page: journeys in a real browser."""

import pytest
from tests.role_programs import Phase, write_program
from tests.ui.browser import go, served, settled, shot

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("playwright.sync_api")
pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A run whose roles take turns, of ranks that stand mixed."""
    folder = tmp_path_factory.mktemp("roles")
    write_program(
        folder / "run",
        3,
        [Phase({"rollout": 60}, 10), Phase({"trainer": 30}, 10)],
        {"trainer": (0, 2), "rollout": (1, 3)},
    )
    base, stop = served([folder / "run"], folder / "scratch")
    yield base
    stop()


def test_ranks_say_their_role_and_stand_in_its_order(page):
    go(page, "#timeline?ranks=0-3&open=-", "timeline")
    settled(page)
    labels = "() => window.alltraceTimeline.rows.filter((r) => r.head).map((r) => r.label)"
    assert page.evaluate(labels) == [f"rank {r} · host0 · {'rollout' if r % 2 else 'trainer'}" for r in range(4)]
    page.select_option("label:has-text('order by') select", "role")
    settled(page)
    assert [label.split(" ")[1] for label in page.evaluate(labels)] == ["1", "3", "0", "2"]
    shot(page, "roles-timeline")


def test_the_heat_map_is_grouped_by_role(page):
    page.get_by_text("take turns").first.wait_for()
    page.select_option("label:has-text('group by') select", "role")
    page.wait_for_function("() => location.hash.includes('group=role')")
    shot(page, "roles-overview")
