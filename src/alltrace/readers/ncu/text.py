"""Reads what Nsight Compute printed: `--page raw` and `--page details`, with `--csv` or as plain text.

A printed page has rounded numbers in units that fit; they are brought to base units (ns, bytes, per second) again, so
that a page and the report that it was printed from give the same rows as far as the digits go. A page of details names
its metrics in words: those that are known get the metric's own name, others are kept as `details: SECTION: NAME`.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from alltrace.trace.errors import InputError
from alltrace.trace.launches import Launch, Metric, NcuReport, Rule, RuleMessage, Sizes, short_name

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
_NAMES = {
    "Active Warps Per Scheduler": "smsp__warps_active.avg.per_cycle_active",
    "Achieved Active Warps Per SM": "sm__warps_active.avg.per_cycle_active",
    "Achieved Occupancy": f"sm__warps_active{_ACTIVE}",
    "Avg. Active Threads Per Warp": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "Avg. Executed Instructions Per Scheduler": "smsp__inst_executed.avg",
    "Avg. Issued Instructions Per Scheduler": "smsp__inst_issued.avg",
    "Avg. Not Predicated Off Threads Per Warp": "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "Block Limit Barriers": "launch__occupancy_limit_barriers",
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Block Limit SM": "launch__occupancy_limit_blocks",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
    "Block Limit Warps": "launch__occupancy_limit_warps",
    "Block Size": "launch__block_size",
    "Cluster Size": "launch__cluster_size",
    "Compute (SM) Throughput": f"sm__throughput{_ELAPSED}",
    "Compute (SM) [%]": f"sm__throughput{_ELAPSED}",
    "DRAM Frequency": "dram__cycles_elapsed.avg.per_second",
    "DRAM Throughput": f"gpu__dram_throughput{_ELAPSED}",
    "Driver Shared Memory Per Block": "launch__shared_mem_per_block_driver",
    "Duration": "gpu__time_duration.sum",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Elapsed Cycles": "gpc__cycles_elapsed.max",
    "Eligible Warps Per Scheduler": "smsp__warps_eligible.avg.per_cycle_active",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Executed Ipc Active": "sm__inst_executed.avg.per_cycle_active",
    "Executed Ipc Elapsed": "sm__inst_executed.avg.per_cycle_elapsed",
    "Function Cache Configuration": "launch__func_cache_config",
    "Grid Size": "launch__grid_size",
    "Issue Slots Busy": f"sm__inst_issued{_ACTIVE}",
    "Issued Instructions": "smsp__inst_issued.sum",
    "Issued Ipc Active": "sm__inst_issued.avg.per_cycle_active",
    "Issued Warp Per Scheduler": "smsp__issue_active.avg.per_cycle_active",
    "L1/TEX Cache Throughput": f"l1tex__throughput{_ACTIVE}",
    "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
    "L2 Cache Throughput": f"lts__throughput{_ELAPSED}",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    "One or More Eligible": f"smsp__issue_active{_ACTIVE}",
    "Registers Per Thread": "launch__registers_per_thread",
    "SM Active Cycles": "sm__cycles_active.avg",
    "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
    "Shared Memory Configuration Size": "launch__shared_mem_config_size",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Theoretical Active Warps per SM": "sm__maximum_warps_avg_per_active_cycle",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Threads": "launch__thread_count",
    "Warp Cycles Per Issued Instruction": "smsp__average_warp_latency_per_inst_issued.ratio",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    "# SMs": "launch__sm_count",
}
_OF_SECTION = {
    ("GPU Speed Of Light Throughput", "Memory Throughput"): f"gpu__compute_memory_throughput{_ELAPSED}",
    ("Memory Workload Analysis", "Memory Throughput"): "dram__bytes.sum.per_second",
}

_TIMES = {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_COUNTED = frozenset({"byte", "hz", "sector", "inst", "cycle", "thread", "warp", "request", "block", "flop"})

_EXPECTED = "a report of Nsight Compute (.ncu-rep), or the output of `ncu --page raw` or `--page details`"
_FACTS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
          "Block Size", "Grid Size", "Device", "CC",
          "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg")  # fmt: skip
_RULE = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")
_KINDS = {"INF": "ok", "WRN": "warning", "ERR": "error", "OPT": "optimization"}
_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9,]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SIZES = re.compile(r"\(?\s*([0-9]{1,10})\s*,\s*([0-9]{1,10})\s*,\s*([0-9]{1,10})\s*\)?")
_KERNEL = re.compile(
    r"^\s{0,4}(?P<name>\S.*?) \((?P<grid>\d+, \d+, \d+)\)x\((?P<block>\d+, \d+, \d+)\)"
    r", Context (?P<context>\d{1,18}), Stream (?P<stream>\d{1,18})"
)
_OLD_KERNEL = re.compile(
    r"^\s{0,4}(?P<name>\S.*?), \d{4}-\w{3}-\d\d [\d:]+, Context (?P<context>\d{1,18}), Stream (?P<stream>\d{1,18})"
)
_PROCESS = re.compile(r"^\[(\d{1,18})\] ")
_ABSENT = frozenset({"", "no data", "n/a", "N/A", "(!) n/a", "-"})
_MOST_FIELD = 1 << 24
_LONGEST = 18


@dataclass
class _Draft:
    """A launch while its lines are read."""

    name: str
    grid: Sizes | None = None
    block: Sizes | None = None
    context: int | None = None
    stream: int | None = None
    process: int | None = None
    metrics: dict[str, Metric] = field(default_factory=dict)
    rules: dict[tuple[str, str], list[RuleMessage]] = field(default_factory=dict)

    def launch(self, number: int) -> Launch:
        grid = self.grid or _sizes_of(self.metrics, "launch__grid_dim")
        block = self.block or _sizes_of(self.metrics, "launch__block_dim")
        return Launch(
            number, self.name, short_name(self.name), grid, block, self.context, self.stream, self.process,
            self.metrics, rules=tuple(Rule(rule, rule, section, tuple(messages)) for (section, rule),
                messages in self.rules.items()),
        )  # fmt: skip

    def add(self, name: str, unit: str, text: str) -> None:
        value = _value(text, unit)
        if value is not None and name:
            self.metrics[name] = value

    def add_message(self, section: str, rule: str, kind: str, text: str, speedup_of: str, speedup: str) -> None:
        if rule and text:
            gain = _value(speedup, "%")
            percent = float(gain) if isinstance(gain, (int, float)) else None
            message = RuleMessage(_KINDS.get(kind, "none"), "", text, percent, speedup_of or None)
            self.rules.setdefault((section, rule), []).append(message)


def read_text(path: Path, data: bytes) -> NcuReport:
    """Read a printed page. Raises `InputError`: not a page of Nsight Compute, has other columns, or no launch."""
    if b"\x00" in data[:4096]:
        raise InputError(path, found="it does not start like one", expected=_EXPECTED)
    lines = data.decode("utf-8-sig", "replace").splitlines()
    head = next(
        (n for n, line in enumerate(lines) if line.startswith(('"ID","', "ID,")) and "Kernel Name" in line), None
    )
    warnings: list[str] = []
    drafts = _plain(lines) if head is None else _table(path, lines[head:], warnings)
    if not drafts:
        comma = next((line for line in lines if "," in line and not line.startswith("==")), "")
        problem = f"its columns are {comma[:80]!r}" if comma and head is None else "it has no kernel launch"
        raise InputError(path, found=problem, expected=_EXPECTED)
    return NcuReport(0, tuple(d.launch(n) for n, d in enumerate(drafts)), tuple(warnings))


def _table(path: Path, lines: list[str], warnings: list[str]) -> list[_Draft]:
    """The launches of a page printed with `--csv`."""
    full = [line for line in lines if line.strip()]
    if full[0].startswith('"') and not full[-1].endswith(('"', ",")):  # all cells are quoted, so the last one was cut
        full.pop()
        warnings.append("the last line of the page is cut short: the lines before were read")
    rows = _rows(path, full)
    drafts: list[_Draft] = []
    columns: list[str] | None = next(rows, None)
    while columns is not None:  # concatenated pages, each with its own columns
        of = {name: n for n, name in reversed(list(enumerate(columns)))}
        if "Metric Name" in of:
            needed = [n for n in ("Metric Unit", "Metric Value") if n not in of]
            if needed:
                raise InputError(path, found=f"it has no column {needed[0]!r}", expected=_EXPECTED)
            columns = _details(rows, columns, of, drafts, warnings)
        elif any("__" in name for name in columns):
            columns = _raw(rows, columns, of, drafts, warnings)
        else:
            raise InputError(
                path, found="it has neither a column 'Metric Name' nor a column of a metric", expected=_EXPECTED
            )
    return drafts


def _rows(path: Path, lines: Iterable[str]) -> Iterator[list[str]]:
    before = csv.field_size_limit(_MOST_FIELD)
    try:
        yield from (row for row in csv.reader(line for line in lines if not line.startswith("==")) if row)
    except csv.Error as error:
        raise InputError(path, found=f"it is not valid CSV ({error})", expected=_EXPECTED) from error
    finally:
        csv.field_size_limit(before)


def _raw(
    rows: Iterator[list[str]], columns: Sequence[str], of: dict[str, int], drafts: list[_Draft], warnings: list[str]
) -> list[str] | None:
    """A row per launch, the units in a row above them; the columns of the next page, or None."""
    units: Sequence[str] = [""] * len(columns)
    metrics = [
        (n, name) for n, name in enumerate(columns) if name not in _FACTS and not name.startswith("thread Domain")
    ]
    for row in rows:
        if _is_repeat(row, columns):
            return row
        if not row[of["ID"]]:
            units = row
            continue
        if len(row) != len(columns):
            _cut(warnings, len(drafts))
            break
        draft = _begun(row, of)
        for n, name in metrics:
            draft.add(name, units[n] if n < len(units) else "", row[n])
        drafts.append(draft)
    return None


def _details(
    rows: Iterator[list[str]], columns: Sequence[str], of: dict[str, int], drafts: list[_Draft], warnings: list[str]
) -> list[str] | None:
    """A row per launch and metric; what rules say, in rows without a metric. The columns of the next page, or None."""
    last = None
    for row in rows:
        if _is_repeat(row, columns):
            return row
        if len(row) <= of["Metric Value"]:
            _cut(warnings, len(drafts))
            break
        if row[of["ID"]] != last:
            last = row[of["ID"]]
            drafts.append(_begun(row, of))
        section = row[of["Section Name"]] if "Section Name" in of else ""
        name = row[of["Metric Name"]]
        if not name:
            drafts[-1].add_message(
                *(row[of[n]] if n in of and of[n] < len(row) else "" for n in ("Section Name", *_RULE))
            )
        else:
            drafts[-1].add(_metric_of(section, name), row[of["Metric Unit"]], row[of["Metric Value"]])
    return None


def _plain(lines: Iterable[str]) -> list[_Draft]:
    """The launches of a page printed as text: a line for the kernel, then tables with columns marked by dashes."""
    drafts: list[_Draft] = []
    process: int | None = None
    section = ""
    spans: list[tuple[int, int]] = []
    last: tuple[str, str] | None = None
    for line in lines:
        if match := _PROCESS.match(line):
            process = int(match[1])
        elif match := _KERNEL.match(line) or _OLD_KERNEL.match(line):
            facts = match.groupdict()
            draft = _Draft(
                facts["name"], _sizes(facts.get("grid", "")), _sizes(facts.get("block", "")), process=process
            )
            draft.context, draft.stream = int(facts["context"]), int(facts["stream"])
            drafts.append(draft)
            section, spans, last = "", [], None
        elif line.strip().startswith("Section: "):
            section, spans, last = line.strip().removeprefix("Section: "), [], None
        elif re.fullmatch(r"\s*-+( -+)+\s*", line):
            spans, last = [m.span() for m in re.finditer("-+", line)], None
        elif not line.strip():
            spans, last = ([], None) if section else (spans, None)
        elif len(spans) >= 3 and drafts:
            name, unit, text = (line[a:b].strip() for a, b in (spans[0], spans[-2], (spans[-1][0], len(line))))
            if not name and last:  # a long text continues in the next line
                wide = len(last[1].rsplit("\n", 1)[-1]) >= spans[-1][1] - spans[-1][0]  # broken within a word
                last = (last[0], f"{last[1]}{'' if wide else ' '}\n{text}")
                drafts[-1].add(last[0], "", last[1].replace("\n", ""))
            elif name and name != "Metric Name":
                own = _metric_of(section, name) if section else name
                last = (own, text)
                drafts[-1].add(own, unit, text)
    return drafts


def _begun(row: Sequence[str], of: dict[str, int]) -> _Draft:
    def cell(name: str) -> str:
        return row[of[name]] if name in of and of[name] < len(row) else ""

    draft = _Draft(cell("Kernel Name"), _sizes(cell("Grid Size")), _sizes(cell("Block Size")))
    draft.context, draft.stream, draft.process = (_whole(cell(n)) for n in ("Context", "Stream", "Process ID"))
    return draft


def _is_repeat(row: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether the header is repeated here: concatenated pages."""
    return list(row[:2]) == list(columns[:2])


