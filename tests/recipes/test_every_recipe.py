"""What holds for every recipe and every stats report, also for those to come."""

from __future__ import annotations

import csv
import io
import json
import pickle
import random
import re
from functools import cache, partial

import pytest
from tests.making import make_run, random_rows

from alltrace.align.schema import SOURCES
from alltrace.charts import draw, figure
from alltrace.charts.text_table import to_text
from alltrace.cli.csv_text import to_csv
from alltrace.cli.output import to_json, to_markdown
from alltrace.recipes import sql_recipe
from alltrace.recipes.execution import part_store
from alltrace.recipes.execution.ask import ask, resolve_options, wants_alignment
from alltrace.recipes.execution.availability import able_ranks
from alltrace.recipes.registry import REPORTS, find, names
from alltrace.run.manifest import Clock
from alltrace.trace.schema import DICTIONARIES, EVENT_TABLES, TABLES

EVERY = [*names(), *(f"stats:{name}" for name in REPORTS)]
UNITS = {
    "_ns": "ns",
    "_bytes": "bytes",
    "_percent": "%",
    "_gb_per_s": "GB/s",
    "_bytes_per_s": "bytes/s",
    "(ns)": "ns",
    "(%)": "%",
    "(MB)": "MB",
    "(MB/s)": "MB/s",
    "(B)": "B",
}
# numbered from the first rank on, as nsys numbers them within a report
NUMBERED = ("RangeId", "ParentId", "RangeStack")
# what a rank's report is called, in which its number is
FILES = ("File", "Min File", "Max File")
SAMPLES = {int: 1, float: 1.0, str: "a", bool: True}


def every_recipe(law):
    """A law that is tested with a sample of the recipes, and by the slow tests with all."""
    return pytest.mark.sampled(10)(pytest.mark.parametrize("name", EVERY)(law))


def tables_of(rank, *, without=(), length=1_000_000):
    draw = random.Random(rank)
    rows = {t: random_rows(t, 24, draw, length=length) for t in EVENT_TABLES if t not in without}
    for row in rows.get("collectives", ()):  # no two ranks have one operation, whose kernels a replay would ask for
        row["communicator"] = f"{row['communicator']} of {rank}"
    rows["devices"] = [{"device": 0, "ordinal": 0, "uuid": f"GPU-{rank}", "name": "H200"}]
    return rows


# rows drawn at random are not a run that could be replayed
WITHOUT_PICTURE = {
    "info": "facts of each rank, no amounts to compare",
    "stats:um_total_sum": "one row of totals in different units",
}
MORE = {("per", "range"): {"range": "a"}}
ALLOWED = {"whatif": {"max_error": 1e9}}


def options_of(recipe):
    return ALLOWED.get(recipe.name, {}) | {
        o.name: o.choices[0] if o.choices else SAMPLES[o.type] for o in recipe.options if o.required
    }


def answer_of(run, name, options=None, **arguments):
    """The answer, once it is checked against what every answer owes."""
    recipe = find(name)
    options = options_of(recipe) if options is None else options
    answer = ask(run, recipe, options, **arguments)
    assert answer.table.column_names == [c.name for c in answer.columns]
    declared = recipe.answer_columns({o.name: options.get(o.name, o.default) for o in recipe.options})
    if name == "info":  # a table that no rank has gets no column, and neither do roles
        declared = tuple(
            c for c in declared if c.name not in {*EVENT_TABLES, "role"} or c.name in answer.table.column_names
        )
    assert answer.columns == declared
    assert all(isinstance(n, str) and n for n in answer.notes)
    answer.table.validate(full=True)
    for table in answer.further.values():
        assert table.table.column_names == [c.name for c in table.columns]
        table.table.validate(full=True)
    return answer


def without_length():
    """Rows of one rank, none of which takes time."""
    tables = tables_of(0)
    for table in EVENT_TABLES:
        for row in tables[table]:
            if "end" in row:
                row["end"] = row["start"]
    return tables


def without_ends():
    """Rows of one rank, of which every third that takes time has no end, as in a damaged export."""
    tables = tables_of(0)
    for table in EVENT_TABLES:
        for row in tables[table][::3]:
            if "end" in row:
                row["end"] = None
    return tables


