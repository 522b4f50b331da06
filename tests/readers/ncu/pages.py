"""Compares the views of `alltrace ncu` with the pages of a real Nsight Compute, cell by cell.

    ALLTRACE_NSIGHT=FOLDER python -m tests.readers.ncu.pages REPORT...

ALLTRACE_NSIGHT is a folder with `ncu/ncu`. With ALLTRACE_NVDISASM, the path of `nvdisasm`, instructions are compared
too. It prints a table of pages and the first differences of each, and exits with 1 where there is any.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from alltrace.cli.kernel_reports import read_reports
from alltrace.readers.ncu.disassembly import disassembled
from alltrace.readers.ncu.listing import Listings
from alltrace.recipes.ncu import source, views

UNITS = {"nsecond": "ns", "cycle/second": "Hz", "": None, "%/": "%"}
"""How versions before 2025 call what is called otherwise here."""
NVIDIAS_UNITS = {
    # its own table: elements of instances that it calls bytes or sectors, and none for clocks
    "derived__memory_l1_wavefronts_shared_excessive", "derived__memory_l2_theoretical_sectors_global_excessive",
    "memory_l1_tag_requests_global", "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal",
    "memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal",
    "memory_l2_theoretical_sectors_local", "device__attribute_clock_rate", "device__attribute_max_gpu_frequency_khz",
    "device__attribute_max_mem_frequency_khz", "device__attribute_memory_clock_rate", "nvlink__bandwidth",
    "launch__stack_size", "smsp__sass_inst_executed_memdesc_explicit_evict_type",
    "smsp__pcsamp_warps_issue_stalled_no_instructions", "smsp__pcsamp_warps_issue_stalled_no_instructions_not_issued",
}  # fmt: skip
KINDS = {"INF": "ok", "WRN": "warning", "ERR": "error", "OPT": "optimization", "": "none"}
BASE = ("--print-units", "base", "--print-fp")
_STATES = {
    "imc": "imc_miss", "lg": "lg_throttle", "long_sb": "long_scoreboard", "math": "math_pipe_throttle",
    "mio": "mio_throttle", "no_inst": "no_instruction", "short_sb": "short_scoreboard", "sleep": "sleeping",
    "tex": "tex_throttle", "dispatch": "dispatch_stall", "branch_resolve": "branch_resolving",
}  # fmt: skip
_COLUMNS = {
    "Warp Stall Sampling (All Cycles)": "samples",
    "Warp Stall Sampling (Not-issued Cycles)": "samples_not_issued",
    "Instructions Executed": "executed",
    "Thread Instructions Executed": "threads_executed",
    "Predicated-On Thread Instructions Executed": "threads_predicated_on",
    "L2 Theoretical Sectors Global": "global_sectors",
    "L2 Theoretical Sectors Global Ideal": "global_sectors_ideal",
    "L1 Wavefronts Shared": "shared_wavefronts",
    "L1 Wavefronts Shared Ideal": "shared_wavefronts_ideal",
}
_EVICTION = "smsp__inst_executed_memdesc_explicit_"
_METRICS = {
    "Avg. Threads Executed": "derived__avg_thread_executed",
    "Avg. Predicated-On Threads Executed": "derived__avg_thread_executed_true",
    "Divergent Branches": "smsp__branch_targets_threads_divergent",
    "L1 Tag Requests Global": "memory_l1_tag_requests_global",
    "L1 Wavefronts Shared Excessive": "derived__memory_l1_wavefronts_shared_excessive",
    "L2 Theoretical Sectors Global Excessive": "derived__memory_l2_theoretical_sectors_global_excessive",
    "L2 Theoretical Sectors Local": "memory_l2_theoretical_sectors_local",
    "L2 Explicit Evict Policies": f"{_EVICTION}evict_type",
    **{f"L2 Explicit {kind} Policy Evict {way}": f"{_EVICTION}{kind.lower()}prop_evict_{way.lower().replace(' ', '_')}"
       for kind in ("Hit", "Miss") for way in ("First", "Last", "Normal", "Normal Demote")},
    "smsp__pcsamp_sample_count": "smsp__pcsamp_sample_count",
}  # fmt: skip
"""Columns that the view has no column of its own for: values of instances by address."""


class Compared(NamedTuple):
    """What a page gave.

    Attributes:
        page: The page.
        values: Values that it printed.
        differences: Those that are other or missing here, and what is here alone; each a sentence.
    """

    page: str
    values: int
    differences: list[str]


def printed(report: Path, *options: str) -> list[list[str]]:
    """The rows of a page, from its head on."""
    tool = Path(os.environ["ALLTRACE_NSIGHT"]) / "ncu" / "ncu"
    done = subprocess.run(
        [str(tool), "--import", str(report), "--csv", *options], capture_output=True, text=True, check=True
    )
    return [row for row in csv.reader(line for line in done.stdout.splitlines() if not line.startswith("==")) if row]


def close(text: str, value: float) -> bool:
    """Whether a value is what was printed, as far as its digits go."""
    try:
        theirs = float(text.replace(",", ""))
    except ValueError:
        return text == "nan" and value != value
    decimals = len(text.partition(".")[2].partition("e")[0])
    return theirs == value or abs(theirs - value) <= 0.50001 * 10**-decimals or (theirs != theirs and value != value)


def compare(report: Path) -> list[Compared]:
    """All pages of a report."""
    (profiled,), _ = read_reports([report], detail=True)
    return [
        _raw(report, profiled),
        _details(report, profiled, "header"),
        _details(report, profiled, "body"),
        _rules(report, profiled),
        _instances(report, profiled),
        *_source(report),
    ]


def _raw(report: Path, profiled) -> Compared:
    head, units, *body = printed(report, "--page", "raw", *BASE)
    ours = defaultdict(dict)
    for row in views.METRICS.answer(profiled, ()).table.to_pylist():
        ours[row["launch"]][row["metric"]] = row
    found, count = [], 0
    for launch, row in enumerate(body):
        left = dict(ours[launch])
        for metric, unit, text in list(zip(head, units, row, strict=True))[head.index("CC") + 1 :]:
            if text in ("", "no data"):
                continue
            count += 1
            own = left.pop(metric, None)
            unit = UNITS.get(unit, unit)
            unit = unit and unit.replace("/second", "/s")
            if own is None or not (own["text"] == text if own["value"] is None else close(text, own["value"])):
                found.append(f"launch {launch}, {metric}: {text!r}, here {own and (own['value'], own['text'])}")
            elif own["unit"] != unit and metric not in NVIDIAS_UNITS:
                found.append(f"launch {launch}, {metric}: unit {unit!r}, here {own['unit']!r}")
        found += [
            f"launch {launch}, {metric}: is here alone"
            for metric in left
            if ":" not in metric and left[metric]["text"] != ""
        ]
    return Compared("raw", count, found)


def _details(report: Path, profiled, part: str) -> Compared:
    head, *rows = printed(report, "--page", "details", "--print-details", part, "--print-metric-name", "name", *BASE)
    place = {name: n for n, name in enumerate(head)}
    theirs, ours = Counter(), Counter()
    texts = {}
    for row in rows:
        if len(row) > place["Metric Value"] and row[place["Metric Name"]] and row[place["Metric Value"]] != "n/a":
            key = (row[place["ID"]], row[place["Section Name"]], row[place["Metric Name"]])
            theirs[key] += 1
            texts[key] = row[place["Metric Value"]]
    values = {}
    for row in views.DETAILS.answer(profiled, ()).table.to_pylist():
        if row["part"] == part:
            key = (str(row["launch"]), row["section"], row["metric"])
            ours[key] += 1
            values[key] = row
    found = [f"{key}: printed {n} times, here {ours[key]}" for key, n in theirs.items() if not ours[key]]
    found += [f"{key}: is here alone" for key in ours if key not in theirs and part == "header"]
    for key in theirs.keys() & ours.keys():
        own = values[key]
        text = texts[key].partition(" (")[0] if part == "body" else texts[key]
        if not (own["text"] == text if own["value"] is None else close(text, own["value"])):
            found.append(f"{key}: {texts[key]!r}, here {own['value']} {own['text']}")
    return Compared(f"details, {part}", sum(theirs.values()), found)


def _rules(report: Path, profiled) -> Compared:
    head, *rows = printed(report, "--page", "details")
    names = (
        "ID",
        "Section Name",
        "Rule Name",
        "Rule Type",
        "Rule Description",
        "Estimated Speedup Type",
        "Estimated Speedup",
    )
    place = [head.index(n) for n in names]
    theirs, ours = Counter(), Counter()
    for row in rows:
        launch, section, rule, kind, text, of, gain = (row[n] if n < len(row) else "" for n in place)
        if rule and text:
            theirs[launch, section, rule, KINDS[kind], text, of, gain and f"{float(gain):.4g}"] += 1
    for row in views.RULES.answer(profiled, ()).table.to_pylist():
        gain = row["speedup_percent"]
        said = (row["kind"], row["message"], row["speedup_of"] or "", "" if gain is None else f"{gain:.4g}")
        ours[str(row["launch"]), row["section"], row["rule"], *said] += 1
    found = [f"{key}: only printed" for key in theirs - ours] + [f"{key}: only here" for key in ours - theirs]
    return Compared("details, rules", sum(theirs.values()), found)


def _instances(report: Path, profiled) -> Compared:
    head, _, *body = printed(report, "--page", "raw", "--print-metric-instances", "details", *BASE)
    ours = defaultdict(dict)
    for row in views.INSTANCES.answer(profiled, ()).table.to_pylist():
        ours[row["launch"], row["metric"]][row["instance"] or ""] = row
    found, count = [], 0
    for launch, row in enumerate(body):
        for metric, text in list(zip(head, row, strict=True))[head.index("CC") + 1 :]:
            whole = re.fullmatch(r"(?:.*?) ?\((.*: .*)\)", text, re.DOTALL)
            if whole is None or ": " not in text:
                continue
            own = ours[launch, metric]
            for pair in whole[1].split("; "):
                key, _, value = pair.partition(": ")
                count += 1
                here = own.get(key) or (own.get(f"{int(key):#x}") if key.isdigit() else None)
                if here is None or not (
                    here["text"] == value if here["value"] is None else close(value, here["value"])
                ):
                    found.append(
                        f"launch {launch}, {metric}, {key}: {value!r}, here {here and (here['value'], here['text'])}"
                    )
    return Compared("raw, instances", count, found)


def _source(report: Path) -> list[Compared]:
    """The machine code with its columns, and which line of the source each instruction is from."""
    program = os.environ.get("ALLTRACE_NVDISASM")
    listings = Listings(partial(disassembled, program=program) if program else None)
    (profiled,), _ = read_reports([report], detail=True, listings=listings)
    answer = source.answer(profiled, (), "sass")
    of_launch, states = defaultdict(list), defaultdict(dict)
    for row in answer.table.to_pylist():
        of_launch[row["launch"]].append(row)
    owner = {row["address"]: launch for launch, rows in of_launch.items() for row in rows}
    functions = {row["address"]: row["function"] for rows in of_launch.values() for row in rows}
    values = [
        {m: dict(x.launch.instances[m]) for m in _METRICS.values() if m in x.launch.instances}
        for x in profiled
    ]  # fmt: skip
    for row in answer.further["stalls"].table.to_pylist():
        states[row["launch"], row["address"]][row["state"]] = row
    found, count, launch, at, head = [], 0, -1, 0, []
    for row in printed(report, "--page", "source", "--print-source", "sass"):
        if row[0] == "Kernel Name":
            launch, at = launch + 1, 0
        elif row[0] == "Address":
            head = row
        else:
            own = of_launch[launch][at] if at < len(of_launch[launch]) else None
            at += 1
            if owner.get(row[0], launch) != launch and (own is None or own["function"] != functions[row[0]]):
                continue  # of kernels that a report adds to a module later, it prints the code of a kernel before
            if own is None or own["address"] != row[0]:
                found.append(f"launch {launch}, {row[0]}: here {own and own['address']}")
                continue
            count += 1 + bool(program)
            if program and not _same_words(own["text"] or "", row[1]):
                found.append(f"launch {launch}, {row[0]}: {row[1]!r}, here {own['text']!r}")
            compared, others = _cells(head, row, own, states[launch, row[0]], values[launch])
            count += compared
            found += [f"launch {launch}, {row[0]}, {x}" for x in others]
    pages = [Compared("source, sass", count, found)]
    lines, count, found, current = set(), 0, [], None
    for row in printed(report, "--page", "source", "--print-source", "cuda,sass"):
        if row[0] == "File Path":
            file = row[1]
        elif row[0] and row[0].isdigit():
            current = int(row[0])
        elif not row[0] and row[2].startswith("0x"):
            count += 1
            lines.add((file, current, row[2]))
    ours = {(r["file"], r["line"], r["address"]) for rows in of_launch.values() for r in rows if r["line"]}
    if lines:
        found = [f"{x}: only printed" for x in lines - ours] + [f"{x}: only here" for x in ours - lines]
    return [*pages, Compared("source, lines", count, found)]


def _same_words(own: str, theirs: str) -> bool:
    """Whether two disassemblers mean the same instruction.

    Hints for caches of registers are left out of the page, versions punctuate operands differently, and what the linker
    fills in is a name here and a number there.
    """
    one, two = (re.findall(r"[@!\w.]+", t.replace(".reuse", "").replace("], [", "][")) for t in (own, theirs))
    return one == two or (one[0] == two[0] and ("CALL" in own or "@lo(" in own or "@hi(" in own))


def _cells(head, row, own, states, values) -> tuple[int, list[str]]:
    """How many cells of a row are compared, and those that differ; words for kinds of access are not values of ours."""
    count, found = 0, []
    for column, text in list(zip(head, row, strict=False))[2:]:
        if column in _COLUMNS:
            value = own[_COLUMNS[column]] or 0
        elif column.startswith("stall_"):
            state = column.removeprefix("stall_").removesuffix(" (Not Issued)")
            at = states.get(_STATES.get(state, state)) or {"samples": 0, "samples_not_issued": 0}
            value = at["samples_not_issued" if column.endswith("(Not Issued)") else "samples"]
        elif column in _METRICS:
            value = values.get(_METRICS[column], {}).get(int(row[0], 16), 0)
        else:
            continue
        if text not in ("-", ""):
            count += 1
            if not close(text, value):
                found.append(f"{column}: {text}, here {value}")
    return count, found


def main(reports: list[str]) -> int:
    """Print the table."""
    write = sys.stdout.write
    write("| report | page | values | differences |\n|---|---|--:|--:|\n")
    some = False
    shown = []
    for name in reports:
        for page in compare(Path(name)):
            some |= bool(page.differences)
            write(f"| {Path(name).name} | {page.page} | {page.values} | {len(page.differences)} |\n")
            shown += [f"{Path(name).name}, {page.page}: {x}" for x in page.differences[:5]]
    write("".join(f"{x}\n" for x in shown))
    return int(some)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
