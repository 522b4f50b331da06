"""Tables of nccl-tests: bandwidth by size, summaries, runs side by side, and slow hosts.

Bus bandwidth is algorithm bandwidth (size over time) times a factor that makes it comparable with the speed of a link,
whatever the number of ranks n: AllReduce 2(n-1)/n; AllGather, ReduceScatter, AlltoAll, Gather, Scatter (n-1)/n;
Broadcast, Reduce, SendRecv 1. Source: nccl-tests, doc/PERFORMANCE.md.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from statistics import median
from typing import Any

from alltrace.recipes.base import Answer, Chart
from alltrace.trace import columns as col
from alltrace.trace.errors import path_text
from alltrace.trace.number_text import counted

VIEWS = ("sizes", "summary", "compare", "hosts")
KNEE_SHARE = 0.8
OUTLIER_SHARE = 0.8
_NAMED = 3
_ROUNDING = 0.02
_ALL_REDUCE, _SHARED, _PLAIN = "all_reduce", "share", "plain"
_FAMILY = {
    "allreduce": _ALL_REDUCE, "allgather": _SHARED, "reducescatter": _SHARED, "alltoall": _SHARED, "alltoallv": _SHARED,
    "gather": _SHARED, "scatter": _SHARED, "broadcast": _PLAIN, "bcast": _PLAIN, "reduce": _PLAIN, "sendrecv": _PLAIN,
    "hypercube": _PLAIN,
}  # fmt: skip

_RUN = col.text("run", "The run: the file's name, with the run's number in the file if there are several")
_PLACE = col.text("place", "`out` of place or `in` place")
COLUMNS: dict[str, col.Columns] = {
    "sizes": (
        _RUN,
        col.text("program", "The program, from the output or the file's name"),
        col.whole("ranks", "Ranks of the run; of a group if the run was split"),
        col.size("size_bytes", "The size column: the larger of what a rank sends and receives"),
        col.whole("count", "Elements"),
        col.text("datatype", "The type"),
        col.text("redop", "The reduction, or null"),
        col.whole("root", "The root, or null"),
        _PLACE,
        col.real("time_us", "Time of one call; of the CPU if the run used -C", "us"),
        col.real("algbw_gb_per_s", "Size divided by time, as printed; 1 GB is 1e9 bytes", "GB/s"),
        col.real("busbw_gb_per_s", "Bus bandwidth, as printed", "GB/s"),
        col.percent("peak_share", "Bus bandwidth as a share of --peak; null without --peak", None),
        col.real("wrong", "Wrong values, or the largest error in old versions; null if not checked"),
        col.flag("outlier", "Whether the bus bandwidth is below 80 % of both neighboring sizes"),
    ),
    "summary": (
        _RUN,
        col.text("program", "The program"),
        col.whole("ranks", "Ranks"),
        col.whole("hosts", "Hosts"),
        _PLACE,
        col.whole("sizes", "Rows of the table"),
        col.real("average_busbw_gb_per_s", "Mean bus bandwidth over all rows", "GB/s"),
        col.real("printed_average_gb_per_s", "What the program printed: the mean over all rows of both halves", "GB/s"),
        col.real("peak_busbw_gb_per_s", "The largest bus bandwidth", "GB/s"),
        col.size("peak_size_bytes", "The size with the largest bus bandwidth"),
        col.percent("peak_share", "peak_busbw_gb_per_s as a share of --peak; null without --peak", None),
        col.real("latency_us", "The smallest time of any size above 0: the latency floor", "us"),
        col.size("knee_bytes", "The smallest size that reaches 80 % of the largest bus bandwidth"),
        col.Column(
            "outlier_sizes", "numbers", "bytes", "Sizes with a bus bandwidth below 80 % of both neighboring sizes"
        ),
        col.real(
            "wrong", "Rows with wrong values; null if nothing was checked, or if the version prints errors instead"
        ),
        col.flag("failed", "Whether the run says that it failed"),
        col.text("failed_hosts", "Hosts that report a failure, or of which a launcher reports one, with commas"),
        col.text("failure", "The first cause that one of them gives, such as CUDA's or NCCL's error"),
    ),
    "compare": (
        col.text("program", "The program"),
        col.text("datatype", "The type"),
        col.size("size_bytes", "The size"),
        _PLACE,
        _RUN,
        col.real("time_us", "The smallest time that the run has for the size", "us"),
        col.real("busbw_gb_per_s", "The largest bus bandwidth that the run has for the size", "GB/s"),
        col.real("ratio", "Bus bandwidth divided by that of the first run with this size, computed from the times"),
    ),
    "hosts": (
        col.text("host", "The host"),
        col.whole("runs", "Comparable runs that it took part in: one program, the same number of ranks"),
        col.real(
            "median_ratio",
            "Median over these runs: peak bus bandwidth divided by the median of comparable runs; null without any",
        ),
        col.flag("outlier", "Whether median_ratio is below 90 % in two runs or more"),
    ),
}
_BY_SIZE = Chart(
    "lines",
    "size_bytes",
    ("busbw_gb_per_s",),
    "run",
    None,
    "Bus bandwidth by message size",
    True,
    where=("place", "out"),
)
CHARTS = dict.fromkeys(("sizes", "compare"), _BY_SIZE)


def factor(program: str | None, ranks: int) -> float | None:
    """Bus bandwidth over algorithm bandwidth for a program on `ranks` ranks; None if either is not known."""
    if program is None or ranks < 1:
        return None
    family = _FAMILY.get(program.lower().removesuffix("_perf").replace("_", "").replace("-", ""))
    if family is None:
        return None
    return {_ALL_REDUCE: 2 * (ranks - 1) / ranks, _SHARED: (ranks - 1) / ranks, _PLAIN: 1.0}[family]


@dataclass
class _Series:
    """The rows of one run in one place, by size."""

    name: str
    run: Any
    place: str
    rows: list[tuple[Any, Any]]

    def outliers(self) -> set[int]:
        """Positions of the rows with a drop in bandwidth."""
        positions = set()
        for n in range(1, len(self.rows) - 1):
            before, here, behind = (self.rows[k][1].busbw for k in (n - 1, n, n + 1))
            if here < OUTLIER_SHARE * min(before, behind):
                positions.add(n)
        return positions


def answer(files: Sequence[Any], view: str, peak_gb_per_s: float | None = None) -> Answer:
    """The answer to a view (`VIEWS`) of files of nccl-tests; `peak_gb_per_s`: of the link, against bus bandwidths."""
    series = _series(files)
    rows = {"sizes": _sizes, "summary": _summary, "compare": _compare, "hosts": _hosts}[view](series, peak_gb_per_s)
    extra = {
        "not_understood": [
            {"file": path_text(f.path), "line": line + 1, "text": text} for f in files for line, text in f.samples
        ]
    }
    return Answer.of(rows, COLUMNS[view], _notes(files, series), extra, CHARTS.get(view))


def _series(files: Sequence[Any]) -> list[_Series]:
    paths = [path_text(f.path) for f in files]
    names = [PurePath(p).name for p in paths]
    out = []
    for f, path, short in zip(files, paths, names, strict=True):
        base = short if names.count(short) == 1 else path
        for run in f.runs:
            name = base if len(f.runs) == 1 else f"{base}#{run.number}"
            for place, attribute in (("out", "out_of_place"), ("in", "in_place")):
                rows = [(row, half) for row in run.rows if (half := getattr(row, attribute)) is not None]
                if rows or (place == "out" and run.failed):
                    out.append(_Series(name, run, place, rows))
    return out


def _ranks(run: Any) -> int | None:
    """Ranks of a group: a run that was split has several groups."""
    if not run.ranks:
        return None
    groups: dict[int, int] = {}
    for _rank, group, *_rest in run.ranks:
        groups[group] = groups.get(group, 0) + 1
    return max(groups.values())


def _sizes(series: list[_Series], peak: float | None) -> list[dict[str, Any]]:
    rows = []
    for s in series:
        outliers = s.outliers()
        rows += [
            {
                "run": s.name,
                "program": s.run.program,
                "ranks": _ranks(s.run),
                "size_bytes": row.size,
                "count": row.count,
                "datatype": row.datatype,
                "redop": None if row.redop == "none" else row.redop,
                "root": None if row.root is None or row.root < 0 else row.root,
                "place": s.place,
                "time_us": half.time_us,
                "algbw_gb_per_s": half.algbw,
                "busbw_gb_per_s": half.busbw,
                "peak_share": None if peak is None else 100 * half.busbw / peak,
                "wrong": half.wrong,
                "outlier": n in outliers,
            }
            for n, (row, half) in enumerate(s.rows)
        ]
    return rows


def _summary(series: list[_Series], peak: float | None) -> list[dict[str, Any]]:
    rows = []
    for s in series:
        best = max(s.rows, key=lambda r: r[1].busbw, default=None)
        top = None if best is None else best[1].busbw
        outliers = s.outliers()
        checked = [half.wrong for _row, half in s.rows if half.wrong is not None]
        errors = any(0 < w < 1 for w in checked)
        rows.append(
            {
                "run": s.name,
                "program": s.run.program,
                "ranks": _ranks(s.run),
                "hosts": len({r[2] for r in s.run.ranks}) or None,
                "place": s.place,
                "sizes": len(s.rows),
                "average_busbw_gb_per_s": sum(h.busbw for _r, h in s.rows) / len(s.rows) if s.rows else None,
                "printed_average_gb_per_s": s.run.average,
                "peak_busbw_gb_per_s": top,
                "peak_size_bytes": None if best is None else best[0].size,
                "peak_share": None if peak is None or top is None else 100 * top / peak,
                "latency_us": min((h.time_us for r, h in s.rows if r.size > 0), default=None),
                "knee_bytes": min((r.size for r, h in s.rows if top and h.busbw >= KNEE_SHARE * top), default=None),
                "outlier_sizes": [s.rows[n][0].size for n in sorted(outliers)],
                "wrong": None if errors or not checked else float(sum(w > 0 for w in checked)),
                "failed": s.run.failed,
                "failed_hosts": ", ".join(dict.fromkeys(f.host for f in s.run.failures)) or None,
                "failure": next((f.cause for f in s.run.failures if f.cause), None),
            }
        )
    return rows


def _compare(series: list[_Series], peak: float | None) -> list[dict[str, Any]]:  # noqa: ARG001
    best: dict[tuple[str, str, int, str], dict[str, tuple[float, float]]] = {}
    factors = {s.name: factor(s.run.program, _ranks(s.run) or 0) or 1.0 for s in series}
    for s in series:
        for row, half in s.rows:
            runs = best.setdefault((s.run.program or "", row.datatype, row.size, s.place), {})
            time, busbw = runs.get(s.name, (half.time_us, half.busbw))
            runs[s.name] = min(time, half.time_us), max(busbw, half.busbw)
    rows = []
    for (program, datatype, size, place), runs in sorted(
        best.items(), key=lambda kv: (kv[0][0], kv[0][1], kv[0][3], kv[0][2])
    ):
        base = next(iter(runs))
        for name, (time, busbw) in runs.items():
            # from the times: printed bandwidths have two decimals, which is nothing at small sizes
            ratio = factors[name] / factors[base] * runs[base][0] / time if time and factors[base] else None
            rows.append(
                {
                    "program": program or None,
                    "datatype": datatype,
                    "size_bytes": size,
                    "place": place,
                    "run": name,
                    "time_us": time,
                    "busbw_gb_per_s": busbw,
                    "ratio": ratio,
                }
            )
    return rows


def _hosts(series: list[_Series], peak: float | None) -> list[dict[str, Any]]:  # noqa: ARG001
    peaks: dict[tuple[str, int | None], list[tuple[float, set[str]]]] = {}
    for s in series:
        if s.place == "out" and s.rows and s.run.ranks:
            top = max(half.busbw for _row, half in s.rows)
            peaks.setdefault((s.run.program or "", _ranks(s.run)), []).append((top, {r[2] for r in s.run.ranks}))
    ratios: dict[str, list[float]] = {}
    for its in peaks.values():
        middle = median(top for top, _hosts in its)
        for top, hosts in its:
            for host in hosts:
                ratios.setdefault(host, [])
                if middle and len(its) > 1:
                    ratios[host].append(top / middle)
    rows = []
    for host, shares in ratios.items():
        ratio = median(shares) if shares else None
        outlier = len(shares) > 1 and ratio is not None and ratio < 0.9
        rows.append({"host": host, "runs": len(shares), "median_ratio": ratio, "outlier": outlier})
    return sorted(rows, key=lambda r: (r["median_ratio"] is None, r["median_ratio"] or 0.0, r["host"]))


def _notes(files: Sequence[Any], series: list[_Series]) -> tuple[str, ...]:
    runs = sum(len(f.runs) for f in files)
    lines, rows = sum(f.lines for f in files), sum(f.table_rows for f in files)
    unread = sum(f.not_understood for f in files)
    read = f"{counted(runs, 'run')}, {counted(lines, 'line')}: {counted(rows, 'row')} of tables"
    notes = [f"{read}; {counted(unread, 'record')} not understood"]
    without = [path_text(f.path) for f in files if not any(r.rows for r in f.runs)]
    if without:
        more = f" and {len(without) - _NAMED} more" if len(without) > _NAMED else ""
        notes.append(f"no table of nccl-tests in {', '.join(without[:_NAMED])}{more}")
    notes += [f"{path_text(f.path)}: {f.damage}" for f in files if f.damage]
    for name, run in {s.name: s.run for s in series}.items():
        causes = Counter(f for f in run.failures if f.cause) or Counter(run.failures)
        notes += [
            f"{name}: {host} failed{f': {cause}' if cause else ''}" + (f" ({count:,} times)" if count > 1 else "")
            for (host, cause), count in causes.most_common(_NAMED)
        ]
        if len(causes) > _NAMED:
            notes.append(f"{name}: {counted(len(causes) - _NAMED, 'more cause')} of failures")
    alone = {path_text(run.path): run.alone for f in files for run in f.runs if run.alone}
    notes += [
        f"{path}: {processes} processes ran, each alone and not as one job, so nothing of this is a bandwidth between "
        "them; build nccl-tests with MPI=1 and start it with the launcher of that MPI"
        for path, processes in alone.items()
    ]
    single = {s.name for s in series if s.rows and _ranks(s.run) == 1 and not s.run.alone}
    if single:
        notes.append(
            f"{counted(len(single), 'run')} with one rank: no bandwidth between GPUs; if they were meant as one job, "
            "nccl-tests was built without MPI=1"
        )
    for s in series:
        want = factor(s.run.program, _ranks(s.run) or 0)
        off = [
            row.size
            for row, half in s.rows
            if want and half.algbw >= 1 and abs(half.busbw / half.algbw - want) > _ROUNDING * want
        ]
        if off:
            notes.append(
                f"{s.name} ({s.place} of place): at {counted(len(off), 'size')} the printed bus bandwidth is not"
                f" {want:.4g} times the algorithm bandwidth, as the formula of {s.run.program} on {_ranks(s.run)} ranks"
                " has it"
            )
    if any(s.run.cpu_time for s in series):
        notes.append("some runs were made with -C: their times are the CPU's, not the GPU's")
    return tuple(notes)
