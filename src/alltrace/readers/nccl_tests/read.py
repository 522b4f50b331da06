"""Reads tables of nccl-tests: any program, version and prefix, many runs in a file; and JSON written with -J.

The columns come from the table's own header, so the code is independent of the version. Source of the forms:
nccl-tests, src/common.cu, from 2.0 to 2.19.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from alltrace.readers.text import TextLog, json_documents

_UNIT = re.compile(rb"\s*\([^)\n]*\)")
_HEADER = re.compile(
    rb"(?:^|[\s#\"\xbf|])(size\"?(?P<gap>[\s,;|\"]+)count\b[^\n]*?\b(?:cpu)?time[\s,;|\"]+algbw[\s,;|\"]+busbw.*)",
    re.IGNORECASE,
)
_PLACES = re.compile(rb"(?P<out>out-of-place)(?:\s+in-place)?\s*$|in-place(?:\s+out-of-place)?\s*$", re.IGNORECASE)
_START = re.compile(
    rb"#\s*(?:nccl-tests version (?P<version>\S+)|Collective test starting: (?P<program>\w+)|nThread \d+"
    rb" (?P<options>nGpus .*))"
)
_LIBRARY = re.compile(rb"nccl-library=(?P<library>\S+)")
_RANK = re.compile(
    rb"#\s+Rank\s+(?P<rank>\d{1,9}) (?:Group\s+(?P<group>\d{1,9}) )?Pid\s+(?P<pid>\d+) on\s+(?P<host>\S+) "
    rb"device\s+(?P<device>\d{1,9}) \[(?P<bus>[0-9a-fA-Fx:.]+)\] (?P<name>.*?)\s*$"
)
_AVERAGE = re.compile(rb"#\s*Avg bus bandwidth\s*:\s*(?P<average>[0-9.,eE+-]+)")
_BOUNDS = re.compile(rb"#\s*Out of bounds values\s*:\s*\d{1,18}\s+(?P<verdict>OK|FAILED)")
_PROGRAM = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?allv?|broadcast|bcast|sendrecv|gather|scatter|reduce|hypercube)"
)
_FAILURE = re.compile(
    rb"(?P<host>[\w.-]+): Test (?P<library>NCCL|CUDA) failure \S+ '(?P<cause>.*?)(?: \(run with [^)]*\)[^']*)?(?: / )?'"
    rb"|\.\. (?P<host_behind>\S+) pid \d+: Test failure|Test (?:NCCL|CUDA) failure|Test failure|unhandled"
    rb" (?:system|cuda) error"
)
_LAUNCHER_FAILURE = re.compile(
    rb"srun: error: (?P<host>[\w.-]+): (?P<cause>tasks? .*)"
    rb"|(?:mpirun|prterun|mpiexec) noticed .* on node (?P<signalled_host>[\w.-]+) (?P<signal>exited(?: on signal"
    rb" \d+.*)?)"
    rb"|slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON (?P<cancelled_host>[\w.-]+) (?P<end>CANCELLED .*?)(?:"
    rb" \*\*\*)?\s*$"
    rb"|=\s+PID \d+ RUNNING AT (?P<ended_host>[\w.-]+)"
)
_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DECIMALS = {
    sign: re.compile(
        rf"-?(?:(?:0|[0-9]{{4,}})[{sign}][0-9]+|[0-9{other}]+[{sign}](?:[0-9]{{1,2}}|[0-9]{{4,}}))(?:[eE][+-]?[0-9]+)?"
    )
    for sign, other in (".,", ",.")
}
"""A number with such a decimal sign; three digits behind a sign may be thousands."""
_GROUPED = {
    sign: re.compile(rf"-?[1-9][0-9]{{0,2}}(?:[{sign}][0-9]{{3}})+(?:[{other}][0-9]+)?") for sign, other in (".,", ",.")
}
"""A number with such a sign between thousands."""
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_MOST_SAMPLES = 50
_MOST_FAILURES = 1000
_MOST_RANKS = 65_536
_Item = TypeVar("_Item")


@dataclass
class Half:
    """Half of a row, out of place or in place: times in us, bandwidths in GB/s (1e9); `wrong` None if not checked."""

    time_us: float
    algbw: float
    busbw: float
    wrong: float | None


@dataclass
class Row:
    """A row: the size in bytes, elements, datatype, reduction, root, and its halves."""

    size: int
    count: int
    datatype: str | None
    redop: str | None
    root: int | None
    out_of_place: Half | None
    in_place: Half | None
    line: int


class Failure(NamedTuple):
    """What a host, or a launcher about it, says of its failure; the cause is empty if that is elsewhere."""

    host: str
    cause: str


@dataclass
class TestRun:
    """One run of one program."""

    path: str  # the file
    number: int  # the run's index in it, from 0
    program: str | None = None  # the program, or None if neither the file's text nor its name has it
    version: str | None = None  # version, library: versions of nccl-tests and NCCL, from 2.16 on
    library: str | None = None
    # (rank, group, host, device, device name)
    ranks: list[tuple[int, int, str, int, str]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # the table
    average: float | None = None  # the average bus bandwidth that the program printed
    failed: bool = False  # whether it says that it failed
    failures: list[Failure] = field(default_factory=list)  # what the hosts say of that
    alone: int = (
        0  # how many processes wrote such a table at once, each of itself alone; 0 for one job of all its ranks
    )
    cpu_time: bool = False  # whether the times are the CPU's (option -C)


@dataclass
class TestsFile:
    """A file: its runs, and the account of its lines."""

    path: str
    runs: list[TestRun]
    lines: int = 0
    table_rows: int = 0
    foreign: int = 0
    not_understood: int = 0
    samples: list[tuple[int, str]] = field(default_factory=list)
    damage: str | None = None


def read_tests(path: str, advance: Callable[[int], None] = lambda _n: None) -> TestsFile:
    """Read a file of nccl-tests. Raises `InputError`: the file cannot be read."""
    with TextLog(Path(path)) as log:
        reading = _Reading(path)
        blocks = log.blocks()
        for block, _whole in blocks:
            if reading.file.lines == 0 and block.lstrip()[:1] == b"{" and b'"out_of_place"' in block:
                rest = b"".join([block, *(b for b, _w in blocks)])
                return _from_json(path, rest)
            for line in block.splitlines():
                reading.line(line)
            advance(len(block))
        reading.file.damage = log.damage
    for run in reading.file.runs:
        run.program = run.program or _program_of(Path(path).name)
    reading.file.runs = [part for run in _joined_to_their_rows(reading.file.runs) for part in _apart(run)]
    for number, run in enumerate(reading.file.runs):
        run.number = number
    return reading.file


def _joined_to_their_rows(runs: list[TestRun]) -> list[TestRun]:
    """Runs with rows or an end. Where processes that run alone write at once, several heads come before rows."""
    with_rows: list[TestRun] = []
    heads: list[tuple[int, int, str, int, str]] = []
    for run in runs:
        if run.rows or run.failed or run.average is not None:
            if run.rows and _copies(rank[:2] for rank in [*heads, *run.ranks]) > 1 and _copies(map(_key, run.rows)) > 1:
                run.ranks = [*heads, *run.ranks]
            with_rows.append(run)
            heads = []
        else:
            heads += run.ranks
    return with_rows


def _apart(run: TestRun) -> list[TestRun]:
    """The run; of processes that each ran alone one each: ranks and sizes are there as often as there are processes."""
    processes = min(_copies(rank[:2] for rank in run.ranks), _copies(map(_key, run.rows)))
    if processes < 2:
        return [run]
    ranks = _dealt(run.ranks, lambda rank: rank[:2], processes)
    rows = _dealt(run.rows, _key, processes)
    return [replace(run, ranks=ranks[n], rows=rows[n], average=None, alone=processes) for n in range(processes)]


def _dealt(items: list[_Item], key: Callable[[_Item], Any], processes: int) -> list[list[_Item]]:
    """The items of each process: of those with one key, the n-th is the n-th process'."""
    parts: list[list[_Item]] = [[] for _ in range(processes)]
    seen: Counter[Any] = Counter()
    for item in items:
        parts[min(seen[key(item)], processes - 1)].append(item)
        seen[key(item)] += 1
    return parts


