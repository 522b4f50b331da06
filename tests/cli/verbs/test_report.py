"""The verbs `report` and `notebook`."""

import json

import pytest


def test_a_page_is_written_whole(alltrace, run, tmp_path):
    done = alltrace("report", run, "-o", tmp_path / "r.html", "--title", "nightly")
    assert (done.code, done.out) == (0, "")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert text.endswith("</html>\n")
    assert "<h1>nightly</h1>" in text
    assert len(text) < 4_000_000


def test_markdown_goes_to_standard_output(alltrace, run):
    done = alltrace("report", run, "--format", "md", "--ranks", "1")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("# alltrace: ")
    assert "of some ranks" in done.out


def test_a_notebook_opens_the_run_from_anywhere(alltrace, run, tmp_path):
    done = alltrace("notebook", run, "-o", tmp_path / "n.ipynb", "--recipes", "overlap, breakdown")
    assert (done.code, done.out) == (0, "")
    cells = [c["source"] for c in json.loads((tmp_path / "n.ipynb").read_text(encoding="utf-8"))["cells"]]
    assert f"run = alltrace.open({run!r})" in cells[1]
    assert [c.splitlines()[-1] for c in cells if "\nshow(" in c] == ["show('overlap')", "show('breakdown')"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["report"], "report needs -o FILE for a page"),
        (["report", "-o", "."], "expected the name of a file"),
        (["report", "-o", "r.html", "--steps", "x"], "expected steps such as 10:50"),
        (["report", "-o", "r.html", "--ranks", "x"], "expected numbers and spans"),
        (["notebook", "-o", "n.txt"], "ends in .ipynb"),
        (["notebook", "-o", "n.ipynb", "--recipes", "overlpa"], "did you mean overlap"),
    ],
    ids=lambda a: " ".join(a) if isinstance(a, list) else "",
)
def test_what_cannot_work_is_refused_before_the_run_is_opened(alltrace, tmp_path, arguments, complaint):
    done = alltrace(arguments[0], tmp_path / "there is no run", *arguments[1:])
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
    assert list(tmp_path.glob("here/*")) == []


@pytest.mark.parametrize("verb", [("report", "r.html"), ("notebook", "n.ipynb")], ids=lambda v: v[0])
def test_a_run_that_is_not_there_leaves_no_file(alltrace, tmp_path, verb):
    done = alltrace(verb[0], tmp_path / "none", "-o", verb[1])
    assert done.code == 3
    assert "Traceback" not in done.err
    assert list(tmp_path.glob("here/*")) == []
