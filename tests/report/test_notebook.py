from __future__ import annotations

import json

import pytest
from tests.making import collective, kernel, make_run

from alltrace.recipes.registry import find
from alltrace.report.notebook import notebook, recipes_for
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
        *lines, last = cell["source"].rsplit("\n", 1) if cell["source"].startswith("from pathlib") else (cell["source"],)
        exec("\n".join(lines), names)
        shown.append(eval(last, names))
    return shown


@pytest.mark.sampled(2)
@pytest.mark.parametrize("folder", ["run", 'it\'s "quoted" \\ here\nand there'], ids=["plain", "quoted"])
def test_no_cell_fails_wherever_the_run_lies(folder, tmp_path, capfd):
    import plotly.graph_objects as go

    run = make_run(tmp_path / folder, ROWS)
    made = json.loads(notebook([str(run.path)], folder, recipes_for(run)))
    facts, *figures = run_cells(made)
    assert facts["ranks"] == 2
    asked = [c["source"] for c in made["cells"] if c["source"].startswith("show(")]
    assert asked[:3] == ["show('diagnose')", "show('activity')", "show('breakdown')"]
    assert figures[0].verdict in figures[0]._repr_html_()
    drawn = dict(zip(asked, figures, strict=False))
    assert isinstance(drawn["show('breakdown')"], go.Figure)
    assert drawn["show('info')"] is None
    assert "compute_ns" in capfd.readouterr().out


def test_a_figure_is_kept_as_html_too(tmp_path, monkeypatch):
    """A notebook that is made a page has what its cells left as HTML, and nothing that only Jupyter can draw."""
    import plotly.io

    monkeypatch.setattr(plotly.io.renderers, "default", plotly.io.renderers.default)
    run = make_run(tmp_path / "run", ROWS)
    made = json.loads(notebook([str(run.path)], "run", [find("breakdown"), find("operators")]))
    assert [c["source"] for c in made["cells"] if c["source"].startswith("show(")][1:] == [
        "show('operators')",
        "show('operators', by='module')",
    ]
    _, drawn, *_ = run_cells(made)
    assert plotly.io.renderers.default == "plotly_mimetype+notebook"
    kept = plotly.io.renderers["notebook"].to_mimebundle(drawn.to_dict())  # what IPython asks for
    assert "Plotly.newPlot" in kept["text/html"]


def test_a_notebook_is_of_the_format_that_jupyter_reads(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    run = make_run(tmp_path / "run", ROWS)
    nbformat.validate(nbformat.reads(notebook([str(run.path)], "<img src=x onerror=alert(1)>", recipes_for(run)), 4))


def test_a_notebook_of_reports_finds_the_cache_that_they_were_imported_into(tmp_path, monkeypatch):
    write_run("tiny", tmp_path / "reports", ideal=True)
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "not this one"))
    made = json.loads(notebook([str(tmp_path / "reports")], "r", [], str(tmp_path / "it's a cache")))
    facts, _ = run_cells(made)
    assert facts["ranks"] == 2
    assert (tmp_path / "it's a cache").is_dir()
    assert not (tmp_path / "not this one").exists()


def test_the_name_of_a_run_is_no_markup(tmp_path):
    made = json.loads(notebook(["x"], "<img src=x onerror=alert(1)> **b**", []))
    assert made["cells"][0]["source"].startswith("# &lt;img src=x onerror=alert(1)&gt; \\*\\*b\\*\\*\n")


def test_only_recipes_that_the_run_can_answer_are_asked(tmp_path):
    run = make_run(tmp_path, {0: {"ranges": [{"start": 0, "end": 9, "name": "a"}]}})
    assert {"diagnose", "steps", "info"} <= {r.name for r in recipes_for(run)}
    assert not {"kernels", "breakdown", "activity"} & {r.name for r in recipes_for(run)}
    assert [r.name for r in recipes_for(run, ["kernels"])] == ["kernels"]
    with pytest.raises(UsageError, match="unknown recipe 'kernel'"):
        recipes_for(run, ["kernel"])


def test_a_cell_whose_recipe_refuses_says_so(tmp_path, capfd, monkeypatch):
    run = make_run(tmp_path / "run", ROWS)
    made = json.loads(notebook([str(run.path)], "r", [find("breakdown")]))
    monkeypatch.setitem(vars(find("breakdown")), "map", _refuse)
    run_cells({"cells": made["cells"][:4]})
    assert "no answer today" in capfd.readouterr().out


def _refuse(*_arguments):
    raise UsageError("no answer today")
