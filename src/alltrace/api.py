"""The library: `alltrace.open(...)` opens a run; its tables are DuckDB relations, recipes answer questions."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from alltrace.run.resolve import resolve
from alltrace.run.store import Run
from alltrace.trace.amounts import shortened
from alltrace.trace.columns import by_importance
from alltrace.trace.errors import UsageError, path_text, printable
from alltrace.trace.number_text import counted
from alltrace.trace.spans import parse_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from plotly.graph_objects import Figure

    from alltrace.align.aligned import Aligned
    from alltrace.recipes.base import Answer, CellValue, OptionValue, Question
    from alltrace.recipes.questions.diagnose.cards import Card, Diagnosis
    from alltrace.recipes.row_stream import RowStream

    Ranks = Sequence[int] | int | str | None
    Names = list[str] | tuple[str, ...]

_ROWS_SHOWN, _WIDTH = 20, 100
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A recipe's or query's answer, as a table: `len(result)` rows, `for row in result`, `result[0]`, `result["name"]`.

    Attributes:
        answer: Its table, what its columns mean, and notes.
        zero_ns: What its times are at the run's start: 0, but of `stats` and `nsys`, which count as the session's clock
            does.
    """

    answer: Answer
    zero_ns: int = 0

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.answer.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, CellValue]]:
        """The rows, each with its values by column."""
        return iter(self.to_pylist())

    @overload
    def __getitem__(self, key: str) -> list[CellValue]: ...

    @overload
    def __getitem__(self, key: int) -> dict[str, CellValue]: ...

    @overload
    def __getitem__(self, key: slice) -> list[dict[str, CellValue]]: ...

    def __getitem__(
        self, key: str | int | slice
    ) -> list[CellValue] | dict[str, CellValue] | list[dict[str, CellValue]]:
        """The values of the column of that name, the row of that number, or the rows of a slice.

        Raises:
            KeyError: There is no such column.
            IndexError: There is no such row.
        """
        table = self.answer.table
        if isinstance(key, str):
            if key not in table.column_names:
                raise KeyError(f"there is no column {key!r}; expected one of {', '.join(table.column_names)}")
            values: list[CellValue] = table.column(key).to_pylist()
            return values
        if isinstance(key, slice):
            return self.to_pylist()[key]
        if not -len(self) <= key < len(self):
            raise IndexError(f"row {key} of {len(self)}")
        row: dict[str, CellValue] = table.slice(key % len(self), 1).to_pylist()[0]
        return row

    def __repr__(self) -> str:
        """The first rows as a table of text, and the notes."""
        from alltrace.charts.text_table import TableForm, terminal_width, to_text

        rows = self.answer.table.slice(0, _ROWS_SHOWN)
        form = TableForm(terminal_width() or _WIDTH, units=True)
        text = to_text(self.answer._replace(extra={}), rows, len(self) - rows.num_rows, form).rstrip()
        return text.replace("; --limit shows more or fewer", "").replace(
            "; --wide shows all", "; result.to_pandas() has all"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: ranks left out, what could not be judged and why."""
        return self.answer.notes

    def to_arrow(self) -> pa.Table:
        """The answer as a `pyarrow.Table`; the units of its columns are in `answer.columns`."""
        return self.answer.table

    def to_pandas(self) -> pd.DataFrame:
        """The answer as a pandas data frame; pandas must be installed."""
        return self.answer.table.to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The answer as a Polars data frame.

        Raises:
            UsageError: Polars is not installed.
        """
        try:
            import polars as pl
        except ImportError as error:
            raise UsageError("to_polars needs Polars, which is not installed; pip install polars") from error
        return pl.DataFrame(self.answer.table)

    def to_pylist(self) -> list[dict[str, CellValue]]:
        """The answer as a list of rows."""
        rows: list[dict[str, CellValue]] = self.answer.table.to_pylist()
        return rows

    def plot(self) -> Figure:
        """The answer's picture, as a figure of plotly that a notebook shows.

        Raises:
            UsageError: The answer has no picture.
        """
        from plotly.graph_objects import Figure

        return Figure(self.figure())

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows and the notes. Text from a trace is text, never markup."""
        from alltrace.charts.html_cards import answer_html

        return answer_html(self.answer, self.zero_ns)

    def timeline_links(self, page: str | None = None) -> list[str | None]:
        """For each row the address of its place on the timeline of the page; None for rows without a time.

        Args:
            page: Where the page is served; None for `http://127.0.0.1:8765/`, as by `alltrace ui RUN --port 8765`.
        """
        from alltrace.charts.timeline_links import PAGE, places_of

        places = places_of(self.answer.columns, self.zero_ns)
        fragments = [None if places is None else places.fragment(row) for row in self.to_pylist()]
        return [None if fragment is None else f"{page or PAGE}{fragment}" for fragment in fragments]

    def figure(self) -> dict[str, object]:
        """The answer's picture in plotly's format: `plotly.graph_objects.Figure(result.figure())` shows it.

        Raises:
            UsageError: The answer has no picture.
        """
        from alltrace.charts import draw, figure

        return figure(draw(self.answer))

    def picture(self, kind: str = "png") -> bytes:
        """The answer's picture as the contents of a file; matplotlib must be installed (`alltrace[pictures]`).

        Args:
            kind: `png` or `svg`.

        Raises:
            UsageError: The answer has no picture, or matplotlib is not installed.
        """
        from alltrace.charts import draw, picture_bytes

        return picture_bytes(draw(self.answer), kind)


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """What `diagnose` found, in readable form; a notebook shows it.

    Attributes:
        diagnosis: The verdict, the cards and the notes.
    """

    diagnosis: Diagnosis

    @property
    def verdict(self) -> str:
        """A sentence or two on what costs most."""
        return self.diagnosis.verdict

    @property
    def cards(self) -> tuple[Card, ...]:
        """A card for each finding: `what`, `who`, `cost`, `evidence` and more, in the order of `diagnose`."""
        return self.diagnosis.cards

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be judged, and why."""
        return self.diagnosis.notes

    def __repr__(self) -> str:
        """The verdict, and a line for each finding."""
        cards = [f"{n}  {c.severity.upper()}  {c.kind}: {c.what}; {c.cost}" for n, c in enumerate(self.cards, 1)]
        return "\n".join(map(printable, [self.verdict, *cards]))

    def _repr_html_(self) -> str:
        """What a notebook shows. Text from a trace is text, never markup."""
        from alltrace.charts.html_cards import diagnosis_html

        return diagnosis_html(self.diagnosis)


class OpenRun(Run):
    """A run: `ranks`, `hosts`, `span_ns`, `recipe(...)`, `diagnose()`, `sql(...)`, `table(...)` and `aligned()`."""

    alignment: Aligned | None
    """The alignment, once a question needed it; `aligned()` computes it."""
    name: str = ""
    """What it was opened by, for people; empty for a run that was opened by its path alone."""

    def __repr__(self) -> str:
        """What the run is, in a line."""
        facts = self.facts()
        counts = ", ".join(counted(facts[thing], thing[:-1]) for thing in ("ranks", "hosts", "devices"))
        return f"<alltrace run {self.name or path_text(self.path.name)}: {counts}, {facts['span_ns'] / 1e9:.3f} s>"

    def aligned(self, *, jobs: int | None = None) -> Aligned:
        """What is derived over all ranks: collectives, instances, steps, clocks; later reads use these clocks.

        Args:
            jobs: The most processes; None lets the number of rows decide.

        Raises:
            InputError: The files of the run are damaged.
        """
        from alltrace.align.store import aligned

        return aligned(self, jobs=jobs)

    def table(self, table: str, ranks: Ranks = None) -> duckdb.DuckDBPyRelation:
        """The canonical `table` of all ranks as a DuckDB relation (see `Run.table`); `collectives` aligns first."""
        if table == "collectives" and self.overlay is None:
            self.aligned()
        return super().table(table, _numbers(ranks))

    def sql(self, query: str) -> Result:
        """The answer to a query in DuckDB's SQL over the tables of all ranks, which only reads.

        Args:
            query: One SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN.

        Raises:
            UsageError: It is another statement, or DuckDB refuses it.
            InputError: A file of the run is missing or damaged.
        """
        from alltrace.recipes.questions.sql import query as answer_query

        return Result(answer_query(self, query))

    def recipes(self) -> Result:
        """The recipes that can be asked: `name`, what they are about (`group`) and what they answer (`summary`)."""
        from alltrace.recipes.base import Answer
        from alltrace.recipes.reference import summary
        from alltrace.recipes.registry import find, groups
        from alltrace.trace import columns as col

        rows = [
            {"name": n, "group": group, "summary": summary(find(n))} for group, names in groups().items() for n in names
        ]
        about = (
            col.text("name", "its name"),
            col.text("group", "what it is about"),
            col.text("summary", "what it answers"),
        )
        return Result(Answer.of(rows, about))

    def connect(self, tables: Sequence[str] | None = None, *, ids: bool = False) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection to the tables (see `Run.connect`); a run of several hosts is aligned first."""
        if len(self.hosts) > 1 and self.overlay is None:
            self.aligned()
        return super().connect(tables, ids=ids)

    @overload
    def recipe(
        self,
        name: str,
        /,
        *,
        ranks: Ranks = None,
        steps: str | None = None,
        skip_warmup: bool = False,
        **options: OptionValue,
    ) -> Result: ...

    @overload
    def recipe(
        self,
        name: Names,
        /,
        *,
        ranks: Ranks = None,
        steps: str | None = None,
        skip_warmup: bool = False,
        **options: OptionValue,
    ) -> list[Result]: ...

    def recipe(
        self,
        name: str | Names,
        /,
        *,
        ranks: Ranks = None,
        steps: str | None = None,
        skip_warmup: bool = False,
        **options: OptionValue,
    ) -> Result | list[Result]:
        """The answer of the recipe called `name`; of several, a list of their answers, each table read once.

        Args:
            name: A recipe's name; `stats:NAME` for nsys' report of that name. Or a list of recipes: one that cannot
                answer has no rows, and a note with the reason.
            ranks: The ranks to ask, as numbers or as a text such as `0-3,8`; None for all.
            steps: The steps to count, such as `10:50` for 10 to 49, `10:`, `:50` or `10`; None for the whole run.
            skip_warmup: Leave out warm-up steps, and time outside of steps.
            options: The recipe's options; of several, each goes to those that have it.

        Raises:
            UsageError: The recipe, option, rank or step does not exist; or several recipes are asked of some steps.
        """
        from alltrace.recipes.registry import find

        if isinstance(name, str):
            return self._result(find(name), self._answer(name, ranks, steps, skip_warmup, options))
        if steps is not None or skip_warmup:
            raise UsageError("steps and skip_warmup work with one recipe at a time; ask each by its name")
        return self._results([find(each) for each in name], ranks, options)

    def _results(self, questions: Sequence[Question], ranks: Ranks, options: dict[str, OptionValue]) -> list[Result]:
        """The results of several recipes, asked together."""
        from alltrace.recipes.base import Answer
        from alltrace.recipes.execution.ask_all import ask_all

        own = [{o.name: options[o.name] for o in question.options if o.name in options} for question in questions]
        for option in options:
            if not any(option in of for of in own):
                named = ", ".join(question.name for question in questions)
                raise UsageError.unknown(f"option of {named}", option, {o.name for q in questions for o in q.options})
        with _in_python():
            replies = ask_all(self, list(zip(questions, own, strict=True)), ranks=_numbers(ranks))
        results = []
        for question, reply in zip(questions, replies, strict=True):
            columns = question.answer_columns(next(question.option_sets()))
            results.append(self._result(question, reply.answer or Answer.of([], columns, (reply.skipped or "",))))
        return results

    def _result(self, question: Question, answer: Answer) -> Result:
        """The answer of a question; of findings, with the verdict in words."""
        if question.name == "diagnose":
            from alltrace.recipes.questions.diagnose.cards import with_verdict

            answer = with_verdict(answer, {r.rank: r.host for r in self.ranks})
        answer = answer._replace(columns=by_importance(answer.columns, question.important))
        return Result(answer, self.origin_ns if question.session_time else 0)

    def diagnose(self, *, ranks: Ranks = None, steps: str | None = None, skip_warmup: bool = False) -> Findings:
        """The verdict in a sentence, and a card for each finding: what, who, what it costs, the evidence, what to do.

        Args:
            ranks: As of `recipe`.
            steps: As of `recipe`.
            skip_warmup: As of `recipe`.

        Raises:
            UsageError: The rank or step does not exist.
        """
        from alltrace.recipes.questions.diagnose.cards import told

        answer = self.recipe("diagnose", ranks=ranks, steps=steps, skip_warmup=skip_warmup).answer
        return Findings(told(answer, {r.rank: r.host for r in self.ranks}))

    diagnosis = diagnose
    """The name of `diagnose` in 0.2; it answers for two releases."""

    def recipe_rows(
        self,
        name: str,
        /,
        *,
        ranks: Ranks = None,
        steps: str | None = None,
        skip_warmup: bool = False,
        **options: OptionValue,
    ) -> RowStream:
        """The rows of the answer of `recipe(name, ...)` as they are made, for answers that are larger than memory.

        `batches()` of the result yields `pyarrow.RecordBatch`es. Use it in a `with` block, which removes temporary
        files.

        Args:
            name: As of `recipe`.
            ranks: As of `recipe`.
            steps: As of `recipe`.
            skip_warmup: As of `recipe`.
            options: The recipe's options.

        Raises:
            UsageError: The recipe, option, rank or step does not exist.
            InputError: The temporary folder cannot hold the rows; also while they are made.
        """
        from alltrace.recipes.row_stream import RowStream

        answer = self._answer(name, ranks, steps, skip_warmup, options, stream=True)
        answer._replace(stream=None).close()  # its further tables are not needed
        return answer.stream or RowStream((table for table in (answer.table,)), answer.table.schema.empty_table())

    def _answer(
        self,
        name: str,
        ranks: Ranks,
        steps: str | None,
        skip_warmup: bool,
        options: dict[str, OptionValue],
        *,
        stream: bool = False,
    ) -> Answer:
        """The answer of a recipe; an option that takes text, such as ranks, may be a number."""
        from alltrace.recipes.execution.ask import ask
        from alltrace.recipes.registry import find

        question = find(name)
        texts = {option.name for option in question.options if option.type is str}
        values = {n: str(v) if n in texts and type(v) is int else v for n, v in options.items()}
        with _in_python():
            return ask(
                self, question, values, ranks=_numbers(ranks), steps=steps, skip_warmup=skip_warmup, stream=stream
            )


@contextmanager
def _in_python() -> Iterator[None]:
    """Errors about options name them as Python does: `link_gb_per_s` for `--link-gb-per-s`."""
    try:
        yield
    except UsageError as error:
        raise UsageError(_FLAG.sub(lambda flag: flag[1].replace("-", "_"), str(error))) from error


def _numbers(ranks: Ranks) -> Sequence[int] | None:
    """Ranks as numbers; a text is a list such as `0-3,8`."""
    return parse_ranks(ranks) if isinstance(ranks, str) else [ranks] if isinstance(ranks, int) else ranks


def diff(
    run_a: Run,
    run_b: Run,
    *,
    what: str | None = None,
    ranks: Ranks = None,
    steps: str | None = None,
    skip_warmup: bool = False,
    by_tree: bool = False,
) -> Result:
    """What differs between two runs, as `alltrace diff`; `result.answer.verdict` says it in words.

    Args:
        run_a: The run before the change.
        run_b: The run after it.
        what: Only these kinds of things, such as `kernel,step`; None for all.
        ranks: The ranks to ask in both, as of `OpenRun.recipe`.
        steps: The steps to count in both, as of `OpenRun.recipe`.
        skip_warmup: Leave out warm-up steps, and time outside of steps.
        by_tree: What replaced what: kernels that one run alone has, under the ranges that both have.

    Raises:
        UsageError: A thing, rank or step does not exist.
        InputError: A file of a run is damaged.
    """
    from alltrace.recipes.questions.diff import IMPORTANT, TREE_IMPORTANT, compare

    with _in_python():
        answer = compare(
            run_a, run_b, what=what, ranks=_numbers(ranks), steps=steps, skip_warmup=skip_warmup, by_tree=by_tree
        )
    return Result(answer._replace(columns=by_importance(answer.columns, TREE_IMPORTANT if by_tree else IMPORTANT)))


def hang_verdict(folder: str | PathLike[str], at_ns: int | None = None) -> Result:
    """Which rank a hanging or dead job waits for, and why: the answer of `alltrace hang` (`answer.verdict`).

    Args:
        folder: The folder with what the job left: dumps, logs, stacks, records of steps.
        at_ns: When the dumps were written, in ns since 1970; None for the times of the files.

    Raises:
        InputError: No file in the folder says how a job ended.
    """
    from alltrace.hang.verdict import verdict_of

    return Result(verdict_of(Path(folder), at_ns))


def open_run(*inputs: str | PathLike[str], cache_dir: str | PathLike[str] | None = None) -> OpenRun:
    """Open a run directory; or reports, which are imported into the cache first.

    Args:
        inputs: A run directory, or any number of reports, folders of reports, patterns and URLs.
        cache_dir: Where imported reports are kept; None for the user's cache folder.

    Raises:
        InputError: No report can be read.
    """
    places = [os.fspath(place) for place in inputs]
    run = OpenRun(resolve(places, cache_dir=None if cache_dir is None else Path(cache_dir)))
    run.name = shortened(path_text(", ".join(places)), _WIDTH)
    return run
