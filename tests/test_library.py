"""The library as others use it: its types, its answers in other forms, and recipes and readers of other packages."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

import alltrace
from alltrace.readers import registry as readers
from alltrace.recipes.questions.sql import query
from alltrace.recipes.reference import summary
from alltrace.recipes.registry import find, names
from alltrace.trace.errors import UsageError
from tests.making import kernel, make_run
from tests.together import together

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "examples" / "recipe_package"
OF_0_2 = ROOT / "tests" / "package_of_0_2"
PUBLIC = (
    "__init__",
    "api",
    "instrument",
    "capture/instrument",
    "trace/errors",
    "recipes/simple",
    "recipes/part",
    "recipes/row_stream",
)


@pytest.fixture
def run(tmp_path):
    make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10, "<b>a</b>"), kernel(20, 25, "b")]}})
    return alltrace.open(tmp_path / "run")


@together("module", PUBLIC)
def test_no_public_signature_has_any(module):
    tree = ast.parse((ROOT / "src" / "alltrace" / f"{module}.py").read_text())
    found = []
    for owner in (tree, *(n for n in tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_"))):
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef) or (node.name.startswith("_") and not node.name.startswith("__")):
                continue
            arguments = [*node.args.args, *node.args.kwonlyargs, *filter(None, (node.args.vararg, node.args.kwarg))]
            hints = [node.returns, *(a.annotation for a in arguments if a.arg not in ("self", "cls"))]
            assert all(h is not None for h in hints), node.name
            if module != "recipes/simple":  # whose methods are those of a base class
                found += [node.name for h in hints if h is not None and "Any" in ast.unparse(h)]
    assert not found


def test_the_package_names_what_it_gives():
    assert set(alltrace.__all__) >= {"open", "OpenRun", "Result", "AlltraceError", "UsageError", "InputError"}
    for name in alltrace.__all__:
        assert getattr(alltrace, name)
    with pytest.raises(AttributeError, match="Nothing"):
        alltrace.Nothing  # noqa: B018
    light = "import sys, alltrace; assert not {'numpy', 'pyarrow', 'duckdb'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", light], check=False).returncode == 0


def test_a_notebook_shows_rows_and_notes_and_no_markup_of_a_trace(run):
    shown = run.recipe("kernels")._repr_html_()
    assert "&lt;b&gt;a&lt;/b&gt;" in shown
    assert "<b>" not in shown
    assert shown.count("<tr>") == 3
    assert '<th title="summed duration">total</th>' in shown
    assert "<td>5 ns</td>" in shown


def test_a_picture_is_a_figure_of_plotly(run):
    figure = run.recipe("kernels").plot()
    assert type(figure).__name__ == "Figure"
    assert len(figure.data)
    with pytest.raises(alltrace.UsageError):
        run.recipe("info").plot()


def test_frames_have_the_rows(run):
    result = run.recipe("kernels")
    pytest.importorskip("pandas")
    assert list(result.to_pandas().columns) == result.to_arrow().column_names


class Frame:
    """What stands for a frame where Polars is not installed."""

    def __init__(self, table):
        self.rows = table.num_rows


def test_polars_has_the_rows_or_says_that_it_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(alltrace.UsageError, match="Polars"):
        run.recipe("kernels").to_polars()
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(DataFrame=Frame))
    made = run.recipe("kernels").to_polars()
    monkeypatch.undo()
    assert made.rows == 2


def added(monkeypatch, group, name, value):
    entry = metadata.EntryPoint(name, value, group)
    plain = metadata.entry_points
    monkeypatch.setattr(
        metadata, "entry_points", lambda **given: [entry] if given.get("group") == group else plain(**given)
    )


@pytest.mark.parametrize(("folder", "module"), [(TEMPLATE, "longest_kernels"), (OF_0_2, "longest_kernels_of_0_2")])
def test_a_package_of_today_and_one_of_0_2_answer_the_same(folder, module, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    added(monkeypatch, "alltrace.recipes", "longest-kernels", module)
    make_run(
        tmp_path / "run",
        {0: {"kernels": [kernel(0, 10, "a")]}, 1: {"kernels": [kernel(0, 25, "a"), kernel(30, 34, "b")]}},
    )
    run = alltrace.open(tmp_path / "run")
    answer = run.recipe("longest-kernels")
    assert answer.to_pylist() == [{"name": "a", "longest_ns": 25}, {"name": "b", "longest_ns": 4}]
    assert [(c.name, c.unit, c.doc) for c in answer.answer.columns] == [
        ("name", None, "kernel"),
        ("longest_ns", "ns", "its longest execution"),
    ]
    assert summary(find("longest-kernels")) == "The longest execution of each kernel, over all ranks."
    shown = find("longest-kernels").shown_statement({})
    assert query(run, shown).table.to_pylist() == answer.to_pylist()


PYTHON_OF_0_2 = '''
from alltrace.recipes.base import Answer, AnswerColumn, Option, Recipe


class Busy(Recipe):
    """How many kernels a rank has."""

    name = "busy"
    tables = {"kernels": ("start",), "copies": ("start",)}
    requires = ("kernels",)
    options = (Option("times", int, 1, "a factor"),)
    columns = (AnswerColumn("rank", None, "rank"), AnswerColumn("count", None, "kernels"))

    def answer_columns(self, options):
        return self.columns if options["times"] == 1 else self.columns[1:]

    def map(self, rank, options):
        import pyarrow as pa

        return pa.table({"count": [rank.table("kernels", ["start"]).num_rows * options["times"]]})

    def reduce(self, parts, run, options):
        import pyarrow as pa

        columns = self.answer_columns(options)
        rows = [{"rank": p.rank, "count": p.table.column("count")[0].as_py()} for p in parts]
        return Answer(pa.table({c.name: [row[c.name] for row in rows] for c in columns}), columns)


RECIPE = Busy()
'''


def test_a_recipe_in_python_of_0_2_answers(tmp_path, monkeypatch):
    (tmp_path / "busy_recipe.py").write_text(PYTHON_OF_0_2)
    monkeypatch.syspath_prepend(str(tmp_path))
    added(monkeypatch, "alltrace.recipes", "busy", "busy_recipe")
    make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 10, "a")]}, 1: {"ranges": []}})
    run = alltrace.open(tmp_path / "run")
    assert run.recipe("busy").to_pylist() == [{"rank": 0, "count": 1}]
    assert run.recipe("busy", times=3).to_pylist() == [{"count": 3}]
    assert any(note.startswith("rank 1 has no `kernels`") for note in run.recipe("busy").notes)


def test_the_template_is_a_question_of_at_most_40_lines_whose_test_passes(tmp_path, monkeypatch):
    assert len((TEMPLATE / "longest_kernels.py").read_text().splitlines()) <= 40
    assert (TEMPLATE / "longest_kernels.py").read_text() in (ROOT / "docs" / "write-a-recipe.md").read_text()
    monkeypatch.syspath_prepend(str(TEMPLATE))
    added(monkeypatch, "alltrace.recipes", "longest-kernels", "longest_kernels")
    scope: dict[str, object] = {}
    exec(
        compile((TEMPLATE / "tests" / "test_longest_kernels.py").read_text(), "test_longest_kernels.py", "exec"), scope
    )
    scope["test_the_longest_execution_of_all_ranks_counts"](tmp_path)
    make_run(tmp_path / "run", {0: {"ranges": []}})
    nothing = alltrace.open(tmp_path / "run").recipe("longest-kernels").to_arrow()
    assert (nothing.num_rows, [str(field.type) for field in nothing.schema]) == (0, ["string", "int64"])


def test_a_statement_with_other_columns_is_named(run, monkeypatch):
    monkeypatch.syspath_prepend(str(OF_0_2))
    added(monkeypatch, "alltrace.recipes", "longest-kernels", "longest_kernels_of_0_2")
    import longest_kernels_of_0_2

    monkeypatch.setattr(longest_kernels_of_0_2.LongestKernels, "reduce_sql", "SELECT 1 AS one FROM parts")
    with pytest.raises(alltrace.AlltraceError, match="gives the columns one; expected name, longest_ns"):
        run.recipe("longest-kernels")


READER = """
from pathlib import Path

