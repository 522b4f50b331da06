"""The site builds without a warning, and has a page for each page of docs/ and for each recipe and report."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools import make_site

from alltrace.recipes.registry import NVIDIA_RECIPES, RECIPES, REPORTS

ROOT = Path(__file__).resolve().parents[1]


def test_every_recipe_and_report_has_a_page():
    pages = make_site.pages()
    assert {f"recipes/{n}.md" for n in RECIPES if n not in NVIDIA_RECIPES} <= set(pages)
    assert {f"nsys-recipes/{n}.md" for n in NVIDIA_RECIPES} <= set(pages)
    assert {f"stats/{n}.md" for n in REPORTS} <= set(pages)
    assert pages["recipes/breakdown.md"].startswith("# `breakdown`\n")


def test_links_to_files_that_are_no_pages_lead_to_the_repository(monkeypatch):
    text = "see [the source](../src/alltrace/api.py#L1) and [verbs](cli.md#exit-codes)"
    page = make_site.ROOT / "docs" / "ui.md"
    assert make_site._outward(page, text) == "see the source and [verbs](cli.md#exit-codes)"
    monkeypatch.setattr(make_site, "REPOSITORY", "https://example.org/")
    assert "[the source](https://example.org/src/alltrace/api.py#L1)" in make_site._outward(page, text)


@pytest.mark.slow
def test_the_site_builds_without_a_warning():
    pytest.importorskip("sphinx")
    done = subprocess.run([sys.executable, "tools/make_site.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (make_site.SITE / "start.html").is_file()
