"""The rows of `docs/benchmarks.md` that the command writes in comments, with the day and the speed of the machine.

Rows are marked if the code that they measure has changed since: `python -m benchmarks --stale`.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = ["| what | against | ratio | figures |", "|---|---|---|---|"]

_CODE = {
    "import": ("core", "readers/nsys", "run"),
    "kineto": ("core", "readers/kineto", "run"),
    "ncu": ("core", "readers/ncu"),
    "export": ("core", "export"),
    "capture": ("capture", "instrument"),
    "history": ("history",),
    "report": ("report", "charts"),
}
"""The folders of `src/alltrace` that a suite measures; others measure all of it."""
_LOOP = 3_000_000
_BLOCK = re.compile(r"<!-- rows of: (\w+) -->\n(.*?)<!-- end of rows -->\n", re.DOTALL)
_DAY = re.compile(r"Measured on (\S+)")
_MARK = "These rows are older than the code that they measure, which changed on "


def loop_s() -> float:
    """Seconds that a fixed loop takes, the best of three: how fast the machine is at the moment."""
    best = float("inf")
    for _ in range(3):
        start, total = time.process_time(), 0
        for n in range(_LOOP):
            total += n & 7
        best = min(best, time.process_time() - start)
    return best


def machine() -> str:
    """The time, and how fast and how busy the machine is."""
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    speed = f"a loop of {_LOOP / 1e6:.0f} M additions takes {loop_s():.2f} s, load {os.getloadavg()[0]:.1f}"
    what = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"Measured on {now}: {speed}, {what}."


def with_rows(page: str, suite: str, where: str, rows: list[str]) -> str:
    """The text of the page with new rows of a suite. Raises `ValueError`: the page has no place for them."""
    block = "\n".join(
        [f"<!-- rows of: {suite} -->", f"`python -m benchmarks {suite} --record`. {where}", "", *HEAD, *rows]
    )
    place = rf"<!-- rows of: {suite} -->\n.*?<!-- end of rows -->\n"
    changed, count = re.subn(place, lambda _: f"{block}\n<!-- end of rows -->\n", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(
            f"{PAGE.name} has {count} places for the rows of {suite}; expected one `<!-- rows of: {suite} -->`"
        )
    return changed


def changed_on(suite: str) -> str:
    """When the code that a suite measures was last changed, by the last commit, in UTC."""
    paths = [f"src/alltrace/{folder}" for folder in _CODE.get(suite, ("",))]
    command = ["git", "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--", *paths]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "TZ": "UTC"}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def marked(page: str, changes: dict[str, str]) -> tuple[str, list[str]]:
    """The page with a mark at rows older than changes of their code, and the suites that have one."""
    old: list[str] = []

    def mark(match: re.Match[str]) -> str:
        suite, text = match[1], match[2]
        lines = [line for line in text.splitlines() if not line.startswith(_MARK)]
        day = _DAY.search(text)
        while lines and not lines[-1]:
            lines.pop()
        if day is not None and day[1].rstrip(":") < changes[suite]:
            old.append(suite)
            lines += ["", f"{_MARK}{changes[suite][:10]}."]
        return "\n".join([f"<!-- rows of: {suite} -->", *lines, "<!-- end of rows -->", ""])

    return _BLOCK.sub(mark, page), old


def suites_of(page: str) -> list[str]:
    """The suites with rows on the page."""
    return [match[1] for match in _BLOCK.finditer(page)]