def _copies(keys: Iterable[Any]) -> int:
    return min(Counter(keys).values(), default=0)


def _key(row: Row) -> tuple[Any, ...]:
    return row.size, row.count, row.datatype, row.redop, row.root


def _program_of(name: str) -> str | None:
    match = _PROGRAM.search(name.lower())
    return None if match is None else match[0]


class _Reading:
    def __init__(self, path: str) -> None:
        self.file = TestsFile(path, [])
        self._columns: list[str] = []
        self._gap: str | None = None  # what is between the cells: None for spaces
        self._in_place_first = False
        self._open = False
        self._heads = 0

    def line(self, raw: bytes) -> None:
        number = self.file.lines
        self.file.lines += 1
        header = _HEADER.search(_UNIT.sub(b"", raw))
        if header is not None:
            self._header(header[1], header["gap"])
            return
        places = _PLACES.search(raw)
        if places is not None:
            self._in_place_first = places["out"] is None
        mark = raw.find(b"#")
        if mark >= 0 and self._comment(raw[mark:]):
            return
        if self._failure(raw):
            self.file.foreign += 1
            return
        if not self._columns:
            self.file.foreign += 1
            return
        self._row(_ESCAPE.sub("", raw.decode("utf-8", "replace")), number)

    def _header(self, text: bytes, gap: bytes) -> None:
        run = self._run(new=bool(self.file.runs) and bool(self.file.runs[-1].rows))
        self._gap = next((sign for sign in "|,;" if sign.encode() in gap), None)
        self._columns = [
            name.strip(' "#') for name in text.decode("utf-8", "replace").lower().rstrip("| \r").split(self._gap)
        ]
        run.cpu_time = "cputime" in self._columns
        self._open = False
        self._heads += 1

    def _failure(self, raw: bytes) -> bool:
        """Whether the line says that a process failed."""
        failure = _FAILURE.search(raw)
        launcher = None if failure is not None else _LAUNCHER_FAILURE.search(raw)
        if failure is not None:
            host = failure["host"] or failure["host_behind"]
            cause = f"{_word(failure['library'])}: {_word(failure['cause'])}" if failure["cause"] else ""
        elif launcher is not None and self.file.runs and self.file.runs[-1].average is None:
            host = next(h for name, h in launcher.groupdict().items() if h and name.endswith("host"))
            cause = next(
                (_word(c) or "" for name, c in launcher.groupdict().items() if c and not name.endswith("host")), ""
            )
        else:
            return False
        run = self._run()
        run.failed = True
        if host and len(run.failures) < _MOST_FAILURES:
            run.failures.append(Failure(host.decode("utf-8", "replace"), cause.strip()))
        return True

    def _run(self, *, new: bool = False) -> TestRun:
        if new or not self.file.runs:
            self.file.runs.append(TestRun(self.file.path, len(self.file.runs)))
            self._columns = []
        return self.file.runs[-1]

    def _comment(self, text: bytes) -> bool:
        start = _START.match(text)
        if start is not None:
            run = self._run(new=not self.file.runs or not self._open)
            self._open = True
            run.version = _word(start["version"]) or run.version
            library = _LIBRARY.search(text)
            run.library = _word(library["library"]) if library else run.library
            run.program = _word(start["program"]) or run.program
            return True
        rank = _RANK.match(text)
        if rank is not None:
            run = self._run(new=bool(self.file.runs) and bool(self.file.runs[-1].rows))
            if len(run.ranks) < _MOST_RANKS:
                its = int(rank["rank"]), int(rank["group"] or 0), _word(rank["host"]) or "", int(rank["device"])
                run.ranks.append((*its, _word(rank["name"]) or ""))
            return True
        average = _AVERAGE.match(text)
        if average is not None:
            self._run().average = _number(average["average"].decode().replace(",", "."))
            self._heads -= 1
            if self._heads <= 0:  # processes that each run alone end one after the other
                self._columns, self._gap, self._in_place_first, self._heads = [], None, False, 0
            self._open = False
            return True
        bounds = _BOUNDS.match(text)
        if bounds is not None:
            run = self._run()
            run.failed = run.failed or bounds["verdict"] == b"FAILED"
            return True
        # a row has # in no place; any other comment says nothing that we need
        if text[:2] in (b"#", b"# ", b"#\t", b"#\r"):
            self.file.foreign += 1
            return True
        return False

    def _row(self, text: str, number: int) -> None:
        quoted = self._gap is not None and '"' in text
        cells = next(csv.reader([text], delimiter=self._gap or " ")) if quoted else text.rstrip("| \r").split(self._gap)
        words = [word.strip(' "') for word in cells]
        if self._gap is not None:
            words[:1] = words[0].replace('"', " ").split()
        words = _with_points(words)
        # a launcher's prefix is one or two words before the size
        for skip in range(min(4, len(words))):
            row = _row_of(words[skip:], self._columns, number, in_place_first=self._in_place_first)
            if row is not None:
                self.file.table_rows += 1
                self._run().rows.append(row)
                return
        if len(words) > 4 and sum(bool(_NUMBER.fullmatch(w)) for w in words) > len(words) / 2:
            self.file.not_understood += 1
            if len(self.file.samples) < _MOST_SAMPLES:
                self.file.samples.append((number, text[:300]))
        else:
            self.file.foreign += 1


