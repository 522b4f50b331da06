"""Builds docs/ into build/site, with Sphinx, MyST and Furo. `python tools/make_site.py`; needs `alltrace[docs]`.

Sphinx, because it is maintained, reads the pages as GitHub does, and fails on a link or an anchor that leads nowhere.
docs/recipes.md stays one page, and each recipe and report also gets its own page. The home page is README.md.
Links to files that are not pages lead to `SITE_REPOSITORY`; without it they are plain text.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"
REPOSITORY = os.environ.get("SITE_REPOSITORY", "")
"""The address to browse files of the repository, such as `https://github.com/OWNER/NAME/blob/main/`."""

_NAV = {
    "Start": ("start",),
    "Guides": (
        "guides/slow-job",
        "guides/job-hangs",
        "guides/slow-rank",
        "guides/network",
        "guides/data-loader",
        "guides/compare-runs",
        "guides/first-profile",
        "guides/first-profile-512",
        "guides/nccl-logs",
        "guides/ray",
        "guides/from-hta",
        "guides/from-tensorboard",
        "guides/from-nsys",
        "guides/from-nsys2prv",
        "guides/from-perfetto",
    ),
    "Concepts": ("concepts/clocks", "concepts/waiting", "concepts/replay", "diagnose"),
    "Reference": (
        "cli",
        "recipes",
        "recipes/index",
        "tables",
        "history",
        "library",
        "ui",
        "capture",
        "capture-scripts",
        "logs",
        "kineto",
        "jax",
        "rocm",
        "ncu",
        "kernel-rules",
        "export",
        "nsys-drop-in",
        "mcp",
        "synth",
        "write-a-recipe",
        "stability",
    ),
    "How right, how fast, how safe": (
        "accuracy",
        "reports",
        "recorders",
        "benchmarks",
        "scale",
        "quality",
        "nsys-differences",
        "hta-differences",
        "architecture",
    ),
}
_PART = re.compile(r"^# (?P<title>.+)$", re.MULTILINE)
_RECIPE = re.compile(r"^## `(?P<name>[^`]+)`$\n(?P<text>.*?)(?=^#{1,2} |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<text>\[[^][]*\])\((?!https?:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_FOLDERS = {"The recipes of nsys": "nsys-recipes", "The reports of nsys stats": "stats"}


def main() -> int:
    """Build the site; the exit code is Sphinx's, which is not 0 if it has a warning."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path, text in pages().items():
        target = SOURCE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "images", SOURCE / "images")
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(ROOT / "tools" / "site")]
    return subprocess.run([sys.executable, "-m", "sphinx", *options, str(SOURCE), str(SITE)], check=False).returncode


def pages() -> dict[str, str]:
    """The source of each page, by its path in the site."""
    docs = ROOT / "docs"
    found = {str(p.relative_to(docs)): _outward(p, p.read_text(encoding="utf-8")) for p in sorted(docs.rglob("*.md"))}
    recipes = _recipe_pages(found["recipes.md"])
    home = _outward(ROOT / "README.md", (ROOT / "README.md").read_text(encoding="utf-8")).replace("](docs/", "](")
    trees = "".join(_tree(caption, names) for caption, names in _NAV.items())
    return {**found, **recipes, "recipes/index.md": _index(recipes), "index.md": f"{home}\n{trees}"}


def _outward(page: Path, text: str) -> str:
    """`text` with links to files that are not pages of the site led to the repository."""

    def led(found: re.Match[str]) -> str:
        target = (page.parent / found["path"]).resolve()
        if target.is_relative_to(ROOT / "docs") or not target.is_relative_to(ROOT):
            return found[0]
        address = f"{REPOSITORY}{target.relative_to(ROOT)}{found['anchor'] or ''}"
        return f"{found['text']}({address})" if REPOSITORY else found["text"][1:-1]

    return _LINK.sub(led, text)


def _recipe_pages(whole: str) -> dict[str, str]:
    """A page for each recipe and report of docs/recipes.md."""
    made = {}
    starts = [*(found.start() for found in _PART.finditer(whole)), len(whole)]
    for begin, end in itertools.pairwise(starts):
        title = whole[begin:end].partition("\n")[0].removeprefix("# ")
        folder = _FOLDERS.get(title, "recipes")
        for found in _RECIPE.finditer(whole, begin, end):
            text = _LINK.sub(
                lambda link: f"{link['text']}(../{link['path']}{link['anchor'] or ''})", found["text"]
            ).replace("](#", "](../recipes.md#")
            made[f"{folder}/{found['name']}.md"] = f"# `{found['name']}`\n{text}"
    return made


def _index(recipes: dict[str, str]) -> str:
    """A page that lists the pages of recipes and reports by their first sentence."""
    lines = ["# Each recipe and report", ""]
    titles = {"recipes": "Recipes", "nsys-recipes": "The recipes of nsys", "stats": "The reports of nsys stats"}
    for folder, title in titles.items():
        names = [path for path in recipes if path.startswith(f"{folder}/")]
        lines += [f"## {title}", "", *(f"* [`{Path(n).stem}`](../{n})" for n in names), ""]
        lines += ["```{toctree}", ":hidden:", *(f"/{n.removesuffix('.md')}" for n in names), "```", ""]
    return "\n".join(lines)


def _tree(caption: str, names: tuple[str, ...]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *names, "```", "", ""])


if __name__ == "__main__":
    raise SystemExit(main())
