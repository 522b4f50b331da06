"""Pictures of the page on difficult runs: `python -m benchmarks.page_cases FOLDER [--case NAME]... [--quick]`.

Each case is made, imported and served as for a user; Chromium takes pictures of the views at two sizes, light and dark.
They are for review: FOLDER/index.html shows them next to each other. Any output of the page to its console is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.ui import made_run, server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = ((1400, 900), (900, 700))
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_BASE_US = 1_000_000
_CLAMP = "at::native::(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar)"
_LONG = (
    "void at::native::elementwise_kernel<4, {0}::{{lambda()#{1}}}::operator()() const::{{lambda(float)#{1}}},"
    " int{1}>(int)"
)


def main() -> None:
    """Make the cases, and take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page_cases", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures are written")
    parser.add_argument("--case", action="append", choices=CASES, help="only this case; may be given more than once")
    parser.add_argument("--quick", action="store_true", help="one size, light")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    looks = [(s, t) for s in SIZES for t in THEMES]
    for name in args.case or CASES:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="alltrace-page-") as folder:
            run = CASES[name](Path(folder))
            pictures, complaints = _look(run, args.folder, name, looks[:1] if args.quick else looks)
        print(f"{name}: {pictures} pictures in {time.monotonic() - start:.0f} s", *complaints, sep="\n  ", flush=True)
        if complaints:
            sys.exit(f"the page complained of {len(complaints)} things in the case {name}")
    _index(args.folder)


def _event(kind: str, name: str, start_us: float, length_us: float, **arguments: Any) -> dict[str, Any]:
    on_gpu = "stream" in arguments
    place = (arguments["device"], arguments["stream"]) if on_gpu else (4000, 4001)
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": place[0],
        "tid": place[1],
        "ts": _BASE_US + start_us,
        "dur": length_us,
    } | {"args": arguments}


def _on_gpu(
    kind: str, name: str, start_us: float, length_us: float, stream: int = 7, **arguments: Any
) -> dict[str, Any]:
    return _event(kind, name, start_us, length_us, device=0, stream=stream, context=1, **arguments)


def _traced(folder: Path, ranks: dict[int, list[dict[str, Any]]], size: int | None = None) -> Path:
    """A run of traces as PyTorch's profiler writes them, with these events for each rank of a job of `size`."""
    reports = folder / "reports"
    reports.mkdir()
    for rank, events in ranks.items():
        about = {"backend": "nccl", "rank": rank, "world_size": size or len(ranks)}
        gpu = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 2**37, "computeMajor": 9, "numSms": 132}
        trace = {"schemaVersion": 1, "distributedInfo": about, "deviceProperties": [gpu], "traceEvents": events}
        (reports / f"rank_{rank}.json").write_text(json.dumps(trace))
    return _imported(folder)


def _imported(folder: Path) -> Path:
    from alltrace.run.importer import import_reports

    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    return folder / "run"


def _simulated(folder: Path, scenario: str, **options: Any) -> Path:
    from alltrace.synth import write_run

    write_run(scenario, folder / "reports", **options, ideal=True)
    return folder / "reports"


def _copies(folder: Path) -> Path:
    """Two ranks with 97 % copies in their device time."""

    def events() -> Iterator[dict[str, Any]]:
        for n in range(400):
            at = 100 * n
            way = ("HtoD (Pinned -> Device)", "DtoH (Device -> Pageable)", "DtoD (Device -> Device)")[n % 3]
            yield _event("cuda_runtime", "cudaMemcpyAsync", at, 3, correlation=2 * n + 1)
            yield _on_gpu("gpu_memcpy", f"Memcpy {way}", at + 4, 92, bytes=1 << 20, correlation=2 * n + 1)
            yield _event("cuda_runtime", "cudaLaunchKernel", at + 90, 3, correlation=2 * n + 2)
            yield _on_gpu("kernel", "void scale_kernel<float>(float*)", at + 96, 2.8, correlation=2 * n + 2)

    return _traced(folder, {rank: list(events()) for rank in range(2)})


def _one_rank(folder: Path) -> Path:
    """One rank alone."""
    _simulated(folder, "healthy", ranks=1, hosts=1, steps=4)
    return _imported(folder)


def _no_ranges(folder: Path) -> Path:
    """Kernels and API calls of four ranks, without ranges."""

    def events(rank: int) -> Iterator[dict[str, Any]]:
        for n in range(600):
            yield _event("cuda_runtime", "cudaLaunchKernel", 50 * n, 4, correlation=n + 1)
            yield _on_gpu("kernel", f"void gemm_{n % 5}<float>(float*)", 50 * n + 6, 30 + rank, correlation=n + 1)

    return _traced(folder, {rank: list(events(rank)) for rank in range(4)})


def _empty(folder: Path) -> Path:
    """Two ranks with at most one range in their traces."""
    return _traced(folder, {rank: [_event("user_annotation", "nothing happens", 0, 1000)] for rank in range(2)})


