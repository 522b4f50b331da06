"""One row per line of the source, of the PTX or of the machine code (SASS), with samples and the warps' waits."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from alltrace.recipes.base import Answer, AnswerTable, Chart, View
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.metrics import WORKING, state_of_sample
from alltrace.recipes.ncu.tables import IDENTITY, Profiled, identity, lacking
from alltrace.recipes.ncu.views import MEANING
from alltrace.trace import columns as col
from alltrace.trace.kernel_code import Instruction, Listing

_PLACE: col.Columns = (
    col.text("function", "function of the device, by its mangled name"),
    col.text("file", "source file; the PTX with `--lines ptx`; null without line information"),
    col.whole("line", "line in it"),
    col.text("address", "address of the instruction with `--lines sass`; null for lines of several instructions"),
)
_SUMS: tuple[tuple[col.Column, str], ...] = (
    (col.whole("executed", "instructions that warps executed there"), "inst_executed"),
    (col.whole("threads_executed", "the same, counted for each thread"), "thread_inst_executed"),
    (col.whole("threads_predicated_on", "the same for threads with a true predicate"), "thread_inst_executed_true"),
    (col.whole("global_sectors", "sectors of 32 bytes that its global accesses took"),
     "memory_l2_theoretical_sectors_global"),
    (col.whole("global_sectors_ideal", "the least that would have done"), "memory_l2_theoretical_sectors_global_ideal"),
    (col.whole("shared_wavefronts", "passes of its accesses to shared memory"), "memory_l1_wavefronts_shared"),
    (col.whole("shared_wavefronts_ideal", "the least that would have done"), "memory_l1_wavefronts_shared_ideal"),
)  # fmt: skip
COLUMNS = (
    *IDENTITY,
    *_PLACE,
    col.whole("instructions", "machine instructions in the row"),
    col.text("text", "the line's text: null if the report lacks it; for `--lines sass` only with `--sass`"),
    col.whole("samples", "samples of the program counter there; null if the report has none"),
    col.whole("samples_not_issued", "samples in cycles in which the scheduler issued nothing"),
    col.percent("share_percent", "samples as a share of all samples of the launch", None),
    col.text("top_stall", "the most frequent stall reason there"),
    col.percent("top_stall_percent", "its share of the row's samples", None),
    *(column for column, _ in _SUMS),
)
_STALLS = (
    *IDENTITY,
    *_PLACE,
    col.text("state", "why the warp did not issue; `selected` is a warp that did"),
    col.whole("samples", "samples in this state"),
    col.whole("samples_not_issued", "samples in cycles in which the scheduler issued nothing"),
    col.text("meaning", "what the warp waits for"),
)
CHART = Chart("bars", "text", ("samples",), "name", detail="line", title="Samples by line")
_COUNT = "smsp__pcsamp_sample_count"


def answer(
    profiled: Sequence[Profiled],
    notes: Sequence[str],
    lines: str | None = None,
    text_of: Callable[[str], Sequence[str] | None] | None = None,
) -> Answer:
    """One row per launch and line that has code; the table `stalls` has a row for each line and state with samples.

    `profiled`: Launches that were read with their instructions; others have no rows. `lines`: `source`, `ptx` or
    `sass`; None for `source` if any launch has line information, else `sass`.
    """
    listed = [(each, each.listing) for each in profiled if each.listing is not None]
    chosen = lines or ("source" if any(i.source for _, code in listed for i in code.instructions) else "sass")
    rows: list[tuple[Any, ...]] = []
    stalls: list[tuple[Any, ...]] = []
    for each, listing in listed:
        whole = sum(_samples(i.values) or 0 for i in listing.instructions)
        for place, members in _groups(listing, chosen).items():
            rows.append(
                (*identity(each), *place, *_cells(members, whole, _text(place, members, listing, chosen, text_of)))
            )
            stalls += [(*identity(each), *place, *cells) for cells in _states(members)]
    texts = list(lacking(notes, profiled, [p.listing is not None for p in profiled], "code", "a printed page has none"))
    texts += dict.fromkeys(f"{p.report}: {code.problem}" for p, code in listed if code.problem)
    with_lines = [any(i.source if chosen == "source" else i.ptx for i in code.instructions) for _, code in listed]
    if chosen != "sass":
        what = {"source": "lines of the source", "ptx": "lines of PTX"}[chosen]
        texts += lacking((), listed, with_lines, what, "compile with -lineinfo, or use `--lines sass`")
    sampled = [
        any(_COUNT in i.values or _samples(i.values) is not None for i in code.instructions) for _, code in listed
    ]
    texts += lacking((), listed, sampled, "samples by line", "`ncu --section SourceCounters` collects them")
    further = {"stalls": AnswerTable(tables.table(_STALLS, stalls), _STALLS)}
    return Answer(tables.table(COLUMNS, rows), COLUMNS, tuple(texts), chart=CHART, further=further, name="lines")


_Key = tuple[str, str | None, int | None, str | None]


def _groups(listing: Listing, lines: str) -> dict[_Key, list[Instruction]]:
    """Instructions by their row, in the order of rows; those without a line are in a row without a line."""
    groups: dict[_Key, list[Instruction]] = {}
    for each in listing.instructions:
        place = each.ptx if lines == "ptx" else each.source
        address = f"{each.address:#x}" if lines == "sass" and each.address is not None else None
        if lines == "sass" and address is None:
            address = f"{each.function}+{each.offset:#x}"
        key = (each.function, *(place or (None, None)), address)
        groups.setdefault(key, []).append(each)
    if lines == "sass":
        return groups
    return dict(
        sorted(groups.items(), key=lambda item: (item[0][1] is None, item[0][1] or "", item[0][2] or 0, item[0][0]))
    )


def _text(
    place: _Key,
    members: Sequence[Instruction],
    listing: Listing,
    lines: str,
    text_of: Callable[[str], Sequence[str] | None] | None,
) -> str | None:
    if lines == "sass":
        return members[0].text
    _, file, line, _ = place
    if file is None or line is None:
        return None
    content = (listing.ptx if lines == "ptx" else listing.sources).get(file)
    if content is None and lines == "source" and text_of is not None:
        lines_of_file = text_of(file)
        content = None if lines_of_file is None else list(lines_of_file)
    return content[line - 1].rstrip() if content is not None and line <= len(content) else None


def _samples(values: dict[str, float], *, issued: bool = True) -> int | None:
    """Samples of all states; None if there are none."""
    parts = [v for metric, v in values.items() if (s := state_of_sample(metric)) is not None and s[1] == issued]
    if parts:
        return int(sum(parts))
    return int(values[_COUNT]) if issued and _COUNT in values else None


def _cells(members: Sequence[Instruction], whole: int, text: str | None) -> tuple[Any, ...]:
    counted = [n for i in members if (n := _samples(i.values)) is not None]
    idle = [n for i in members if (n := _samples(i.values, issued=False)) is not None]
    samples = sum(counted) if counted else None
    waiting = [(state, n) for state, n, _, _ in _states(members) if state != WORKING]
    top = max(waiting, key=lambda w: w[1], default=None)
    return (
        len(members),
        text,
        samples,
        sum(idle) if idle else None,
        None if samples is None or not whole else 100 * samples / whole,
        top[0] if top else None,
        100 * top[1] / samples if top and samples else None,
        *(_sum(i.values.get(metric) for i in members) for _, metric in _SUMS),
    )


def _sum(values: Iterable[float | None]) -> int | None:
    numbers = [v for v in values if v is not None]
    return int(sum(numbers)) if numbers else None


def _states(members: Sequence[Instruction]) -> list[tuple[str, int, int, str | None]]:
    """State, samples, those not issued and meaning, of states with samples, the most first."""
    by_state: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each in members:
        for metric, value in each.values.items():
            if (state := state_of_sample(metric)) is not None:
                by_state[state[0]][0 if state[1] else 1] += int(value)
    order = sorted(by_state.items(), key=lambda item: (-item[1][0], item[0]))
    return [(state, all_, idle, MEANING.get(state)) for state, (all_, idle) in order if all_ or idle]


VIEW = View(COLUMNS, answer, CHART)