def is_report(path: Path) -> bool:
    return path.suffix == ".mine"
"""


def test_a_reader_of_another_package_is_asked(tmp_path, monkeypatch, corpus):
    package = tmp_path / "mine_reader"
    package.mkdir()
    (package / "__init__.py").write_text(READER)
    (package / "read.py").write_text("from alltrace.readers.nsys.read import open_report\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    added(monkeypatch, "alltrace.readers", "mine", "mine_reader")
    readers._added.cache_clear()
    try:
        (tmp_path / "reports").mkdir()
        shutil.copyfile(corpus / "nsys" / "schema3.1_nsys2023.1.sqlite", tmp_path / "reports" / "report.mine")
        assert readers.is_report(tmp_path / "reports" / "report.mine")
        reader = readers.open_report(tmp_path / "reports" / "report.mine")
        assert reader.report.format
        reader.close()
        (package / "read.py").unlink()
        sys.modules.pop("mine_reader.read", None)
        with pytest.raises(alltrace.AlltraceError, match="reinstall"):
            readers.open_report(tmp_path / "reports" / "report.mine")
    finally:
        readers._added.cache_clear()


def test_a_result_is_a_table(run):
    result = run.recipe("kernels")
    rows = result.to_pylist()
    assert len(result) == len(rows) > 0
    assert list(result) == rows
    assert result["name"] == [row["name"] for row in rows]
    assert (result[0], result[-1]) == (rows[0], rows[-1])
    with pytest.raises(KeyError, match="no column 'nothing'; expected one of name, "):
        result["nothing"]
    with pytest.raises(IndexError):
        result[len(rows)]
    assert {"name", "total", "count"} <= set(repr(result).split())
    assert "not shown: " in repr(result)
    assert not isinstance(result, tuple)


def test_a_run_answers_queries_and_lists_its_recipes(run):
    assert run.sql("SELECT count(*) AS n FROM kernels")["n"] == [sum(run.recipe("kernels")["count"])]
    named = run.recipes()
    assert {"name": "overlap", "group": "communication"}.items() <= next(
        r for r in named if r["name"] == "overlap"
    ).items()
    assert sorted(named["name"]) == names()
    assert repr(run).startswith(f"<alltrace run {run.name}: 1 rank, 1 host, ")
    found = run.diagnose()
    assert repr(found).splitlines()[0] == found.verdict


@pytest.mark.parametrize("ranks", ["0", [0], None])
def test_ranks_are_numbers_or_a_text(run, ranks):
    assert (
        run.recipe("kernels", by_rank=True, ranks=ranks).to_pylist() == run.recipe("kernels", by_rank=True).to_pylist()
    )


def test_errors_are_in_the_words_of_python(run):
    with pytest.raises(UsageError, match=r"^mfu needs ") as caught:
        run.recipe("mfu")
    assert "--" not in str(caught.value)
    with pytest.raises(UsageError, match=r"^ranks is 'x'"):
        run.recipe("kernels", ranks="x")


def test_a_rank_may_be_a_number_where_an_option_takes_text(run):
    assert run.recipe("whatif", rank=0).to_pylist() == run.recipe("whatif", rank="0").to_pylist()


def test_rows_that_last_have_a_duration(run):
    for table in ("kernels", "copies", "ranges", "collectives"):
        assert run.sql(f'SELECT count(*) AS n FROM {table} WHERE duration IS DISTINCT FROM "end" - start')["n"] == [0]
    assert run.sql("SELECT sum(duration) AS busy_ns FROM kernels")["busy_ns"] == [
        sum(run.recipe("kernels")["total_ns"])
    ]
    with pytest.raises(UsageError, match=r'write "end" in double quotes, as in SELECT "end" - start'):
        run.sql("SELECT end - start FROM kernels")


def test_two_runs_are_compared(run):
    result = alltrace.diff(run, run, what="kernel")
    assert {row["verdict"] for row in result} == {"same"}
    assert result.answer.verdict
    with pytest.raises(UsageError, match="kernal"):
        alltrace.diff(run, run, what="kernal")


def test_several_recipes_are_asked_together_and_one_that_cannot_answer_says_why(run):
    kernels, memory, findings, overlap = run.recipe(["kernels", "memory", "diagnose", "overlap"])
    assert kernels.to_pylist() == run.recipe("kernels").to_pylist()
    assert overlap.to_pylist() == run.recipe("overlap").to_pylist()
    assert findings.answer.verdict == run.recipe("diagnose").answer.verdict
    assert (len(memory), list(memory)) == (0, [])
    assert "no rank has `allocations`" in memory.notes[0]
    assert [column.name for column in memory.answer.columns] == memory.to_arrow().column_names
    (by_rank, spans) = run.recipe(["kernels", "breakdown"], ranks=0, by_rank=True, span="run")
    assert by_rank.to_pylist() == run.recipe("kernels", ranks="0", by_rank=True).to_pylist()
    assert spans.to_pylist() == run.recipe("breakdown", ranks=[0], span="run").to_pylist()
    with pytest.raises(UsageError, match="unknown option of kernels, overlap 'by_rnk'; did you mean by_rank"):
        run.recipe(["kernels", "overlap"], by_rnk=True)
    with pytest.raises(UsageError, match="unknown recipe 'overlp'"):
        run.recipe(["kernels", "overlp"])
    with pytest.raises(UsageError, match="steps and skip_warmup work with one recipe at a time"):
        run.recipe(["kernels"], steps="1")
    assert run.recipe("kernels")[:1] == [run.recipe("kernels")[0]]
