import html
import json
import sys
import types

import pytest
from tests.making import collective, kernel, make_run

from alltrace.recipes.questions.diagnose.cards import Proof
from alltrace.recipes.registry import find
from alltrace.report.notebook import MOST_CELLS, notebook, recipes_for
from alltrace.synth import write_run
from alltrace.trace.errors import UsageError

MS = 1_000_000
ROWS = {r: {"kernels": [kernel(0, (40 + r) * MS), collective((40 + r) * MS, 60 * MS)]} for r in range(2)}


def run_cells(made):
    """Every code cell, in order, as a notebook runs them; what the last expression of each gives."""
    names = {}
    shown = []
    for cell in made["cells"]:
        if cell["cell_type"] != "code":
            continue
        *lines, last = (
            cell["source"].rsplit("\n", 1) if cell["source"].startswith("from pathlib") else (cell["source"],)
        )
        exec("\n".join(lines), names)
        shown.append(eval(last, names))
    return shown


@pytest.fixture
def displayed(monkeypatch):
    """What cells display besides what comes back, as IPython is not installed here."""
    shown = []
    module = types.ModuleType("IPython.display")
    module.display = shown.append
    package = types.ModuleType("IPython")
    package.get_ipython = lambda: None  # plotly asks for it
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


@pytest.mark.sampled(2)
@pytest.mark.parametrize("folder", ["run", 'it\'s "quoted" \\ here\nand there'], ids=["plain", "quoted"])
def test_no_cell_fails_wherever_the_run_lies(folder, tmp_path, displayed):
    import plotly.graph_objects as go

    run = make_run(tmp_path / folder, ROWS)
    asked, others = recipes_for(run)
    made = json.loads(notebook([str(run.path)], folder, asked, others))
    assert len(made["cells"]) <= MOST_CELLS
    facts, findings, *figures, _sql = run_cells(made)
    assert facts["ranks"] == 2
    assert html.escape(findings.verdict) in findings._repr_html_()
    assert {"breakdown", "idle"} <= {p.recipe for p in asked}
    drawn = dict(zip([p.recipe for p in asked], figures, strict=True))
    assert isinstance(drawn["breakdown"], go.Figure)
    tables = "".join(table._repr_html_() for table in displayed)
    assert "40.00 ms" in tables, "tables have units"
    assert "`activity`" in made["cells"][-1]["source"]
    assert not {p.recipe for p in asked} & set(others)


def test_the_tables_that_the_findings_rest_on_come_in_their_order(tmp_path):
    from tests.recorded.asking import opened

    from alltrace.recipes.execution.ask import ask
    from alltrace.recipes.questions.diagnose.cards import told

    run = opened("ddp-slow-rank", tmp_path)
    diagnosis = told(ask(run, "diagnose").read(), {r.rank: r.host for r in run.ranks})
    wanted = list(dict.fromkeys(card.proof.recipe for card in diagnosis.cards))
    asked, _ = recipes_for(run)
    assert [p.recipe for p in asked][: len(wanted)] == wanted[:5]
    assert asked[0] == diagnosis.cards[0].proof


def test_a_figure_is_kept_as_html_too(tmp_path, monkeypatch, displayed):
    """A notebook that is made a page has what its cells left as HTML, and nothing that only Jupyter can draw."""
    import plotly.io

    monkeypatch.setattr(plotly.io.renderers, "default", plotly.io.renderers.default)
    run = make_run(tmp_path / "run", ROWS)
    made = json.loads(notebook([str(run.path)], "run", *recipes_for(run, ["breakdown", "operators"])))
    asked = [c["source"].splitlines()[-1] for c in made["cells"] if "show(" in c["source"].splitlines()[-1]]
    assert asked == ["show('breakdown')", "show('operators')"]
    _, _, drawn, *_ = run_cells(made)
    assert plotly.io.renderers.default == "plotly_mimetype+notebook"
    kept = plotly.io.renderers["notebook"].to_mimebundle(drawn.to_dict())  # what IPython asks for
    assert "Plotly.newPlot" in kept["text/html"]


def test_a_notebook_is_of_the_format_that_jupyter_reads(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    run = make_run(tmp_path / "run", ROWS)
    nbformat.validate(nbformat.reads(notebook([str(run.path)], "<img src=x onerror=alert(1)>", *recipes_for(run)), 4))


def test_a_notebook_of_reports_finds_the_cache_that_they_were_imported_into(tmp_path, monkeypatch, displayed):
    write_run("tiny", tmp_path / "reports", ideal=True)
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "not this one"))
    made = json.loads(notebook([str(tmp_path / "reports")], "r", [], (), str(tmp_path / "it's a cache")))
    facts, *_ = run_cells(made)
    assert facts["ranks"] == 2
    assert (tmp_path / "it's a cache").is_dir()
    assert not (tmp_path / "not this one").exists()


def test_names_are_no_markup_and_recipes_are_those_with_an_answer(tmp_path):
    made = json.loads(notebook(["x"], "<img src=x onerror=alert(1)> **b**", []))
    assert made["cells"][0]["source"].startswith("# &lt;img src=x onerror=alert(1)&gt; \\*\\*b\\*\\*\n")
    run = make_run(tmp_path / "2", {0: {"ranges": [{"start": 0, "end": 9, "name": "a"}]}})
    asked, others = recipes_for(run)
    known = {*(p.recipe for p in asked), *others}
    assert {"steps", "info"} <= known
    assert not {"kernels", "breakdown", "activity", "diagnose"} & known
    assert recipes_for(run, ["kernels"]) == ([Proof("kernels", {})], [])
    with pytest.raises(UsageError, match="unknown recipe 'kernel'"):
        recipes_for(run, ["kernel"])


def test_a_cell_whose_recipe_refuses_says_so(tmp_path, capfd, monkeypatch, displayed):
    run = make_run(tmp_path / "run", ROWS)
    made = json.loads(notebook([str(run.path)], "r", [Proof("breakdown", {})]))
    monkeypatch.setitem(vars(find("breakdown")), "map", _refuse)
    run_cells({"cells": made["cells"][:4]})
    assert "no answer today" in capfd.readouterr().out


def _refuse(*_arguments):
    raise UsageError("no answer today")