def shuffled():
    """The rows of three ranks in another order."""
    draw = random.Random(1)
    ranks = {r: tables_of(r) for r in (2, 0, 1)}
    for tables in ranks.values():
        for table in EVENT_TABLES:
            draw.shuffle(tables[table])
    return ranks


def lacking(without, *, some):
    """Rank 1 without some tables, alone or with a rank that has them; without `collectives`, no kernel communicates."""
    tables = {r: tables_of(r, without=without if r else ()) for r in ((0, 1) if some else (1,))}
    if without == ("collectives",):
        for rank in tables:
            tables[rank]["kernels"] = [{**k, "kind": "compute"} for k in tables[rank]["kernels"]]
    return tables


LACKING = (("kernels",), ("kernels", "copies", "graphs"), ("collectives",), ("api", "ranges"))
RUNS = {
    "three": lambda: {r: tables_of(r) for r in range(3)},
    "none": dict,
    "bare": lambda: {0: {}, 1: {}},
    "one": lambda: {7: tables_of(7)},
    "missing": lambda: {0: tables_of(0), 2: tables_of(2)},
    "without length": lambda: {0: without_length()},
    "without ends": lambda: {0: without_ends()},
    "shuffled": shuffled,
    "turned": lambda: {0: tables_of(2), 1: tables_of(0), 2: tables_of(1)},
    **{f"some lack {w}": partial(lacking, w, some=True) for w in LACKING},
    **{f"all lack {w}": partial(lacking, w, some=False) for w in LACKING},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Gives the run of that name, made once."""
    folder = tmp_path_factory.mktemp("runs")

    @cache
    def make(name):
        facts = {"missing": (1,), "notes": ("rank 1: no report",)} if name == "missing" else {}
        return make_run(folder / name, RUNS[name](), **facts)

    return make


@pytest.fixture
def three(made):
    """Three ranks with rows in every table."""
    return made("three")


@pytest.fixture(scope="module")
def of_three(made):
    """Gives the answer of three ranks to a recipe with these options, or with those it cannot do without; asked
    once."""
    answers = {}

    def answer(name, options=None):
        given = options_of(find(name)) if options is None else options
        key = (name, *sorted(given.items()))
        if key not in answers:
            answers[key] = answer_of(made("three"), name, given)
        return answers[key]

    return answer


@every_recipe
def test_a_run_without_ranks_or_without_events_has_an_empty_answer(name, of_three, made):
    reads = bool(find(name).tables)
    types = {f.name: _plain(f.type) for f in of_three(name).table.schema}
    for run in (made("none"), made("bare")):
        answer = answer_of(run, name)
        assert answer.table.num_rows == (0 if reads else len(run.ranks))
        assert answer.notes or not reads
        assert {f.name: _plain(f.type) for f in answer.table.schema} == {
            f.name: types[f.name] for f in answer.table.schema
        }


def _plain(kind):
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


@every_recipe
def test_one_rank_is_answered(name, made):
    answer = answer_of(made("one"), name)
    assert _ranks(answer) <= {7}


@every_recipe
def test_a_missing_rank_is_noted_and_the_rest_answered(name, made):
    answer = answer_of(made("missing"), name)
    assert "rank 1: no report" in answer.notes
    assert _ranks(answer) <= {0, 2}


@every_recipe
def test_events_whose_end_is_lacking_are_no_traceback(name, made):
    answer = answer_of(made("without ends"), name)
    assert _ranks(answer) <= {0}


@every_recipe
def test_events_without_length_are_answered(name, made):
    answer_of(made("without length"), name)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("without", LACKING, ids=" and ".join)
def test_ranks_that_lack_tables_are_answered(name, without, made):
    answer_of(made(f"some lack {without}"), name)
    answer_of(made(f"all lack {without}"), name)


@every_recipe
def test_the_order_of_rows_in_the_reports_does_not_matter(name, of_three, made):
    one, other = of_three(name), answer_of(made("shuffled"), name)
    assert other.table.to_pylist() == one.table.to_pylist()
    assert {n: t.table.to_pylist() for n, t in other.further.items()} == {
        n: t.table.to_pylist() for n, t in one.further.items()
    }
    assert other.notes == one.notes


@every_recipe
def test_which_number_a_rank_has_does_not_matter(name, of_three, made):
    assert _without_ranks(answer_of(made("turned"), name)) == _without_ranks(of_three(name))


def _without_ranks(answer):
    numbers = {
        "rank",
        "Rank",
        "local_rank",
        "most_rank",
        "pool",
        "process",
        "reports",
        "ranks",
        "advice",
        "culprit",
        "loss_note",
        *NUMBERED,
        *FILES,
    }
    rows = [
        {k: float(f"{v:.9g}") if isinstance(v, float) else v for k, v in row.items() if k not in numbers}
        for row in answer.table.to_pylist()
    ]
    return sorted(map(repr, rows))


@every_recipe
def test_ranks_asked_in_any_order_or_twice_are_asked_once(name, three):
    asked = answer_of(three, name, ranks=[0, 2])
    assert _ranks(asked) <= {0, 2}
    assert answer_of(three, name, ranks=[2, 0, 2]).table.to_pylist() == asked.table.to_pylist()


def _ranks(answer):
    column = next((n for n in ("rank", "Rank") if n in answer.table.column_names), None)
    return set(answer.table.column(column).to_pylist()) - {None} if column else set()  # null: of all ranks together


@every_recipe
def test_every_format_holds_every_row_whatever_the_names_are(name, three, of_three):
    answer = of_three(name)
    rows = answer.table.num_rows
    envelope = json.loads(to_json(name, answer, answer.table, three.facts()))
    assert len(envelope["rows"]) == rows
    assert all(list(row) == [c.name for c in answer.columns] for row in envelope["rows"])
    assert len(list(csv.reader(io.StringIO(to_csv(answer.table), newline="")))) == rows + 1
    page = to_markdown(answer, answer.table)
    assert page.count("\n") == rows + 2 + (len(answer.notes) + 1 if answer.notes else 0)
    for text in (page, to_text(answer, answer.table)):
        assert all(line.isprintable() for line in text.split("\n"))
    assert "<img" not in page


@every_recipe
def test_every_recipe_is_declared_whole(name):
    recipe = find(name)
    assert recipe.name == name.removeprefix("stats:")
    assert (recipe.doc or "").strip()
    for table, columns in recipe.tables.items():
        assert set(columns) <= set(TABLES[table].column_names)
    options = resolve_options(recipe, options_of(recipe))
    assert {t for group in recipe.needs(options) for t in group} | set(recipe.without(options)) <= set(
        recipe.reads(options)
    )
    for option in recipe.options:
        assert option.help.strip()
        assert option.default is None or isinstance(option.default, option.type)
        assert not option.choices or option.default in (None, *option.choices)
    columns = recipe.answer_columns({o.name: options_of(recipe).get(o.name, o.default) for o in recipe.options})
    assert len({c.name for c in columns}) == len(columns)
    for column in columns:
        assert column.doc.strip()
        for ending, unit in UNITS.items():
            if column.name.endswith(ending) and not (ending == "_bytes" and column.name.endswith("_per_s")):
                assert column.unit == unit, column.name
        if re.search(r"\((?!.*\)\w)", column.name):
            assert column.unit, column.name


@every_recipe
def test_every_recipe_has_a_picture_whatever_its_options_are(name, of_three):
    recipe = find(name)
    if name in WITHOUT_PICTURE:
        assert recipe.answer_chart(options_of(recipe)) is None
        return
    flags = [{}, *({o.name: True} for o in recipe.options if o.type is bool)]
    flags += [{o.name: c} for o in recipe.options for c in o.choices or () if not o.required and c != "range"]
    for options in flags:
        answer = of_three(name, {**options_of(recipe), **options})
        assert answer.chart is not None, (
            f"{name} {options}: no picture; pass `chart=Chart(...)`, or say why not in WITHOUT_PICTURE"
        )
        assert draw(answer).empty <= (answer.table.num_rows == 0 or not _drawable(answer))
        json.dumps(figure(draw(answer)), allow_nan=False)


def _drawable(answer):
    """Whether a row has a number for every axis that needs one."""
    import pyarrow as pa

    wanted = [*answer.chart.y[:1], *([answer.chart.x] if answer.chart.kind in ("scatter", "lines") else [])]
    columns = [
        answer.table.column(c).to_pylist() for c in wanted if not pa.types.is_string(answer.table.schema.field(c).type)
    ]
    above = 0 if answer.chart.log_y else -float("inf")
    return any(all(v is not None and v > above for v in row) for row in zip(*columns, strict=True))


@every_recipe
def test_a_recipe_travels_to_other_processes(name, three, of_three):
    recipe = pickle.loads(pickle.dumps(find(name)))
    assert recipe.answer_columns({o.name: o.default for o in recipe.options})
    assert ask(three, recipe, options_of(recipe)).table.equals(of_three(name).table)


def test_processes_give_the_same_answer(three):
    assert answer_of(three, "breakdown", jobs=2).table.equals(answer_of(three, "breakdown").table)


@every_recipe
def test_parts_in_files_give_the_same_answer(name, three, of_three, tmp_path, monkeypatch):
    wanted = [of_three(name, options) for options in option_sets(find(name))]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(part_store, "HELD_BYTES", 0)
    monkeypatch.setattr(part_store, "LARGE_BYTES", 0)
    monkeypatch.setattr(sql_recipe, "_ROWS_AT_ONCE", 1)
    for options, whole in zip(option_sets(find(name)), wanted, strict=True):
        answer = ask(three, name, options)
        assert answer.table.equals(whole.table)
        assert answer.notes == whole.notes
        assert all(answer.further[t].table.equals(further.table) for t, further in whole.further.items())
    assert not list(tmp_path.iterdir())


def option_sets(recipe):
    """The options that must be given, and with these each flag and choice alone."""
    given = options_of(recipe)
    yield given
    yield from ({**given, o.name: True} for o in recipe.options if o.type is bool)
    chosen = ((o.name, c) for o in recipe.options for c in o.choices or ())
    yield from ({**given, option: c, **MORE.get((option, c), {})} for option, c in chosen)


class Watched:
    """A rank that gives nothing that is not declared; of an aligned run also what the alignment is made from."""

    def __init__(self, rank, declared, aligned):
        self._rank = rank
        self._declared = declared
        self._known = {*declared, *DICTIONARIES, *(SOURCES if aligned else ())}
        self.batches = partial(self._batches)

    def __getattr__(self, name):
        return getattr(self._rank, name)

    def _check(self, table, columns):
        assert table in self._known, table
        if table in self._declared:
            assert set(TABLES[table].column_names if columns is None else columns) <= set(self._declared[table]), table

    def has(self, table):
        assert table in self._known, table
        return self._rank.has(table)

    def table(self, table, columns=None):
        self._check(table, columns)
        return self._rank.table(table, columns)

    def _batches(self, table, columns=None, rows=0):
        self._check(table, columns)
        return self._rank.batches(table, columns, rows)


@every_recipe
def test_reads_nothing_that_it_does_not_declare(name, three):
    """What is declared decides whether a run without some tables can be asked."""
    recipe = find(name)
    defaults = {o.name: o.default for o in recipe.options}
    aligned = recipe.clock_for({**defaults, **options_of(recipe)}) == "aligned"
    if aligned:
        three.aligned()
    for given in option_sets(recipe):
        options = resolve_options(recipe, given)
        told = recipe.prepared(options, three)
        for record in able_ranks(recipe, three, three.ranks, options):
            recipe.map(Watched(three.rank(record.rank), recipe.reads(options), aligned), told)


@pytest.fixture(scope="module")
def with_clocks(tmp_path_factory):
    """The same ranks twice, with the clock of one host right and wrong."""
    folder = tmp_path_factory.mktemp("clocks")
    clocks = {f"ahead {ns}": (Clock("a"), Clock("b", offset_ns=ns)) for ns in (0, 123_457)}
    hosts = {0: "a", 1: "b", 2: "b"}
    return [make_run(folder / name, RUNS["three"](), hosts=hosts, clocks=given) for name, given in clocks.items()]


@every_recipe
def test_clocks_do_not_matter_to_a_recipe_that_does_not_want_an_alignment(name, with_clocks):
    recipe = find(name)
    for given in option_sets(recipe):
        if not wants_alignment(recipe, with_clocks[0], resolve_options(recipe, given)):
            one, other = (ask(run, recipe, given).all_tables() for run in with_clocks)
            assert {n: t.table.to_pylist() for n, t in one.items()} == {
                n: t.table.to_pylist() for n, t in other.items()
            }


@every_recipe
def test_bins_are_not_so_many_that_they_fill_the_memory(name):
    assert all(o.most is not None and o.most <= 100_000 for o in find(name).options if o.name == "bins")
