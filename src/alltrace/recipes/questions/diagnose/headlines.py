"""What a finding is about, in one sentence, and who is to blame; from the row that `diagnose` has for it."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from alltrace.trace.amounts import amount, shortened
from alltrace.trace.number_text import named_devices, number_ranges

_MOST_NAMED = 24
"""Characters of a list of ranks in a sentence; of a longer one the first are named, and how many more there are."""
_MOST_HOSTS = 4
_PLACE = 60


def who(row: Mapping[str, Any], hosts: Mapping[int, str]) -> str:
    """The culprits with their hosts: `rank 11 on node002`, `rank 0, GPU 3 on node001`, `all 16 ranks`."""
    ranks = row["ranks"] or ()
    if not ranks:
        return ""
    named = named_culprits(row, len(hosts))
    places = sorted({hosts[rank] for rank in ranks if rank in hosts})
    if not places or named.startswith("all "):
        return named
    shown = ", ".join(places[:_MOST_HOSTS])
    more = f" and {len(places) - _MOST_HOSTS} more hosts" if len(places) > _MOST_HOSTS else ""
    return f"{named} on {shown}{more}"


def named_culprits(row: Mapping[str, Any], total: int) -> str:
    """The culprits of a row in a sentence: as `named_ranks`, with their GPUs if some process works with several."""
    devices = row["devices"]
    if not devices:
        return named_ranks(row["ranks"], total)
    text = named_devices(devices)
    return text if len(text) <= 2 * _MOST_NAMED else f"{len(devices):,} GPUs of {named_ranks(row['ranks'], total)}"


def named_ranks(ranks: Sequence[int], total: int) -> str:
    """Ranks in a sentence: `rank 3`, `ranks 0-3, 7`, `all 16 ranks`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) == total:
        return "both ranks" if total == 2 else f"all {total:,} ranks"
    text = number_ranges(list(ranks))
    if len(text) <= _MOST_NAMED:
        return f"ranks {text}"
    first = sorted(ranks)[:4]
    return f"ranks {', '.join(map(str, first))} and {len(ranks) - len(first):,} more"


def headline(row: Mapping[str, Any], total: int) -> str:
    """What a row of `diagnose` says, as a sentence without a full stop."""
    ranks, where = row["ranks"] or [], shortened(row["where"] or "", _PLACE)
    named = named_culprits(row, total) if ranks else "ranks"
    words = {"ranks": named, "hosts": ", ".join((row["hosts"] or ())[:_MOST_HOSTS]) or named, "where": where}
    known = {
        "named": bool(ranks) or None,
        "others": bool(row["devices"]) or len(ranks) < total or None,
        "needed": row["needed_at_once"] or None,
        "communication": where == "communication" or None,
    }
    numbers = {**row["evidence"], **known}
    several = len(row["devices"] or ranks) != 1

    def fill(field: re.Match[str]) -> str:
        name, how = field.groups()
        if "|" in how:
            return str(how.split("|")[numbers[name] > 1])
        if how:
            return _NUMBERS[how](numbers.get(name))
        return words[name] if name in words else str(name.split("|")[several])

    templates = _FAULTS.get(where, _FAULT) if row["kind"] == "capture-fault" else _HEADLINES[row["kind"]]
    having = (t for t in templates if all(numbers.get(name) is not None for name, how in _FIELD.findall(t) if how))
    sentence = _FIELD.sub(fill, next(having, templates[-1]))
    return f"{sentence[:1].upper()}{sentence[1:]}"


_FIELD = re.compile(r"\{([^}:]+):?([^}]*)\}")
"""`{ranks}`, `{hosts}`, which are the ranks if no host is known, and `{where}`; `{waits|wait}`, by how many culprits
there are; `{number:unit}` of the evidence, in one of `_NUMBERS`, or a word by whether it is above 1. Of several
sentences about a kind the first counts whose numbers are known, else the last."""

_NUMBERS: dict[str, Callable[[Any], str]] = {
    "known": lambda _: "",
    "more": lambda ratio: f"{100 * ((ratio or 1.0) - 1):.0f} %",
    "times": lambda ratio: f"{ratio:.1f} times",
    "share": lambda share: f"{100 * share:.0f} %",
    "part": lambda share: "less than 1 %" if share < 0.01 else f"only {100 * share:.0f} %",
    "count": lambda number: f"{number:,.0f}",
    "step": lambda number: f"{number:.0f}",
    "time": lambda ns: amount(round(ns), "ns", 3),
    "rate": lambda rate: amount(float(rate), "GB/s", 3),
}


def _in_steps(*templates: str) -> tuple[str, ...]:
    """Sentences with in how many steps that is so, and from which on; and without."""
    steps = " in {steps_affected:count} of {steps:count} steps, the first of them step {since_step:step}"
    return (*(template + steps for template in templates), *templates)


