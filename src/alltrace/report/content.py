"""The content of a report: sections, each with the answer of a recipe, or why there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from alltrace.api import OpenRun
from alltrace.charts import draw, figure
from alltrace.recipes.base import Answer, Chart
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.activity import DRAWN
from alltrace.recipes.questions.diagnose.cards import Diagnosis
from alltrace.recipes.questions.diff import compare
from alltrace.recipes.registry import find
from alltrace.trace import columns as col
from alltrace.trace.errors import AlltraceError, UsageError

_RANK_ROWS = 100
_ROWS = 20
_CLOCKS = (
    col.text("host", "host"),
    col.ns("offset_ns", "how far its clock is ahead of the first host's"),
    col.real("drift_ppm", "how much faster it runs", "ppm"),
    col.ns("error_ns", "how far the offset may be off, half of the 95 % interval; none without evidence"),
    col.ns("residual_ns", "typical scatter of the ends of collectives; none without evidence"),
    col.whole("evidence", "collectives used for it"),
    col.whole("component", "hosts with the same number were aligned by evidence, others only by their UTC stamps"),
)


@dataclass(frozen=True)
class Ask:
    key: str  # its anchor
    title: str  # its heading
    recipe: str  # the recipe to run
    options: Mapping[str, Any] = field(default_factory=dict)
    shown: tuple[str, ...] = ()  # the columns of its table, in this order; empty for no table
    rows: int = _ROWS  # the most rows of its table
    views: tuple[str, ...] = ()  # columns of which the chart shows one at a time; empty for the recipe's own chart
    # options for a second run of the recipe for the chart; None for the same answer
    drawn: Mapping[str, Any] | None = None
    # the section is left out if this column has no value in any row; empty for a section that is always there
    only_with: str = ""


def _ask(key: str, title: str, shown: str = "", recipe: str = "", **facts: Any) -> Ask:
    """A section whose table has the columns of `shown`, a word each; the recipe is called like its key."""
    return Ask(key, title, recipe or key, shown=tuple(shown.split()), **facts)


_BREAKDOWN = (
    "rank host gpu span_ns compute_percent exposed_communication_percent unclassified_percent exposed_copy_percent"
    " idle_percent"
)
_OVERLAP = "rank host gpu communication_ns overlapped_ns exposed_ns overlap_percent copy_ns copy_overlap_percent"
_STRAGGLERS = "rank host waited_ns caused_ns caused_percent last_percent path_blame_ns cause pattern"
_STEPS = "step kind ranks duration_ns slowest_rank slowest_ns spread_ns device_span_ns"
_STEP_TIME = (
    "rank span_ns kernel_ns communication_ns memcpy_ns memset_ns runtime_ns dataloader_ns cpu_ns idle_ns "
    "occupancy_percent sm_efficiency_percent tensor_core_percent"
)
_KERNELS = "name kind ranks count total_ns time_percent median_ns min_ns max_ns"
_ORIGINS = "name operator module source ranks count total_ns time_percent"
_OPERATORS = "name ranks calls cpu_total_ns cpu_self_ns gpu_total_ns gpu_self_ns gpu_self_percent"
_MODULES = "name ranks calls cpu_total_ns gpu_total_ns gpu_self_ns backward_gpu_ns tflop_per_s"
_MEMORY = (
    "rank gpu memory peak_bytes peak_step reserved_at_peak_bytes unused_percent peak_reserved_bytes first_bytes"
    " last_bytes kept_bytes"
)
_PEAK = "name memory ranks peak_bytes peak_percent peak_blocks most_bytes most_rank"
_COLLECTIVES = (
    "communicator op bytes group_size instances skew_median_ns skew_p95_ns transfer_median_ns busbw_gb_per_s wait_ns"
)
_RANKS = "rank local_rank host process devices rank_source start_ns end_ns"

ASKS: tuple[Ask, ...] = (
    _ask("findings", "What costs time", recipe="diagnose"),
    _ask("activity", "Device activity over time", views=DRAWN),
    _ask("breakdown", "Where each device's time went", _BREAKDOWN, rows=_RANK_ROWS),
    _ask("overlap", "Communication under compute", _OVERLAP, rows=_RANK_ROWS),
    _ask("stragglers", "Who waits for whom", _STRAGGLERS, rows=_RANK_ROWS),
    _ask("steps", "Steps", _STEPS, options={"per_step": True}, rows=_RANK_ROWS, drawn={}),
    _ask(
        "step-time",
        "Where the time of steps went",
        _STEP_TIME,
        options={"by": "rank"},
        rows=_RANK_ROWS,
        only_with="cpu_ns",
    ),
    _ask("efficiency", "Efficiency", drawn={"per": "step"}),
    _ask("kernels", "Kernels with most time", _KERNELS, options={"names": "short"}),
    _ask("kernel-origins", "Where kernels are launched", _ORIGINS, only_with="operator"),
    _ask("operators", "Operators with most time", _OPERATORS, only_with="name"),
    _ask("modules", "Modules with most time", _MODULES, "operators", options={"by": "module"}, only_with="name"),
    _ask("memory", "Memory of PyTorch's allocator", _MEMORY, rows=_RANK_ROWS, only_with="peak_bytes"),
    _ask("memory-timeline", "Memory over time", only_with="allocated_bytes"),
    _ask("memory-peak", "Memory in use at the peak", _PEAK, only_with="peak_bytes"),
    _ask("collectives", "Collectives by communicator and size", _COLLECTIVES),
    _ask("gaps", "Longest gaps", "rank gpu start_ns duration_ns before after"),
    _ask("ranks", "Ranks and clocks", _RANKS, "info", rows=_RANK_ROWS),
)
"""The sections, in order."""


@dataclass(frozen=True)
class Section:
    ask: Ask  # the section's question
    answer: Answer | None  # the answer, or None if there is none
    problem: str = ""  # why there is none, or empty
    notes: tuple[str, ...] = ()  # what a reader must know, without those of earlier sections
    # pictures in plotly's format, by what they show
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def table(self) -> Any:
        """The rows and columns to show, as a `pyarrow.Table`; None for none."""
        if self.answer is None or not self.ask.shown:
            return None
        return self.answer.table.select([c for c in self.ask.shown if c in self.answer.table.column_names]).slice(
            0, self.ask.rows
        )

    def column(self, name: str) -> col.Column:
        columns = self.answer.columns if self.answer is not None else ()
        return next(c for c in columns if c.name == name)


@dataclass(frozen=True)
class Report:
    name: str  # the name of the run
    facts: Mapping[str, int]  # ranks, hosts, devices and span of the run
    selection: str  # the selected steps and ranks, in words; empty for all
    sections: tuple[Section, ...]
    diagnosis: Diagnosis | None = None  # what `diagnose` found, in readable form; None if it has no answer
    change: str = ""  # how the run differs from a baseline, in words; empty without one


def gather(
    run: OpenRun,
    name: str,
    *,
    baseline: OpenRun | None = None,
    ranks: Sequence[int] | None = None,
    steps: str | None = None,
    skip_warmup: bool = False,
    jobs: int | None = None,
    pictures: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Ask all that a report holds. A recipe that cannot answer costs its section alone, which says why."""
    # `ranks`: the ranks to ask; None for all. `steps`: the steps to count (see
    # `alltrace.recipes.execution.window.select`); None for the whole run. `pictures`: whether figures are wanted.
    # `progress`: called with the title of each section before it is computed.
    from alltrace.recipes.execution.window import select

    sections: list[Section] = []
    shown_notes: set[str] = set()
    for wanted in ASKS:
        if progress is not None:
            progress(wanted.title)
        windowed = find(wanted.recipe).windowed
        about: dict[str, Any] = {
            "ranks": ranks,
            "jobs": jobs,
            **({"steps": steps, "skip_warmup": skip_warmup} if windowed else {}),
        }
        try:
            answer = ask(run, wanted.recipe, wanted.options, **about)
            shown = not wanted.only_with or answer.table.column(wanted.only_with).null_count < answer.table.num_rows
            figures = _figures(run, wanted, answer, about) if pictures and shown else {}
        except AlltraceError as error:
            # the first section detects ranks and steps that do not exist
            if isinstance(error, UsageError) and not sections:
                raise
            if wanted.only_with:
                continue
            sections.append(Section(wanted, None, str(error)))
            continue
        if not shown:
            continue
        notes = tuple(n for n in answer.notes if n not in shown_notes)
        shown_notes.update(notes)
        sections.append(Section(wanted, answer, "" if answer.table.num_rows else "No data.", notes, figures))
        if wanted.recipe == "info":
            sections.append(_clocks(answer, pictures=pictures))
    selection = str(select(steps, skip_warmup=skip_warmup))
    scope = " ".join([selection, *(["of some ranks"] if ranks is not None else [])]).strip()
    from alltrace.recipes.questions.diagnose.cards import told

    diagnosis = None
    for place, section in enumerate(sections):
        if section.ask.key == "findings" and section.answer is not None:
            diagnosis = told(section.answer, {r.rank: r.host for r in run.ranks})
            left = tuple(n for n in section.notes if n in diagnosis.notes)  # the verdict may have said one
            sections[place] = replace(section, notes=left)
    change = ""
    if baseline is not None:
        window: dict[str, Any] = {"ranks": ranks, "steps": steps, "skip_warmup": skip_warmup, "jobs": jobs}
        change = compare(baseline, run, names=("the baseline", "the run"), **window).verdict or ""
    return Report(name, run.facts(), scope, tuple(sections), diagnosis, change)


