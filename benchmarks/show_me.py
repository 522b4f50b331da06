"""What *show me* shows: `python -m benchmarks.show_me FOLDER [--ranks N]... [--kind KIND]... [--seed S] [--pictures]`.

Runs with one slow rank each, of six kinds of finding and up to five sizes, are simulated, imported and served; Chromium
presses *show me* of the finding at two sizes of the window. A screen counts if, without scrolling, its first row is the
planted rank, open and with tracks below it, its second row a rank that is not to blame with tracks of the same kinds,
the chosen event is drawn in a step that is judged, and a sentence stands above the tracks. The table and the misses are
printed; the last line is the score.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.ui import server

RANKS = (4, 16, 64, 256, 1024)
SIZES = ((1440, 900), (900, 700))
KINDS = {
    "slow-rank": "factor=1.4",
    "imbalance": "extra=0.6",
    "data-stall": "stall_ns=20000000",
    "host-pause": "pause_ns=40000000:every=2",
    "pageable-copy": "gb_per_s=0.5",
    "sync-copy": "size_bytes=8388608",
}
STEPS = 6
MEASURED = """(rank) => {
  const t = window.alltraceTimeline;
  const box = t.tracksBox.getBoundingClientRect();
  const shown = t.rows.filter((r) => t.top(r) + r.height > 0 && t.top(r) + r.height <= t.height && r.key !== 'query');
  const heads = shown.filter((r) => r.head).map((r) => r.rank);
  const own = (of) => shown.filter((r) => !r.head && r.rank === of).map((r) => r.key.split('/')[0]);
  const missing = (t.rows.filter((r) => !r.head && r.rank === heads[1]).length || 1) - own(heads[1]).length;
  const own_track = t.facts && `${t.facts.rank}/${t.facts.track}`;
  const chosen = t.hits.find((h) => h.track === own_track && h.tile.arrays.row[h.item] === t.facts.row);
  const sentence = document.querySelector('.main-sentence');
  const details = document.querySelector('.details').getBoundingClientRect();
  const step = t.facts && t.ctx.run.steps.find((s) => s.start <= t.facts.span.start && t.facts.span.start < s.end);
  return {
    'the culprit is the first row': heads[0] === rank,
    'its tracks are open': own(heads[0]).length > 0,
    'the peer is the second row with all its tracks': heads.length > 1 && own(heads[1]).length > 0 && missing <= 0,
    'both have the same kinds of tracks': String([...new Set(own(heads[0]))]) === String([...new Set(own(heads[1]))]),
    'what is chosen is drawn': !t.chosen || Boolean(chosen && chosen.x + chosen.w > t.left && chosen.x < t.width
      && chosen.y + chosen.h <= t.height),
    'its step is judged': !t.ctx.run.steps.length || !t.facts || step?.kind === 'step',
    'a sentence stands above': Boolean(sentence && new RegExp(`ank ${rank}[^0-9]`).test(sentence.innerText)
      && sentence.getBoundingClientRect().bottom <= box.top),
    'the details take a third': details.height <= window.innerHeight / 3 + 1,
    'all of it is on the screen': box.bottom <= window.innerHeight && details.bottom <= window.innerHeight + 1,
  };
}"""
SETTLED = (
    "() => { const t = window.alltraceTimeline; return t && t.store.tiles.size > 0 && t.store.flying.size === 0"
    " && [...t.open].every((r) => t.tracks.has(r)) && (!t.chosen || t.facts)"
    " && document.querySelector('.main-sentence')?.innerText }"
)


def main() -> None:
    """Make the runs, look at each, print the score."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.show_me", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures are written, with --pictures")
    parser.add_argument(
        "--ranks", type=int, action="append", help="only runs of as many ranks; may be given more than once"
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; may be given more than once")
    parser.add_argument("--seed", type=int, default=1, help="which rank is slow, and the simulation's own seed")
    parser.add_argument(
        "--pictures", action="store_true", help="write a picture of each screen, light and dark in turn"
    )
    args = parser.parse_args()
    if args.pictures:
        args.folder.mkdir(parents=True, exist_ok=True)
    drawn = random.Random(args.seed)
    good = total = 0
    for ranks in args.ranks or RANKS:
        for kind in args.kind or KINDS:
            culprit, begin = drawn.randrange(1, ranks), time.monotonic()
            with tempfile.TemporaryDirectory(prefix="alltrace-show-") as folder:
                run = made(Path(folder), ranks, kind, culprit, args.seed)
                screens = looked_at(run, culprit, args.folder / f"{ranks}-{kind}" if args.pictures else None)
            for size, misses in screens.items():
                total, good = total + 1, good + (not misses)
                print(f"{ranks} ranks, {kind}, {size}: {'; '.join(misses) or 'all'}", flush=True)
            print(f"  {time.monotonic() - begin:.0f} s", file=sys.stderr)
    print(f"{good} of {total} screens show the culprit, a peer and the event")


def made(folder: Path, ranks: int, kind: str, culprit: int, seed: int) -> Path:
    """A run of `ranks` ranks, one of which has a fault."""
    from alltrace.run.importer import import_reports
    from alltrace.synth import write_run
    from alltrace.synth.faults.parse import parse_fault

    fault = parse_fault(f"{kind}:ranks={culprit}:{KINDS[kind]}")
    hosts = max(ranks // 8, 1)
    write_run(
        "healthy", folder / "reports", ranks=ranks, hosts=hosts, steps=STEPS, seed=seed, faults=(fault,), ideal=True
    )
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    shutil.rmtree(folder / "reports")
    return folder / "run"


def looked_at(run: Path, culprit: int, pictures: Path | None) -> dict[str, list[str]]:
    """What each screen lacks, by the size of the window."""
    from playwright.sync_api import sync_playwright

    process, address = server(run)
    try:
        with sync_playwright() as play:
            path = os.environ.get("ALLTRACE_CHROMIUM") or shutil.which("chromium")
            browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
            screens = {}
            for (width, height), scheme in zip(SIZES, ("light", "dark"), strict=True):
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
                page.set_default_timeout(60_000)
                page.goto(address)
                page.wait_for_selector(
                    ".told .verdict:not(.muted), #status.bad", timeout=600_000
                )  # minutes for very many ranks
                if pictures is not None:
                    page.screenshot(path=f"{pictures}-{width}-overview.png")
                screens[f"{width}x{height}"] = shown(page, culprit)
                if pictures is not None:
                    page.screenshot(path=f"{pictures}-{width}.png")
                page.close()
            browser.close()
    finally:
        process.kill()
        process.wait()
    return screens


def shown(page: Any, culprit: int) -> list[str]:
    """What the screen behind *show me* lacks; the finding is the one that names the rank."""
    buttons = page.locator(".finding", has_text=f"ank {culprit} ").get_by_text("show me")
    if not buttons.count():
        return [f"no finding names rank {culprit} and has a place"]
    buttons.first.click()
    page.wait_for_selector("body[data-shown=timeline]")
    try:
        page.wait_for_function(SETTLED, timeout=20_000)
    except Exception as error:  # what is missing is printed
        print(f"  {type(error).__name__} while waiting", file=sys.stderr)
    page.wait_for_timeout(300)
    return [what for what, is_so in page.evaluate(MEASURED, culprit).items() if not is_so]


if __name__ == "__main__":
    main()