def _with_points(words: list[str]) -> list[str]:
    """The words of a row, numbers among them with a decimal point and no sign between thousands."""
    signs = [
        *(sign for sign in ".," if any(_DECIMALS[sign].fullmatch(w) for w in words)),
        *(
            other
            for sign, other in (",.", ".,")
            if any(w.count(sign) > 1 and _GROUPED[sign].fullmatch(w) for w in words)
        ),
        "," if any("," in w for w in words) else ".",
    ]
    decimal, other = signs[0], "," if signs[0] == "." else "."
    plain = [w.replace(other, "") if _GROUPED[other].fullmatch(w) else w for w in words]
    return [w.replace(",", ".") if decimal == "," and _NUMBER.fullmatch(w.replace(",", ".", 1)) else w for w in plain]


def _row_of(words: list[str], columns: list[str], line: int, *, in_place_first: bool) -> Row | None:
    first = next(n for n, c in enumerate(columns) if c in ("time", "cputime"))
    left = dict(zip(columns[:first], words, strict=False))
    datatype, root = left.get("type"), left.get("root")
    if len(words) < first + 3 or not all(_WHOLE.fullmatch(w) for w in words[:2]) or not (datatype or "a")[:1].isalpha():
        return None
    if datatype is None and len(words) != len(columns):  # without a type, any line of numbers could be a row
        return None
    second = next((n for n in range(first + 1, len(columns)) if columns[n] in ("time", "cputime")), None)
    width = (second if second is not None else len(columns)) - first
    half = _half(words[first : first + width])
    if half is None:
        return None
    other = _half(words[second : second + width]) if second is not None and len(words) >= second + 3 else None
    if second is not None and len(words) > second and other is None:
        return None
    # a row that ends within its first half may be cut within a number
    if len(words) < first + min(width, 4):
        return None
    if root is not None and not re.fullmatch(r"-?[0-9]{1,9}", root):
        return None
    out, within = (other, half) if in_place_first else (half, other)
    return Row(
        int(words[0]),
        int(words[1]),
        datatype,
        left.get("redop"),
        None if root is None else int(root),
        out,
        within,
        line,
    )


