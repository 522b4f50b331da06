"""The page's modules, checked by TypeScript where it is installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.together import together

import alltrace.ui

SOURCE = Path(alltrace.ui.__file__).parents[1]
STATIC = SOURCE / "ui" / "static"
MODULES = sorted(STATIC.glob("*.js"))
OPTIONS = (
    "--noEmit --allowJs --checkJs --strict --target es2022 --module es2022 --moduleResolution bundler --lib"
    " es2022,dom,dom.iterable"
)


@pytest.mark.slow
def test_types_are_right():
    tsc = shutil.which("tsc")
    if tsc is None:
        pytest.skip("no tsc: npm install -g typescript")
    done = subprocess.run([tsc, *OPTIONS.split(), *map(str, MODULES)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@together("module", MODULES)
def test_every_module_is_checked_short_and_makes_no_markup_of_text(module):
    text = module.read_text(encoding="utf-8")
    assert text.startswith("// @ts-check\n")
    assert len(text.splitlines()) <= 700
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(.style", text
    )
    assert not re.search(r"https?://", text), "nothing is loaded from elsewhere"


@together("path", sorted(path for name in ("*.js", "*.css", "*.html") for path in SOURCE.rglob(name)))
def test_lines_have_at_most_120_columns(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > 120] == []


def test_the_page_has_no_script_or_style_of_its_own():
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)


def test_every_module_that_is_named_is_there():
    names = {
        m
        for path in (*MODULES, STATIC / "index.html")
        for m in re.findall(r'"(?:\./|/static/)([\w-]+\.js)"', path.read_text())
    }
    assert len(names) > 30
    assert names <= {path.name for path in MODULES}
