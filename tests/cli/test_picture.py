"""`--picture FILE`, which every verb has that answers."""

import json

import pytest


def test_the_picture_lies_beside_the_answer(alltrace, run, tmp_path):
    done = alltrace("breakdown", run, "--picture", tmp_path / "b.svg", "--format", "json")
    assert done.code == 0
    assert len(json.loads(done.out)["rows"]) == 2
    assert "Where each device's time went" in (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.glob("*b.svg*")] == ["b.svg"]


@pytest.mark.parametrize("command", [("recipe", "activity"), ("stats", "cuda_gpu_kern_sum"), ("recipe", "kernels")])
def test_recipes_and_reports_by_name_have_pictures(alltrace, run, tmp_path, command):
    assert alltrace(*command, run, "--picture", tmp_path / "a.PNG").code == 0
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("command", "name", "complaint"),
    [
        ("info", "i.png", "info has no chart"),
        ("breakdown", "b.jpg", "expected the name of a file that ends in .png or .svg"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_the_run_is_opened(alltrace, tmp_path, command, name, complaint):
    done = alltrace(command, tmp_path / "there is no run", "--picture", tmp_path / name)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
    assert not (tmp_path / name).exists()


def test_a_picture_that_cannot_be_written_is_an_error_of_one_line(alltrace, run, tmp_path):
    done = alltrace("overlap", run, "--picture", tmp_path / "no folder" / "o.png")
    assert done.code == 3
    assert "cannot be written" in done.err
    assert "Traceback" not in done.err


def test_a_query_has_no_picture(alltrace, run, tmp_path):
    done = alltrace("sql", run, "select 1 as one", "--picture", tmp_path / "s.png")
    assert done.code == 2
    assert "sql has no chart" in done.err