def _half(words: list[str]) -> Half | None:
    numbers = [_number(w) for w in words[:3]]
    time, algbw, busbw = (*numbers, None, None, None)[:3]
    if time is None or algbw is None or busbw is None:
        return None
    wrong = _number(words[3]) if len(words) > 3 else None
    if len(words) > 3 and wrong is None and words[3] != "N/A":
        return None
    return Half(time, algbw, busbw, wrong)


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _word(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _from_json(path: str, data: bytes) -> TestsFile:
    from alltrace.trace.errors import InputError

    try:
        runs = [_json_run(path, number, root) for number, root in enumerate(json_documents(data))]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(
            path, found=f"its JSON is not from nccl-tests ({error!r})", expected="the file written with option -J"
        ) from error
    return TestsFile(path, runs, lines=1, table_rows=sum(len(run.rows) for run in runs))


def _json_run(path: str, number: int, root: Any) -> TestRun:
    from alltrace.trace.errors import path_text

    run = TestRun(
        path, number, program=_program_of(_text(root.get("config", {}).get("test", "")) or path_text(Path(path).name))
    )
    run.version = None if (version := root.get("nccl_tests_version")) is None else _text(version)
    for n, device in enumerate(root.get("devices") or []):
        run.ranks.append(
            (
                _whole(device.get("rank", n)),
                _whole(device.get("group", 0)),
                _text(device.get("host", "")),
                n,
                _text(device.get("name", "")),
            )
        )
    for n, row in enumerate(root["results"]):
        halves = [
            (
                None
                if (h := row.get(place)) is None
                else Half(float(h["time"]), float(h["alg_bw"]), float(h["bus_bw"]), _wrong(h))
            )
            for place in ("out_of_place", "in_place")
        ]
        root_rank = row.get("root")
        run.rows.append(
            Row(
                _whole(row["size"]),
                _whole(row.get("count", 0)),
                _text(row.get("type", "")),
                None if (redop := row.get("redop")) is None else _text(redop),
                None if root_rank is None else _whole(root_rank),
                halves[0],
                halves[1],
                n,
            )
        )
    return run


def _whole(value: Any) -> int:
    number = int(value)
    if abs(number) >= 10**18:
        raise ValueError(f"{number:.3g} is too large")
    return number


def _text(value: Any) -> str:
    """A value as text, without halves of surrogate pairs, which JSON can write and no other text can hold."""
    return str(value).encode("utf-8", "replace").decode()


def _wrong(half: dict[str, Any]) -> float | None:
    value = half.get("nwrong")
    return float(value) if isinstance(value, (int, float)) else None
