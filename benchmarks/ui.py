"""Large runs' page: `python -m benchmarks.ui [--ranks 1024] [--steps 126] [--folder FOLDER] [--keep] [--starts]`.

Sixteen ranks are simulated and imported; all others are hard links to their tables under other numbers and hosts, so
that little disk is used and the files of a rank are read as often as there are ranks. The run is aligned and tiled like
any other. Then the server is started as a separate process, queried for tiles of random views, and opened with
Chromium.

With `--starts` all that is kept of the run is removed, and a browser opens the page of a first start and of a second
one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from alltrace.run.overlay import ALIGN
from alltrace.run.verify import FINDINGS, OPERATIONS, TILES

BASE = 16
FOLDER = Path(__file__).parent / "data" / "ui"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=126, help="steps of the run; 126 make 100 k rows a rank")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument(
        "--keep", action="store_true", help="look at the pyramid that is there instead of building it again"
    )
    parser.add_argument("--server-only", action="store_true", help="do not look at it with a browser")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the run lies; made where it is not there")
    parser.add_argument(
        "--starts", action="store_true", help="measure a first and a second start of the page, and nothing else"
    )
    args = parser.parse_args()
    run, import_cpu_s = made_run(args.folder, args.ranks, args.steps, keep=args.keep)
    if args.starts:
        for made in (ALIGN, OPERATIONS, TILES, FINDINGS):
            shutil.rmtree(run / made, ignore_errors=True)
        for which in ("first", "second"):
            told([(f"{which} start, {what}", value) for what, value in started(run)])
        print(f"{args.ranks} ranks, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end")
        return
    told(build(run, import_cpu_s, args.ranks))
    process, address = server(run)
    try:
        told(asked(address, args.requests))
        if not args.server_only:
            told(looked_at(address))
        told([("server memory, largest", f"{memory_mb(process.pid):.0f} MB")])
    finally:
        process.terminate()
        process.wait(20)
    print(f"{args.ranks} ranks, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end")


def told(rows: list[tuple[str, str]]) -> None:
    for name, value in rows:
        print(f"| {name} | {value} |", flush=True)


def cpu_s() -> float:
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def made_run(folder: Path, ranks: int, steps: int, *, keep: bool) -> tuple[Path, float]:
    """The run, and the CPU seconds that importing all of its ranks would take."""
    from alltrace.run.importer import import_reports
    from alltrace.run.manifest import Clock, read_manifest, write_manifest
    from alltrace.synth import write_run

    run, facts = folder / f"run-{ranks}-{steps}", folder / f"run-{ranks}-{steps}.json"
    if facts.is_file():
        if not keep:
            shutil.rmtree(run / "tiles", ignore_errors=True)
        return run, float(json.loads(facts.read_text())["import_cpu_s"])
    making = folder / f"{run.name}.making"
    for left in (making, run):  # by one that was stopped; other files in the folder belong to the user
        shutil.rmtree(left, ignore_errors=True)
    reports, base = making / "reports", making / "base"
    write_run("straggler", reports, ranks=BASE, steps=steps, ideal=True)
    before = cpu_s()
    import_reports([str(reports)], base, jobs=2)
    took = (cpu_s() - before) * ranks / BASE
    shutil.rmtree(reports)
    manifest = read_manifest(base)
    run.mkdir()
    shutil.copy(base / "names.parquet", run)
    records = []
    for number in range(ranks):
        like = manifest.ranks[number % BASE]
        host = like.host if number < BASE else f"{like.host}-{number // BASE:03d}"
        record = like._replace(rank=number, host=host, devices=tuple(d._replace(host=host) for d in like.devices))
        (run / record.folder).mkdir(parents=True)
        for file in (base / like.folder).iterdir():
            os.link(file, run / record.folder / file.name)
        records.append(record)
    first = {c.host: c for c in manifest.clocks}
    clocks = [Clock(h, first.get(h, Clock(h)).offset_ns) for h in dict.fromkeys(r.host for r in records)]
    write_manifest(run, replace(manifest.with_ranks(records), clocks=tuple(clocks)))
    shutil.rmtree(making)
    facts.write_text(json.dumps({"import_cpu_s": took}))
    return run, took


def size_of(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def build(path: Path, import_cpu_s: float, ranks: int) -> list[tuple[str, str]]:
    from alltrace.align.store import aligned
    from alltrace.api import OpenRun
    from alltrace.tiles.build import pyramid

    run = OpenRun(path)
    before, start = cpu_s(), time.monotonic()
    aligned(run)
    align_s, align_cpu = time.monotonic() - start, cpu_s() - before
    size = size_of(path) - size_of(path / "tiles")
    before, start = cpu_s(), time.monotonic()
    made = pyramid(run)
    took, cpu = time.monotonic() - start, cpu_s() - before
    rows = sum(sum(r.rows.values()) for r in run.ranks)
    share = 100 * size_of(made.folder) / size
    return [
        ("rows", f"{rows:,} ({rows // ranks:,} a rank), {size / 1e6:.0f} MB of tables"),
        ("alignment, once", f"{align_s:.0f} s, {align_cpu:.0f} CPU s"),
        ("pyramid build", f"{took:.0f} s, {cpu:.0f} CPU s; the import takes {import_cpu_s:.0f} CPU s"),
        ("pyramid size", f"{size_of(made.folder) / 1e6:.1f} MB, {share:.1f} % of the run directory"),
    ]


def started(run: Path) -> list[tuple[str, str]]:
    """When what is on the page, in s since the command and since the page was opened; it is opened at once."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("ALLTRACE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(600_000)
        begun = time.monotonic()
        process, address = server(run)
        try:
            opened = time.monotonic() - begun
            page.goto(address)
            times = {"heat map of the ranks in view": opened + page.evaluate(_PAINTED) / 1000}
            while len(times) <= len(_LATER):
                seen = page.evaluate(_SEEN)
                times |= {what: opened + seen["now"] / 1000 for what in _LATER if seen[what] and what not in times}
                time.sleep(0.05)
            told = [
                f"{at:.1f} s since the command, {at - opened:.1f} s since the page was opened" for at in times.values()
            ]
            cpu = ("CPU time of the server, without its processes", f"{cpu_s_of(process.pid):.1f} s")
            memory = ("server memory, largest", f"{memory_mb(process.pid):.0f} MB")
            return [("address", f"{opened:.1f} s since the command"), *zip(times, told, strict=True), cpu, memory]
        finally:
            browser.close()
            process.terminate()
            process.wait(20)


