"""What a finding is about, in one sentence, and who is to blame; from the row that `diagnose` has for it."""

from __future__ import annotations

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
    said = _HEADLINES[row["kind"]]
    if not isinstance(said, str):
        said = said(_Row(row, total))
    return f"{said[:1].upper()}{said[1:]}"


class _Row:
    def __init__(self, row: Mapping[str, Any], total: int) -> None:
        ranks = row["ranks"] or []
        self.named = bool(ranks)
        self.several = len(row["devices"] or ranks) != 1
        self.ranks = named_culprits(row, total) if ranks else "ranks"
        self.hosts = ", ".join(row["hosts"][:_MOST_HOSTS]) if row["hosts"] else ""
        self.where = shortened(row["where"] or "", _PLACE)
        self.evidence: Mapping[str, Any] = row["evidence"]
        self.needed = bool(row["needed_at_once"])

    def __getitem__(self, name: str) -> Any:
        return self.evidence.get(name)

    def verb(self, one: str, several: str) -> str:
        return several if self.several else one

    @property
    def steps(self) -> str:
        """In how many steps, and from which on."""
        if self["since_step"] is None or self["steps"] is None or self["steps_affected"] is None:
            return ""
        return (
            f" in {self['steps_affected']:,.0f} of {self['steps']:,.0f} steps, the first of them step"
            f" {self['since_step']:.0f}"
        )

    @property
    def peers(self) -> str:
        return self.verb("its peers", "their peers")


def _more(ratio: float) -> str:
    return f"{100 * (ratio - 1):.0f} %"


def _straggler(row: _Row) -> str:
    if row["slowdown"] is not None:
        return f"{row.ranks} {row.verb('computes', 'compute')} {_more(row['slowdown'])} slower than {row.peers}"
    if row["work_ratio"] is not None:
        return f"others wait for {row.where} of {row.ranks}, which they do not do"
    share = row["last_share"]
    often = "" if share is None else f" at {100 * share:.0f} % of the collectives with waits"
    return f"{row.ranks} {row.verb('arrives', 'arrive')} last{often}"


def _device_stall(row: _Row) -> str:
    longest = row["longest_step_ns"]
    at_most = "" if longest is None else f" for up to {amount(round(longest), 'ns', 3)}"
    return f"kernels of {row.ranks} stall{at_most}{row.steps}"


def _imbalance(row: _Row) -> str:
    if row["work_ratio"] is not None:
        return f"{row.ranks} {row.verb('has', 'have')} {_more(row['work_ratio'])} more work than the others"
    slower = _more(row["slowdown"] or 1.0)
    if row["breadth"] is not None:
        return f"some kernels take {slower} longer on {row.ranks} than elsewhere"
    return f"another rank is slowest in each step, by {slower} in the middle"


def _slow_communicator(row: _Row) -> str:
    slowdown = row["slowdown"]
    longer = "longer than" if slowdown is None else f"{slowdown:.1f} times as long as"
    return f"transfers of {row.where} take {longer} those of similar communicators"


def _low_bandwidth(row: _Row) -> str:
    own, peers = row["gb_per_s"], row["peers_gb_per_s"]
    if own is None or peers is None:
        return f"all communicators of {row.ranks} are slow, and those without {row.verb('it', 'them')} are not"
    if row["adapters"] is not None:
        rates = f"{amount(float(own), 'GB/s', 3)}, the other adapters at {amount(float(peers), 'GB/s', 3)}"
        return f"{row.where} of {row.hosts or row.ranks} {'send' if row['adapters'] > 1 else 'sends'} at {rates}"
    rates = f"{amount(float(own), 'GB/s', 3)}, those of {row.peers} at {amount(float(peers), 'GB/s', 3)}"
    return f"{row.where} of {row.ranks} run at {rates}"


def _unexplained(row: _Row) -> str:
    if row.where == "communication" and row["compute_share"] is None:
        return f"the devices of {row.ranks} wait for communication, and it is unknown for which ranks"
    if row["compute_share"] is None:
        stand = row.verb("the device of {} stands", "the devices of {} stand").format(row.ranks)
        return f"{stand} idle, and the report does not show why"
    share = "less than 1 %" if row["compute_share"] < 0.01 else f"only {100 * row['compute_share']:.0f} %"
    return f"devices compute for {share} of the time, and no finding explains the rest"