_FAULT = ("the reports of {ranks} are incomplete: {where}",)
_FAULTS: dict[str, tuple[str, ...]] = {
    "missing ranks": ("there is no report for {ranks}",),
    "late start": ("the {report|reports} of {ranks} {begins|begin} after the run did",),
    "cut short": ("the {report|reports} of {ranks} {ends|end} before the run did",),
    "dropped events": ("the profiler dropped events of {ranks}",),
    "damaged report": ("a part of the {report|reports} of {ranks} cannot be read",),
    "newer report": ("the {report|reports} of {ranks} {is|are} of a newer format",),
    "no ranges": ("no ranges were captured on {ranks}",),
    "graphs hide kernels": ("CUDA graphs hide the kernels of {ranks}",),
    "clocks not connected": ("nothing connects the clocks of {hosts} with those of the others",),
}

_HEADLINES: dict[str, tuple[str, ...]] = {
    "straggler": (
        "{ranks} {computes|compute} {slowdown:more} slower than {its peers|their peers}",
        "{work_ratio:known}others wait for {where} of {ranks}, which they do not do",
        "{ranks} {arrives|arrive} last at {last_share:share} of the collectives with waits",
        "{ranks} {arrives|arrive} last",
    ),
    "slow-host": ("all ranks of {hosts} compute {slowdown:more} slower than those of other hosts",),
    "imbalance": (
        "{others:known}{ranks} {has|have} {work_ratio:more} more work than the others",
        "{work_ratio:known}another rank has the most work in each step, by {work_ratio:more} on average",
        "{breadth:known}some kernels take {slowdown:more} longer on {ranks} than elsewhere",
        "another rank is slowest in each step, by {slowdown:more} in the middle",
    ),
    "throttling": _in_steps("{ranks} {computes|compute} {slowdown:more} slower than before"),
    "device-stall": _in_steps("kernels of {ranks} stall for up to {longest_step_ns:time}", "kernels of {ranks} stall"),
    "regression": _in_steps("{ranks} {takes|take} {slowdown:more} longer than before"),
    "jitter": ("the same kernels vary at random between ranks and steps, and each step waits for the slowest",),
    "shared-device": (
        "kernels of {ranks} are interrupted by time slices of another process on {its device|their devices}",
    ),
    "slow-communicator": (
        "transfers of {where} take {slowdown:times} as long as those of similar communicators",
        "transfers of {where} take longer than those of similar communicators",
    ),
    "low-bandwidth": (
        "{where} of {hosts} {adapters:sends|send} at {gb_per_s:rate}, the other adapters at {peers_gb_per_s:rate}",
        "{where} of {ranks} run at {gb_per_s:rate}, those of {its peers|their peers} at {peers_gb_per_s:rate}",
        "communicators of {ranks} are slow, and those without {it|them} are not",
    ),
    "exposed-communication": (
        "{needed:known}devices wait for {where}, which the next kernel needs immediately",
        "devices wait for {where} that could overlap compute",
    ),
    "serialized-communication": ("collectives of {where} queue behind others that they do not need",),
    "launch-bound": ("{ranks} {launches|launch} kernels more slowly than the device runs them",),
    "sync": ("the host of {ranks} waits for the device in {where}, and the device runs dry",),
    "host-pause": ("the launching thread of {ranks} pauses, and the device runs dry",),
    "data-stall": ("{ranks} {waits|wait} for the next batch",),
    "pageable-copy": ("copies of {ranks} use pageable memory and hold up the device",),
    "sync-copy": ("synchronous copies of {ranks} drain the device",),
    "exposed-transfer": ("devices of {ranks} wait for {where}",),
    "allocation": ("{ranks} {allocates and frees|allocate and free} device memory between kernels",),
    "module-loading": ("{ranks} {loads|load} code while steps run",),
    "recompilation": ("{ranks} {compiles|compile} code again while steps run",),
    "idle-gap": ("devices of {ranks} are idle although work is queued",),
    "hand-over": ("the roles {where} take turns: one works while the others stand still",),
    "missing-rank": (
        "{named:known}the others wait for {ranks}, for which there is no report",
        "ranks wait for ranks without a report",
    ),
    "unexplained": (
        "devices compute for {compute_share:part} of the time, and no finding explains the rest",
        "{communication:known}the devices of {ranks} wait for communication, and it is unknown for which ranks",
        "{the device of|the devices of} {ranks} {stands|stand} idle, and the report does not show why",
    ),
    "capture-fault": _FAULT,
    "precision": ("matrix products run in fp32 or TF32, although the device is faster in fp16 or bf16",),
    "attention": ("attention runs as several kernels that one fused kernel could replace",),
    "fusion": ("kernels in a row that move data could be one fused kernel",),
    "shapes": ("shapes of matrix products leave multiprocessors empty in their last wave",),
    "slow-operator": ("its shapes, format or kernel keep {where} from the rate of its device",),
    "small-kernels": ("the device waits between small kernels that a CUDA graph could launch at once",),
}