_LATER = ("clocks aligned", "heat map of all ranks", "where the time went", "findings")
_SEEN = """async () => {
  const headers = {authorization: `Bearer ${sessionStorage.getItem('alltrace-token')}`};
  const state = await (await fetch('/api/state', {headers})).json();
  const there = (selector) => document.querySelector(selector) !== null;
  return {
    'clocks aligned': state.aligned,
    'heat map of all ranks': state.ready,
    'where the time went': there('.jobbar'),
    findings: there('.finding'),
    now: performance.now(),
  };
}"""


def server(run: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "alltrace.cli.main", "ui", str(run), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    if not address:
        raise SystemExit(f"the server of {run} did not start; remove the folder where it was made by another version")
    return process, address


def memory_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def cpu_s_of(pid: int) -> float:
    """The CPU time of a process, without its children."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def asked(address: str, requests: int) -> list[tuple[str, str]]:
    """Fresh tiles of random views: a screen of 24 folded ranks or of the tracks of four, at random times and zooms."""
    parts = urlsplit(address)
    token = parts.query.partition("=")[2]
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)

    def ask(method: str, path: str, body: Any = None) -> tuple[tuple[float, float], bytes]:
        """Wall and CPU ms in the server, and the answer."""
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        wall, cpu = (
            float(n) for n in re.findall(r"dur=([\d.]+)", response.headers.get("server-timing", "dur=nan dur=nan"))
        )
        return (wall, cpu), response.read()

    begun = time.monotonic()
    while not json.loads(ask("GET", "/api/run")[1])["state"]["ready"]:
        time.sleep(0.05)
    opened = time.monotonic() - begun
    facts = json.loads(ask("GET", "/api/run")[1])
    span, ranks, level = facts["grid"]["span_ns"], facts["run"]["ranks"], facts["grid"]["level"]
    draw = random.Random(7)
    times: dict[str, list[tuple[float, float]]] = {"new": [], "paused": [], "folded": [], "open": [], "heat": []}
    for turn in range(requests // 12):
        some = draw.randrange(max(ranks - 24, 1))
        wanted = list(range(some, min(some + 4, ranks)))
        found = json.loads(ask("POST", "/api/tracks", {"ranks": wanted})[1])["tracks"]
        screens = {
            "folded": [f"{r}/summary" for r in range(some, min(some + 24, ranks))],
            "open": [f"{r}/{t['key']}" for r in wanted for t in found[str(r)]],
        }
        levels = [max(0, int(span / 1400 / 4**step).bit_length() - 1) for step in range(12)]
        fresh = next(n for n, at in enumerate(levels) if at < level)
        for kind, tracks in screens.items():
            # from the whole run to nanoseconds, as somebody zooms who looks for something
            for step, at in enumerate(levels):
                most = max(span // (512 << at) - 3, 0)
                body = {
                    "tracks": tracks,
                    "level": at,
                    "first": min(int(0.6 * most) + draw.randrange(3), most),
                    "count": 4,
                }
                # a view coarser than the bins reads no events: the first finer view reads those of ranks not shown
                # before, as far as the server has not read them ahead, for which it has time if a user looks at each
                # view
                if step == fresh and turn % 2:
                    time.sleep(0.25)
                times[kind if step != fresh else "paused" if turn % 2 else "new"].append(
                    ask("POST", "/api/tiles", body)[0]
                )
        for metric in ("busy", "compute", "exposed", "waiting", "idle"):
            at = level + draw.randrange(4)
            index = draw.randrange(max(span // (512 << at), 0) + 1)
            times["heat"].append(ask("GET", f"/api/heat?metric={metric}&level={at}&index={index}")[0])
    areas = []
    for turn in range(6):
        some, start = turn * 64 % max(ranks - 63, 1), int(span * (0.2 + 0.1 * turn))
        tracks = [f"{r}/summary" for r in range(some, min(some + 64, ranks))]
        body = {"tracks": tracks, "start": start, "end": start + 10**9}
        areas.append([ask("POST", "/api/area", body)[0] for _ in range(2)])
    (search_wall, search_cpu), answer = ask("POST", "/api/search", {"pattern": "(?i)allreduce"})
    rows = [("run opened, pyramid built", f"{opened:.1f} s until the first tile can be asked")]
    names = {
        "new": "first events of ranks not seen before, asked without a pause",
        "paused": "the same, a quarter of a second after the view before",
        "folded": "tiles of 24 folded ranks",
        "open": "tiles of all tracks of 4 ranks",
        "heat": "a tile of the heat map",
        "any": "all of these together",
    }
    times["any"] = [took for kind in names if kind in times for took in times[kind]]
    for kind, name in names.items():
        wall, cpu = (sorted(t[i] for t in times[kind]) for i in (0, 1))
        half, most = len(wall) // 2, int(len(wall) * 0.95)
        told = (
            f"median {wall[half]:.0f} ms, 95th percentile {wall[most]:.0f} ms; CPU {cpu[half]:.0f} and"
            f" {cpu[most]:.0f} ms"
        )
        rows.append((f"{name}, server time", f"{told}; {len(wall)} views"))
    for n, when in enumerate(("not seen before", "asked again")):
        middle = [sorted(t[n][i] for t in areas)[3] for i in (0, 1)]
        told = f"median {middle[0]:.0f} ms, CPU {middle[1]:.0f} ms of one of its threads"
        rows.append((f"area of 64 ranks and 1 s with totals and flame graph, {when}, server time", told))
    found = json.loads(answer)
    told = f"{search_wall:.0f} ms, CPU {search_cpu:.0f} ms: {found['total']:,} events in {found['ranks_done']} ranks"
    rows.append(("search in all ranks, server time", told))
    return rows


_PAINTED = """() => new Promise((done) => {
  const look = () => {
    const c = document.querySelector('.heat-scroll canvas');
    if (c && c.width > 600) {
      const part = c.getContext('2d').getImageData(200, 0, 400, Math.min(200, c.height));
      const white = new Uint32Array(part.data.buffer).filter((v) => v === 0xffffffff).length;
      if (white < part.width * part.height / 2) return done(performance.now());
    }
    requestAnimationFrame(look);
  };
  look();
})"""

_FRAMES = """() => new Promise((done) => {
  const t = window.alltraceTimeline, spent = [];
  let n = 0;
  const step = () => {
    spent.push(t.spent);
    n += 1;
    if (n > 240) return done(spent.slice(2).sort((a, b) => a - b));
    if (n % 60 < 30) t.zoom(n % 120 < 60 ? 0.9 : 1 / 0.9); else t.pan(0.03);
    requestAnimationFrame(step);
  };
  step();
})"""


def looked_at(address: str) -> list[tuple[str, str]]:
    """First paint, and the work of the main thread for each frame while zooming and panning."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("ALLTRACE_CHROMIUM") or shutil.which("chromium")
    base = address.partition("?")[0]
    rows = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        paints = []
        for _ in range(5):
            context = browser.new_context(viewport={"width": 1400, "height": 900})
            page = context.new_page()
            page.goto(address)
            paints.append(page.evaluate(_PAINTED))
            context.close()
        rows.append(
            (
                "overview until the heat map is drawn",
                f"median {sorted(paints)[2]:.0f} ms of 5, each in a new browser profile",
            )
        )
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("body[data-shown]")
        for name, hash_ in (
            ("all ranks folded", "#timeline?ranks=all&open=-"),
            ("four ranks open", "#timeline?ranks=0-3&open=0-3"),
        ):
            page.goto(base + hash_)
            page.wait_for_selector("body[data-shown=timeline]")
            page.wait_for_timeout(1500)
            session = context.new_cdp_session(page)
            session.send("Performance.enable")
            before = task_s(session)
            spent = page.evaluate(_FRAMES)
            frame = 1000 * (task_s(session) - before) / len(spent)
            high = spent[int(len(spent) * 0.95)]
            told = f"{frame:.1f} ms of the main thread, mean; painting {high:.1f} ms at the 95th percentile"
            rows.append((f"timeline, {name}: work for a frame", told))
        browser.close()
    return rows


def task_s(session: Any) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


if __name__ == "__main__":
    main()