_FAULTS: dict[str, Callable[[_Row], str]] = {
    "missing ranks": lambda row: f"there is no report for {row.ranks}",
    "late start": lambda row: (
        f"the {row.verb('report', 'reports')} of {row.ranks} {row.verb('begins', 'begin')} after the run did"
    ),
    "cut short": lambda row: (
        f"the {row.verb('report', 'reports')} of {row.ranks} {row.verb('ends', 'end')} before the run did"
    ),
    "dropped events": lambda row: f"the profiler dropped events of {row.ranks}",
    "damaged report": lambda row: f"a part of the {row.verb('report', 'reports')} of {row.ranks} cannot be read",
    "newer report": lambda row: (
        f"the {row.verb('report', 'reports')} of {row.ranks} {row.verb('is', 'are')} of a newer format"
    ),
    "no ranges": lambda row: f"no ranges were captured on {row.ranks}",
    "graphs hide kernels": lambda row: f"CUDA graphs hide the kernels of {row.ranks}",
    "clocks not connected": lambda row: (
        f"nothing connects the clocks of {row.hosts or row.ranks} with those of the others"
    ),
}


def _capture_fault(row: _Row) -> str:
    make = _FAULTS.get(row.where)
    return f"the reports of {row.ranks} are incomplete: {row.where}" if make is None else make(row)


_HEADLINES: dict[str, str | Callable[[_Row], str]] = {
    "straggler": _straggler,
    "slow-host": lambda row: (
        f"all ranks of {row.hosts or row.ranks} compute {_more(row['slowdown'] or 1.0)} slower than those of other"
        " hosts"
    ),
    "imbalance": _imbalance,
    "throttling": lambda row: (
        f"{row.ranks} {row.verb('computes', 'compute')} {_more(row['slowdown'] or 1.0)} slower than before{row.steps}"
    ),
    "device-stall": _device_stall,
    "regression": lambda row: (
        f"{row.ranks} {row.verb('takes', 'take')} {_more(row['slowdown'] or 1.0)} longer than before{row.steps}"
    ),
    "jitter": "the same kernels vary at random between ranks and steps, and each step waits for the slowest",
    "shared-device": lambda row: (
        f"kernels of {row.ranks} are interrupted by time slices of another process on"
        f" {row.verb('its device', 'their devices')}"
    ),
    "slow-communicator": _slow_communicator,
    "low-bandwidth": _low_bandwidth,
    "exposed-communication": lambda row: (
        f"devices wait for {row.where}"
        + (", which the next kernel needs immediately" if row.needed else " that could overlap compute")
    ),
    "serialized-communication": lambda row: f"collectives of {row.where} queue behind others that they do not need",
    "launch-bound": lambda row: (
        f"{row.ranks} {row.verb('launches', 'launch')} kernels more slowly than the device runs them"
    ),
    "sync": lambda row: f"the host of {row.ranks} waits for the device in {row.where}, and the device runs dry",
    "host-pause": lambda row: f"the launching thread of {row.ranks} pauses, and the device runs dry",
    "data-stall": lambda row: f"{row.ranks} {row.verb('waits', 'wait')} for the next batch",
    "pageable-copy": lambda row: f"copies of {row.ranks} use pageable memory and hold up the device",
    "sync-copy": lambda row: f"synchronous copies of {row.ranks} drain the device",
    "exposed-transfer": lambda row: f"devices of {row.ranks} wait for {row.where}",
    "allocation": lambda row: (
        f"{row.ranks} {row.verb('allocates and frees', 'allocate and free')} device memory between kernels"
    ),
    "module-loading": lambda row: f"{row.ranks} {row.verb('loads', 'load')} code while steps run",
    "recompilation": lambda row: f"{row.ranks} {row.verb('compiles', 'compile')} code again while steps run",
    "idle-gap": lambda row: f"devices of {row.ranks} are idle although work is queued",
    "hand-over": lambda row: f"the roles {row.where} take turns: one works while the others stand still",
    "missing-rank": lambda row: (
        f"the others wait for {row.ranks}, for which there is no report"
        if row.named
        else "ranks wait for ranks without a report"
    ),
    "unexplained": _unexplained,
    "capture-fault": _capture_fault,
    "precision": "matrix products run in fp32 or TF32, although the device is faster in fp16 or bf16",
    "attention": "attention runs as several kernels that one fused kernel could replace",
    "fusion": "kernels in a row that move data could be one fused kernel",
    "shapes": "shapes of matrix products leave multiprocessors empty in their last wave",
    "slow-operator": lambda row: f"its shapes, format or kernel keep {row.where} from the rate of its device",
    "small-kernels": "the device waits between small kernels that a CUDA graph could launch at once",
}
