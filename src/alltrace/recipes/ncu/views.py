"""Views of launches that are only tables of what the reports hold: launches, metrics, sections, rules, stalls."""

from collections.abc import Iterator, Sequence
from typing import Any

from alltrace.recipes.base import Answer, Chart, View
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.metrics import MAIN, limiter, main_of, stalls, top_stall
from alltrace.recipes.ncu.tables import (
    CONFIGURATION,
    IDENTITY,
    METRIC_VALUE,
    Profiled,
    identity,
    lacking,
    number_and_text,
    sizes,
    wanted,
)
from alltrace.trace import columns as col
from alltrace.trace.launch_units import unit_of
from alltrace.trace.launches import Launch, SectionMetric

_LAUNCHES = (
    *IDENTITY,
    *CONFIGURATION,
    *(column for column, _ in MAIN),
    col.text("occupancy_limiter", "the resource that limits the blocks per multiprocessor; several if equal"),
    col.text("top_stall", "the most frequent stall reason"),
    col.text("device", "the GPU"),
)

_LAUNCHES_CHART = Chart(
    "scatter", "memory_percent", ("sm_percent",), "name", detail="launch", title="Speed of light of work and memory"
)

_DETAILS = (
    *IDENTITY,
    col.text("section", "section"),
    col.text("part", "`header`, the table that a section shows first, or `body`, its charts and tables"),
    col.text("label", "the section's name for the metric; null if it has none"),
    *METRIC_VALUE,
)

_RULES = (
    *IDENTITY,
    col.text("section", "section that the rule belongs to, as Nsight Compute names it"),
    col.text("rule", "rule of Nsight Compute, such as `SOLBottleneck`"),
    col.text("kind", "`optimization`, `warning`, `error`, `ok` or `none`"),
    col.text("title", "title of the message"),
    col.percent("speedup_percent", "largest speedup that Nsight Compute estimates; null if it states none", None),
    col.text("speedup_of", "what gets faster: `global`, the launch, or `local`, the part that the rule examines"),
    col.ns("gain_ns", "speedup_percent applied to the launch's time, for a `global` one"),
    col.text("message", "message of the rule"),
)

_RULES_CHART = Chart(
    "bars", "name", ("speedup_percent",), "rule", detail="launch", title="Speed-up that Nsight Compute expects at most"
)

_METRICS = (*IDENTITY, *METRIC_VALUE)

_INSTANCES = (
    *IDENTITY,
    METRIC_VALUE[0],
    col.text("instance", "what the value belongs to: an address of the code in hexadecimal, an opcode, or a number"),
    *METRIC_VALUE[1:],
)

_STALLS = (
    *IDENTITY,
    col.text("state", "why the warp did not issue; `selected` is a warp that did"),
    col.real("warps_per_issue", "warps in this state, on average, per cycle in which an instruction was issued"),
    col.percent("share_percent", "share of the time of all warps; from warps_per_issue, otherwise from samples", None),
    col.whole("samples", "samples of the program counter that found a warp in this state"),
    col.text("meaning", "what the warp waits for"),
)

_STALLS_CHART = Chart(
    "stacked_bars", "name", ("share_percent",), "state", detail="launch", title="What warps waited for"
)


