"""What a word means: a kind of finding, a recipe, a column of an answer, a table or its column, a piece of evidence."""

import difflib
from collections.abc import Iterator

from alltrace.recipes.base import Answer
from alltrace.trace import columns as col
from alltrace.trace.errors import UsageError

KIND_MEANINGS = {
    "straggler": "a rank takes longer for the same work, or arrives last, and the others wait for it",
    "slow-communicator": "the operations of a communicator are slower than those of its peers after all have arrived",
    "slow-host": "all ranks of a host take longer for the same work",
    "imbalance": "some ranks have more work than others, who wait for them",
    "throttling": "a device is slower from a step on, or again and again in some steps",
    "device-stall": "single kernels sometimes take far longer than usual on a device",
    "regression": "what all ranks do takes longer from a step on",
    "jitter": "the same work takes a varying time, now on one rank, now on another",
    "shared-device": "another process computes on a rank's device, and its time slices interrupt the rank's kernels",
    "exposed-communication": "devices wait for transfers",
    "serialized-communication": "devices wait for an operation that is queued behind one of another communicator",
    "launch-bound": "the host launches kernels more slowly than the device runs them",
    "sync": "the device waits because the host waited for it",
    "host-pause": "the device waits for a host that did nothing that was recorded",
    "data-stall": "the device waits for input data",
    "pageable-copy": "the device waits for copies of memory that is not pinned",
    "sync-copy": "the device waits because the host waited for a copy",
    "exposed-transfer": "the device waits for copies between host and device or between devices",
    "allocation": "the device waits because the host allocated or freed memory",
    "module-loading": "the device waits because the host loaded code",
    "recompilation": "the device waits because the host compiled code",
    "idle-gap": "the device waits for the host, for a reason that was not recorded",
    "low-bandwidth": "copies or communication of some ranks are slower than those of their peers",
    "hand-over": "groups of ranks work one after the other, and each stands still while another works",
    "missing-rank": "ranks wait for one that has no report",
    "unexplained": "time that no other kind explains",
    "capture-fault": "something is missing in the reports, so that findings may be missing too",
    "precision": "opportunity: matrix products in a wider format than the device is fastest in",
    "attention": "opportunity: attention in separate kernels, which one fused kernel would replace",
    "fusion": "opportunity: kernels in a row that only move data, which one kernel would replace",
    "shapes": "opportunity: matrix products whose shapes leave multiprocessors empty",
    "small-kernels": "opportunity: short kernels with idle time between them, which a CUDA graph would remove",
    "slow-operator": "opportunity: an operator whose shapes keep it far below the rate of its device",
}
"""What each kind of finding means; docs/diagnose.md has the rules."""

HANG_KIND_MEANINGS = {
    "missing-call": "ranks never entered a collective that the others wait in",
    "mismatch": "ranks entered a collective with another operation, size, type or order",
    "missing-peer": "a send or receive without its partner; the ranks are those that did not issue it",
    "dead-rank": "a process or its GPU died, or left nothing",
    "rank-computes": "a rank computes while the others wait for it",
    "rank-waits": "a rank waits for data, a lock or storage while the others wait for it",
    "network": (
        "all ranks entered the operation, and it does not complete; or a rank says that its own host closed its"
        " connections"
    ),
    "unknown": "the files do not say who it is; the ranks are those that it may be",
    "no-hang": "nothing hangs",
}
"""What each kind of cause means in the answer of `hang`."""

COLUMNS = (
    col.text("term", "the word"),
    col.text("what", "what kind of word it is, and of what: `column of kernels`"),
    col.text("unit", "the unit of a column, or null"),
    col.text("meaning", "what it means"),
)


def explain(term: str) -> Answer:
    """The meaning of a word as alltrace uses it. Raises `UsageError`: it is unknown, with similar terms."""
    wanted = term.strip().lower()
    rows = [row for row in _all_terms() if row[0].lower() == wanted]
    if not rows:
        terms = sorted({row[0] for row in _all_terms()})
        close = (
            difflib.get_close_matches(wanted, terms, n=5, cutoff=0.6)
            or [k for k in terms if wanted and wanted in k.lower()][:5]
        )
        hint = (
            f"did you mean {', '.join(close)}?"
            if close
            else "expected a kind of finding, a recipe, a table or a column"
        )
        raise UsageError(f"alltrace has no term {term!r}; {hint}")
    rows = list(dict.fromkeys(rows))
    names = [column.name for column in COLUMNS]
    table = col.table_of([dict(zip(names, row, strict=True)) for row in rows], COLUMNS)
    return Answer(table, COLUMNS)


def _all_terms() -> Iterator[tuple[str, str, str | None, str]]:
    """Every word with what it is, its unit and its meaning."""
    from alltrace.recipes.questions.diagnose.finding import EVIDENCE
    from alltrace.recipes.registry import REPORTS, find, find_report, names
    from alltrace.trace.schema import TABLES

    for kind, meaning in KIND_MEANINGS.items():
        yield kind, "kind of finding", None, meaning
    for kind, meaning in HANG_KIND_MEANINGS.items():
        yield kind, "kind of cause of a hang", None, meaning
    for name, meaning in EVIDENCE.items():
        yield name, "evidence of findings", None, meaning
    for table in TABLES.values():
        yield table.name, "table", None, table.doc
        for column in table.columns:
            yield column.name, f"column of the table {table.name}", column.unit, column.doc
    for name in names():
        question = find(name)
        yield name, "recipe", None, _paragraph(question.doc)
        for shown in dict.fromkeys(
            column for options in question.option_sets() for column in question.answer_columns(options)
        ):
            yield shown.name, f"column of the recipe {name}", shown.unit, shown.doc
    for name in REPORTS:
        report = find_report(name)
        yield name, "report of nsys stats", None, _paragraph(report.doc)
        for cell in report.answer_columns({}):
            yield cell.name.removesuffix(f" ({cell.unit})"), f"column of the report {name}", cell.unit, cell.doc


def _paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())
