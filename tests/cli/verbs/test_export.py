import json

import pytest
from tests.paraver_checks import well_formed

from alltrace.trace.errors import EXIT_BREACH, EXIT_DONE, EXIT_INPUT, EXIT_USAGE

FILES = {"paraver": "out.prv", "perfetto": "out.pftrace", "chrome": "out.json", "talp": "talp.json"}


@pytest.mark.parametrize("form", [*FILES, "parquet", "csv", "arrow"])
def test_every_format_writes_its_output_and_says_so(alltrace, run, tmp_path, form):
    name = FILES.get(form, "tables")
    done = alltrace("export", form, run, "-o", name)
    assert (done.code, done.out) == (EXIT_DONE, "")
    assert done.err.startswith(f"{name}: ")
    assert (tmp_path / "here" / name).exists()
    assert not [p for p in (tmp_path / "here").iterdir() if p.name.startswith(".")]


def test_a_trace_is_checked(alltrace, run, tmp_path):
    assert alltrace("export", "paraver", run, "-o", "out.prv.gz", "--cfgs").code == EXIT_DONE
    well_formed(tmp_path / "here" / "out.prv.gz")
    done = alltrace("export", "check", "out.prv.gz")
    assert done.code == EXIT_DONE
    assert done.out.endswith("records, no fault\n")
    (tmp_path / "here" / "bad.prv").write_text("hello\n")
    done = alltrace("export", "check", "bad.prv")
    assert done.code == EXIT_BREACH
    assert "bad.prv: line 1: the first line is not a Paraver header\n" in done.out
    assert alltrace("export", "check", "no.prv").code == EXIT_INPUT


def test_ranks_tables_and_a_window(alltrace, run, tmp_path):
    done = alltrace(
        "export", "chrome", run, "-o", "a.json", "--ranks", "1", "--only", "kernels", "--window", "1:40000000"
    )
    assert done.code == EXIT_DONE
    events = json.loads((tmp_path / "here" / "a.json").read_text())["traceEvents"]
    assert [(e["pid"], e["ts"]) for e in events if e["ph"] == "X"] == [
        (4001, 0),
        (4001, 34999.999),
    ]  # the first began before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["paraver"], "needs -o"),
        (["paraver", "-o", "a.txt"], "ends in .prv"),
        (["perfetto", "-o", "a.json"], "does not write JSON"),
        (["chrome", "-o", "a", "--window", "5"], "--window is '5'"),
        (["chrome", "-o", "a", "--window", "5:5"], "expected a start and a later end"),
        (["chrome", "-o", "a", "--window", "1:2", "--steps", "1"], "--steps and --window were given; give one of them"),
        (["chrome", "-o", "a", "--window", "1:2", "--range", "x"], "--window and --range were given; give one of them"),
        (
            ["csv", "-o", "a", "--range", "nowhere"],
            "--range: no rank has an NVTX range 'nowhere' in the default domain",
        ),
        (["csv", "-o", "a", "--range", "/1"], "expected RANGE[@DOMAIN][/INDEX]"),
        (["chrome", "-o", "a", "--steps", "1-2"], "no steps were found"),
        (["chrome", "-o", "a", "--steps", "x"], "--steps is 'x'"),
        (["chrome", "-o", "a", "--max-mb", "0"], "above 0"),
        (["chrome", "-o", "a", "--max-mb", "nan"], "above 0"),
        (["chrome", "-o", "a", "--max-mb", "inf"], "above 0"),
        (["csv", "-o", "a", "--max-mb", "3"], "--max-mb works with perfetto and chrome, and the format is csv"),
        (["chrome", "-o", "a", "--cfgs"], "--cfgs works with paraver, and the format is chrome"),
        (["talp", "-o", "a", "--ids", "nsys2prv"], "--ids works with paraver"),
        (["csv", "-o", "a", "--only", "kernel"], "kernels"),
        (["csv", "-o", "a", "--only", ","], "--only is empty"),
        (["csv", "-o", "a", "--ranks", "7"], "rank 7"),
        (["json", "-o", "a"], "invalid choice"),
    ],
)
def test_what_cannot_be_is_one_sentence(alltrace, run, tmp_path, options, said):
    done = alltrace("export", options[0], run, *options[1:])
    assert done.code == EXIT_USAGE
    assert said in done.err
    assert "\n" not in done.err.strip()
    assert not list((tmp_path / "here").iterdir())


def test_a_place_that_cannot_be_written_is_one_sentence(alltrace, run):
    done = alltrace("export", "chrome", run, "-o", "no/where.json")
    assert done.code == EXIT_INPUT
    assert "it cannot be written (No such file or directory)" in done.err