def _launches(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch, in the order of the reports."""
    rows = []
    for each in profiled:
        launch = each.launch
        stall = top_stall(launch)
        device = launch.metrics.get("device__attribute_display_name")
        rows.append(
            (
                *identity(each),
                sizes(launch.grid),
                sizes(launch.block),
                *(main_of(launch, column.name) for column, _ in MAIN),
                limiter(launch),
                stall[0] if stall else None,
                device if isinstance(device, str) else None,
            )
        )
    return Answer(tables.table(_LAUNCHES, rows), _LAUNCHES, tuple(notes), chart=_LAUNCHES_CHART)


def _details(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch, section and metric that the launch has, in the order of the sections."""
    rows: list[tuple[Any, ...]] = []
    for each in profiled:
        for section in each.launch.sections:
            for shown in section.metrics:
                for metric, label in _expanded(each.launch, shown):
                    if (value := each.launch.metrics.get(metric)) is not None:
                        place = (section.name, shown.part, label or None, metric, unit_of(metric))
                        rows.append((*identity(each), *place, *number_and_text(value)))
    texts = lacking(notes, profiled, [bool(p.launch.sections) for p in profiled], "sections", "a printed page has none")
    return Answer(tables.table(_DETAILS, rows), _DETAILS, texts)


def _expanded(launch: Launch, shown: SectionMetric) -> Iterator[tuple[str, str]]:
    """Metric and label of the members of a breakdown or group; the report stores their names as one text."""
    if ":" not in shown.name:
        yield next((name for name in (shown.name, *shown.others) if name in launch.metrics), shown.name), shown.label
        return
    members = launch.metrics.get(shown.name)
    if isinstance(members, str):
        yield from ((name, "") for name in members.split(",") if name)


def _rules(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """A row per launch and message, in the order of its sections and rules; rules without a message have none."""
    rows: list[tuple[Any, ...]] = []
    for each in profiled:
        duration = main_of(each.launch, "duration_ns")
        order = {section.identifier: n for n, section in enumerate(each.launch.sections)}
        rules = sorted(each.launch.rules, key=lambda r: order.get(r.section, len(order)))
        for rule in rules:
            for message in rule.messages:
                whole = message.speedup_of == "global" and message.speedup_percent is not None and duration is not None
                gain = round((message.speedup_percent or 0.0) / 100 * (duration or 0)) if whole else None
                cells = (
                    message.kind,
                    message.title or None,
                    message.speedup_percent,
                    message.speedup_of,
                    gain,
                    message.text,
                )
                rows.append((*identity(each), rule.section, rule.identifier, *cells))
    texts = lacking(
        notes,
        profiled,
        [bool(p.launch.rules) for p in profiled],
        "results of rules",
        "`ncu --apply-rules yes` stores them",
    )
    return Answer(tables.table(_RULES, rows), _RULES, texts, chart=_RULES_CHART)


def _metrics(profiled: Sequence[Profiled], notes: Sequence[str], patterns: Sequence[str] | None = None) -> Answer:
    """A row per launch and metric, by name; with `patterns`, only names that match one; * is any text."""
    rows = [
        (*identity(each), metric, unit_of(metric), *number_and_text(value))
        for each in profiled
        for metric, value in sorted(each.launch.metrics.items())
        if wanted(metric, patterns)
    ]
    return Answer(tables.table(_METRICS, rows), _METRICS, tuple(notes))


_LEAST_ADDRESS = 1 << 32  # addresses of code are above this; numbers of instances are small


def _instances(profiled: Sequence[Profiled], notes: Sequence[str], patterns: Sequence[str] | None = None) -> Answer:
    """A row per launch, metric (by name) and instance, in the report's order; see `_metrics` for `patterns`."""
    rows: list[tuple[Any, ...]] = []
    for each in profiled:
        for metric in sorted(each.launch.instances):
            if not wanted(metric, patterns):
                continue
            unit = unit_of(metric)
            rows += [
                (*identity(each), metric, _shown(of), unit, *number_and_text(value))
                for of, value in each.launch.instances[metric]
                if value is not None
            ]
    texts = lacking(
        notes, profiled, [bool(p.launch.instances) for p in profiled], "values of instances", "a printed page has none"
    )
    return Answer(tables.table(_INSTANCES, rows), _INSTANCES, texts)


def _shown(instance: Any) -> str | None:
    if isinstance(instance, int) and instance >= _LEAST_ADDRESS:
        return f"{instance:#x}"
    return None if instance is None else str(instance)


MEANING = {
    "barrier": "other warps of the block, at a barrier", "branch_resolving": "the target of a branch",
    "dispatch_stall": "the dispatcher, which delayed the warp", "drain": "stores to finish, after the program's end",
    "gmma": "matrix instructions of a warp group", "imc_miss": "a constant that is not in the cache",
    "lg_throttle": "space in the queue of local and global memory instructions",
    "long_scoreboard": "data from global, local, surface or texture memory",
    "math_pipe_throttle": "an arithmetic pipe that is busy", "membar": "a memory barrier",
    "mio_throttle": "space in the queue of shared memory and special instructions", "misc": "something else",
    "no_instruction": "the next instruction, to be fetched",
    "not_selected": "nothing: ready, but the scheduler selected another warp", "selected": "nothing: the warp issued",
    "short_scoreboard": "data from shared memory or a special function", "sleeping": "its own sleep",
    "tex_throttle": "space in the queue of texture instructions", "wait": "a fixed latency of the previous instruction",
    "warpgroup_arrive": "the other warps of the warp group",
}  # fmt: skip


def _stalls(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch and state, of each launch the largest share first; the notes say which have none."""
    rows = []
    without = 0
    for each in profiled:
        states = stalls(each.launch)
        without += not states
        column = 0 if any(c is not None for c, _ in states.values()) else 1
        whole = sum(float(v[column] or 0) for v in states.values())
        order = sorted(states, key=lambda s: (-float(states[s][column] or 0), s))
        for state in order:
            cycles, samples = states[state]
            own = states[state][column]
            share = 100 * float(own) / whole if own is not None and whole else None
            rows.append((*identity(each), state, cycles, share, samples, MEANING.get(state)))
    texts = list(notes)
    if without:
        texts.append(
            f"{without} of {len(profiled)} launches have no states of warps in their report; "
            "`ncu --section WarpStateStats --section SourceCounters` collects them"
        )
    return Answer(tables.table(_STALLS, rows), _STALLS, tuple(texts), chart=_STALLS_CHART)


LAUNCHES = View(_LAUNCHES, _launches, _LAUNCHES_CHART)
DETAILS = View(_DETAILS, _details)
RULES = View(_RULES, _rules, _RULES_CHART)
METRICS = View(_METRICS, _metrics)
INSTANCES = View(_INSTANCES, _instances)
STALLS = View(_STALLS, _stalls, _STALLS_CHART)
