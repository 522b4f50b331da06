"""What reports of all formats say in the same words: cells, findings, definitions, links to the documentation."""

from importlib.metadata import PackageNotFoundError, metadata

from alltrace.charts.words import label
from alltrace.recipes.base import Column, Question
from alltrace.recipes.registry import find
from alltrace.report.content import Report, Section
from alltrace.trace.amounts import amount

FACTORS: dict[str, tuple[tuple[int, str], ...]] = {
    "device": ((0, "parallel_efficiency"), (1, "load_balance"), (1, "communication_efficiency"),
        (1, "orchestration_efficiency")),
    "host": ((0, "parallel_efficiency"), (1, "mpi_parallel_efficiency"), (2, "load_balance"),
        (2, "communication_efficiency"), (1, "offload_efficiency")),
}  # fmt: skip
"""The tree of efficiencies of each side: depth and column; a factor is the product of those one level below it."""

_GROUPED = 10_000


def heading(column: Column) -> str:
    return f"{label(column)} %" if column.unit == "%" else label(column)


def facts(report: Report) -> list[tuple[str, str]]:
    """How many ranks, hosts and devices the run has and how long it is, as (number, what)."""
    counts = [(report.facts[k], k) for k in ("ranks", "hosts", "devices")]
    shown = [(str(n) if n < _GROUPED else f"{n:,}", k.removesuffix("s") if n == 1 else k) for n, k in counts]
    return [*shown, (amount(report.facts["span_ns"], "ns"), "from first to last event")]


def about(section: Section) -> str:
    """The first paragraph of what the section's recipe says of itself."""
    if section.ask.key == "clocks":
        return (
            "Each host has its own clock; collectives, which end at the same time on all ranks, show the offsets"
            " between them."
        )
    return described(find(section.ask.recipe))


def described(recipe: Question) -> str:
    """The first paragraph of a recipe's documentation, on one line."""
    lines = [line.strip() for line in (recipe.doc or "").strip().splitlines()]
    return " ".join(lines[: lines.index("")] if "" in lines else lines)


def definitions(section: Section) -> list[tuple[str, str, str]]:
    """Name, unit and meaning of every number that the section shows or draws."""
    if section.answer is None:
        return []
    columns = section.answer.columns
    shown = set(section.ask.shown) or {c.name for c in columns}
    return [(c.name, c.unit or "", c.doc) for c in columns if c.name in shown]


def docs_url() -> str | None:
    try:
        urls = metadata("alltrace").get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    named = dict(u.split(", ", 1) for u in urls if ", " in u)
    return next((url.rstrip("/") for name, url in named.items() if name.lower() == "documentation"), None)