def _missing(folder: Path) -> Path:
    """Sixteen ranks, the report of one of which is not there."""
    reports = _simulated(folder, "straggler", ranks=16, steps=4)
    sorted(reports.glob("*.sqlite"))[5].unlink()
    return _imported(folder)


def _long_names(folder: Path) -> Path:
    """Names of kernels and ranges of hundreds of characters that differ at the end, and one without a space."""

    def events() -> Iterator[dict[str, Any]]:
        for n in range(300):
            at, name = 100 * n, _LONG.format(_CLAMP, n % 7)
            yield _event(
                "user_annotation", f"{'/'.join(['model', 'decoder', 'layer', 'attention'] * 8)}/{n % 7}", at, 95
            )
            yield _event("cuda_runtime", "cudaLaunchKernel", at + 1, 4, correlation=n + 1)
            yield _on_gpu("kernel", name if n % 11 else "k" * 400, at + 6, 80, correlation=n + 1)

    return _traced(folder, {rank: list(events()) for rank in range(2)})


def _many(folder: Path) -> Path:
    """1,024 ranks."""
    return made_run(folder, 1024, 3, keep=False)[0]


CASES: dict[str, Callable[[Path], Path]] = {
    "copies": _copies,
    "one-rank": _one_rank,
    "no-ranges": _no_ranges,
    "empty": _empty,
    "missing-rank": _missing,
    "long-names": _long_names,
    "1024-ranks": _many,
}


def _look(
    run: Path, folder: Path, case: str, looks: list[tuple[tuple[int, int], Literal["light", "dark"]]]
) -> tuple[int, list[str]]:
    """How many pictures were taken, and what the page complained of."""
    from playwright.sync_api import sync_playwright

    process, address = server(run)
    base, _, token = address.partition("?token=")
    complaints: list[str] = []
    count = 0
    try:
        facts = _ready(base, token)
        with sync_playwright() as play:
            path = os.environ.get("ALLTRACE_CHROMIUM") or shutil.which("chromium")
            browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for (width, height), scheme in looks:
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
                page = context.new_page()
                page.set_default_timeout(300_000)  # of very many ranks the findings take minutes
                page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
                page.on("pageerror", lambda e: complaints.append(str(e)))
                page.goto(address)
                page.wait_for_selector("body[data-shown]")
                for name, view in _views(facts):
                    page.goto(base + view)
                    page.wait_for_selector(f"body[data-shown={view[1:].partition('?')[0]}]")
                    page.wait_for_load_state("networkidle")
                    page.wait_for_function("() => !/ \\.\\.\\.$/m.test(document.querySelector('main').innerText)")
                    if name == "event":
                        page.keyboard.press("f")  # to where it is
                    page.wait_for_load_state("networkidle")
                    page.wait_for_timeout(400)
                    page.screenshot(path=folder / f"{case}-{name}-{width}x{height}-{scheme}.png")
                    count += 1
                context.close()
            browser.close()
    finally:
        process.kill()  # its folder goes with it
        process.wait()
    return count, list(dict.fromkeys(complaints))


def _ready(base: str, token: str) -> Any:
    """The run's facts, once it is aligned and tiled."""
    while True:
        request = urllib.request.Request(f"{base}api/run", headers={"authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request) as found:
            facts = json.loads(found.read())
        if facts["state"]["ready"]:
            return facts
        time.sleep(0.2)


def _views(facts: Any) -> list[tuple[str, str]]:
    """The views of which pictures are taken: names and addresses."""
    whole, first = facts["grid"]["span_ns"], facts["ranks"][0]["rank"]
    part = f"{whole // 3}-{whole // 2}"
    table = next((t for t in ("kernels", "ranges") if t in facts["ranks"][0]["tables"]), "kernels")
    row = min(20, facts["ranks"][0]["rows"] - 1) if table == "kernels" else 0
    return [
        ("overview", "#overview"),
        ("timeline", "#timeline"),
        ("event", f"#timeline?ranks={first}&open={first}&event={first}/{table}/{row}"),
        ("area", f"#timeline?open={first}&range={part}&area={first}"),
        ("all-folded", "#timeline?ranks=all&open=-"),
        ("events", f"#events?tables={table}&ranks={first}&start=0&end={whole}"),
        ("recipe", "#recipes?name=breakdown"),
        ("compare", "#compare"),
        ("matrix", "#matrix"),
    ]


def _index(folder: Path) -> None:
    pictures = sorted(p.name for p in folder.glob("*.png"))
    figures = (
        f'<figure><a href="{p}"><img src="{p}" width="480"></a><figcaption>{p}</figcaption></figure>' for p in pictures
    )
    style = "<style>figure{display:inline-block;margin:8px}</style>"
    (folder / "index.html").write_text(f"<!doctype html><title>The page</title>{style}{''.join(figures)}\n")


if __name__ == "__main__":
    main()
