"""The numbers that a finding rests on, in sentences with units."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

from alltrace.trace.amounts import amount

_SHARES = ("breadth", "persistence", "noise")


def _beside_peers(name: str, phrase: str, who: str = "peers") -> tuple[str, str]:
    """The phrases about a number and that of the peers, and about the number alone."""
    alone = phrase.format(f"{{{name}}}")
    return f"{alone}, {who} {{peers_{name}}}", alone


_PHRASES: tuple[str, ...] = (
    "the same work takes {slowdown} times as long as in other steps, the first such step is {since_step}",
    "the same work takes {slowdown} times as long as elsewhere",
    "the first such step is {since_step}",
    "{breadth} of the kernels of a family, by time, take longer",
    "{work_ratio} times as much work as the others have",
    "{persistence} of the variance lies between ranks",
    "a rank varies by {noise} from step to step",
    "{affected_share} of the kernels' time is affected",
    "{tflop_per_s} TFLOP/s, the device {roof_tflop_per_s} TFLOP/s",
    "{tflop_per_s} TFLOP/s",
    "at least {moved_gb_per_s} are moved, the memory carries {roof_gb_per_s}",
    "at least {moved_gb_per_s} are moved",
    "{roof_share} of the device's roof",
    "{flop_per_byte} operations a byte, the device's ridge is at {ridge_flop_per_byte}",
    "{flop_per_byte} operations a byte",
    "{tiles} tiles for {multiprocessors} multiprocessors",
    "{interrupted_launches} launches of {interrupted_kernels} different kernels took {slice_ns}, or a"
    " multiple of that, longer than the same launch usually does",
    "{excess_ns_per_step} more compute per step",
    "{late_ns_per_step} later per step by its own work",
    "with the other finding it takes {together_ns}, {together_share} of the analyzed time",
    "last at {last_share} of the operations with waits",
    "the device is idle for {stalled_ns_per_step} per step",
    "at most {longest_step_ns} in one step",
    "the device waits {waited_ns_per_step} per step",
    "{exposed_ns_per_step} per step are exposed",
    "all communication together exposes {all_exposed_ns_per_step} per step",
    "compute could hide {hideable_ns_per_step} of that",
    "pinned memory would take {pinned_ns_per_step}",
    "such operations per step and rank: {operations_per_step}",
    "in {steps_affected} of {steps} steps",
    "the first begins at step {first_step} of {steps}",
    "the first lacks step {first_missing_step} and later ones of {steps}",
    "the first begins at step {first_step}",
    "the first lacks step {first_missing_step} and later ones",
    "in {parts_affected} of ten equal parts of the run",
    "{calls} calls per rank",
    "{kernels_per_step} kernels per step",
    "a kernel takes {mean_kernel_ns}, the next launch comes after {launch_ns}",
    "a kernel takes {mean_kernel_ns}",
    "the next launch comes after {launch_ns}",
    "MPI moves {staged_bytes_per_step} through host memory per step and rank, in {staged_copies_per_step} copies",
    "MPI moves {staged_bytes_per_step} through host memory per step and rank",
    "copies that MPI makes through host memory per step and rank: {staged_copies_per_step}",
    "{bytes_per_step} per step and rank",
    "{gb_per_s}, peers {peers_gb_per_s}",
    "{gb_per_s}, which is {link_share} of the link's {link_gb_per_s}",
    "{gb_per_s}",
    "names of slow adapters: {adapters}",
    "bus bandwidth {busbw_gb_per_s}, similar communicators {peers_busbw_gb_per_s}",
    "affected communicators: {communicators}",
    "{queued} operations have another one queued behind them",
    *_beside_peers("sm_clock_mhz", "multiprocessors at {} MHz"),
    *_beside_peers("memory_clock_mhz", "memory at {} MHz"),
    *_beside_peers("power_w", "{} W"),
    *_beside_peers("temperature_c", "{} °C"),
    *_beside_peers("nic_gb_per_s", "network adapters sent {}", "those of other hosts"),
    *_beside_peers("nic_received_gb_per_s", "network adapters received {}", "those of other hosts"),
    *_beside_peers("nic_wait_ticks_per_ms", "an adapter waited to send {} ticks per ms", "elsewhere"),
    "a switch waited to send {switch_wait_ticks_per_ms} ticks per ms",
    *_beside_peers("on_cpu_share", "the launching thread had a CPU for {} of that time"),
    *_beside_peers("cpu_taken_share", "others had its CPU for {} of the rest"),
    *_beside_peers("running_threads", "threads on CPUs at once: {}"),
    *_beside_peers("cpu_moves_per_s", "the launching thread came to another CPU {} times per second"),
    "{shared_cpu_share} of its time it was on CPUs of another rank's launching thread",
    "{other_node_share} of its time it was on another NUMA node or socket",
    "devices compute for {compute_share} of the analyzed time",
    "missing ranks: {missing}",
    "{lost_records} of {of_records} records are missing",
    "{suspect_rows} rows cannot be true, {suspect_share} of all",
    "reports with this problem: {reports}",
    "{hand_overs} times another role began to work",
    "only one role worked in {alone_share} of the time in which any did",
    "the one that works longest did so in {longest_share} of the run",
    "none worked for {between_ns} between two",
    "ranks without ranges: {without_ranges}",
    "{graph_launches} graphs were traced as a whole",
    "{components} groups of hosts that no evidence connects",
    "the reports show {covered_share} of what the culprits did in the judged steps",
)
"""A phrase about several numbers: the first phrase for which all numbers exist and are not yet mentioned, else a
number's name."""

_NAMES = {phrase: [name for _, name, _, _ in Formatter().parse(phrase) if name] for phrase in _PHRASES}


def evidence_sentence(evidence: Mapping[str, Any], confidence: float, *, about_time: bool) -> str:
    """The evidence of a row of `diagnose` in two sentences: its numbers, and how sure the finding is.

    `evidence`: Numbers by name, those that are None left out, and `basis`. `confidence`: 0 to 1.
    """
    left = {name: value for name, value in evidence.items() if value is not None}
    basis, error = left.pop("basis", None), left.pop("replay_error", None)
    said = []
    for phrase, names in _NAMES.items():
        if all(name in left for name in names):
            said.append(phrase.format(**{name: _shown(name, left.pop(name)) for name in names}))
    said += [f"{name.replace('_', ' ')}: {_shown(name, value)}" for name, value in left.items()]
    numbers = "; ".join(said)
    first = [f"{numbers[:1].upper()}{numbers[1:]}."] if numbers else []
    return " ".join([*first, _surety(basis if about_time else None, error, confidence)])


def _surety(basis: str | None, error: float | None, confidence: float) -> str:
    sure = f"confidence {100 * confidence:.0f} %"
    if basis == "replay":
        away = "" if error is None else f" that reproduces the measured run within {max(100 * error, 0.1):.1f} %"
        return f"The cost is from a replay{away}; {sure}."
    return f"The cost is an upper bound; {sure}." if basis == "ceiling" else f"C{sure[1:]}."


def _shown(name: str, value: float) -> str:
    if name.endswith(("_ns", "_ns_per_step")):
        return amount(round(value), "ns", 3)
    if name.endswith("gb_per_s"):
        return amount(float(value), "GB/s", 3)
    if name in _SHARES or name.endswith("_share"):
        return f"{100 * value:.1f} %" if value < 0.1 else f"{100 * value:.0f} %"
    if name.endswith("bytes_per_step"):
        return amount(round(value), "bytes", 3)
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:.3g}"