def _cut(warnings: list[str], launches: int) -> None:
    warnings.append(f"the page is cut short after launch {launches}: the launches before were read")


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def _sizes(text: str) -> Sizes | None:
    match = _SIZES.fullmatch(text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _sizes_of(metrics: dict[str, Metric], name: str) -> Sizes | None:
    axes = [metrics.get(f"{name}_{axis}") for axis in "xyz"]
    if not all(isinstance(v, (int, float)) and v == v and abs(v) < 2**53 for v in axes):
        return None
    x, y, z = (int(float(v)) for v in axes if v is not None)
    return x, y, z


def _value(text: str, unit: str) -> Metric | None:
    """A printed value in base units; text if it is not a number; None if there is no value."""
    text = text.strip()
    if text in _ABSENT:
        return None
    match = _NUMBER.match(text)
    # values of instances are in brackets after the metric's own
    if match is None or not (match.end() == len(text) or text[match.end() :].startswith(" (")):
        return float("nan") if text.lower() in ("nan", "-nan", "+nan") else text
    digits = match[0].replace(",", "")
    factor = base_factor(unit)
    if factor is None or factor == 1:
        return int(digits) if digits.lstrip("+-").isdigit() and len(digits) <= _LONGEST else float(digits)
    return float(digits) * factor


@cache
def base_factor(unit: str) -> float | None:
    """What a value in `unit` is multiplied by to be in its base unit; None for others (share, count, none).

    A time is in ns, except below a fraction stroke, where it is a second; K, M, G and T are decimal.
    """
    above, stroke, below = unit.partition("/")
    over = _factor(above)
    if not stroke:
        return over
    if below in _TIMES:
        return (over or 1.0) / (_TIMES[below] / 1e9)
    # a prefix below the stroke: Nsight Compute prints 2006 %/byte as 2.006 %/Kbyte
    under = _factor(below)
    return over if under is None else (over or 1.0) * under


def _factor(unit: str) -> float | None:
    if unit in _TIMES:
        return _TIMES[unit]
    if unit[:1] in _PREFIXES and unit[1:].lower() in _COUNTED:
        return _PREFIXES[unit[0]]
    return None


def _metric_of(section: str, name: str) -> str:
    """The metric that a page of details calls `name` in `section`; `details: SECTION: NAME` if not known."""
    if (metric := _OF_SECTION.get((section, name))) is not None:
        return metric
    if (metric := _NAMES.get(name)) is not None:
        return metric
    return name if "__" in name else f"details: {section}: {name}"