def _figures(run: OpenRun, wanted: Ask, answer: Answer, about: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The pictures of a section; none if there is nothing to draw."""
    drawn = answer if wanted.drawn is None else ask(run, wanted.recipe, wanted.drawn, **about)
    if drawn.chart is None or not drawn.table.num_rows:
        return {}
    charts = {"": drawn.chart}
    if wanted.views:
        charts = {v.removesuffix("_percent"): drawn.chart._replace(y=(v,)) for v in wanted.views}
    drawings = {word: draw(drawn, chart._replace(title="")) for word, chart in charts.items()}
    return {word: figure(drawing) for word, drawing in drawings.items() if not drawing.empty}


def _clocks(info: Answer, *, pictures: bool) -> Section:
    rows = [dict(r) for r in info.extra.get("clocks", ())]
    table = col.table_of(rows, _CLOCKS)
    chart = Chart("bars", "host", ("error_ns",), title="")
    answer = Answer(table, _CLOCKS, chart=chart)
    wanted = Ask("clocks", "Clocks of the hosts", "info", shown=tuple(c.name for c in _CLOCKS), rows=_RANK_ROWS)
    has_error = any(r.get("error_ns") is not None for r in rows)
    figures = {"": figure(draw(answer))} if pictures and has_error else {}
    return Section(wanted, answer, "" if rows else "No data.", (), figures)
