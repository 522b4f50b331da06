import argparse
import csv
import io
import json
import os
import sys
import tempfile
import threading
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.tables import TABLE

from alltrace.charts.text_table import TableForm, streamed_text, to_text
from alltrace.cli.csv_text import to_csv
from alltrace.cli.output import check_output, save_tables, to_json, to_markdown, write_answer
from alltrace.recipes.base import Answer, AnswerTable, Chart
from alltrace.recipes.row_stream import RowStream
from alltrace.trace.columns import Column
from alltrace.trace.errors import InputError, UsageError

COLUMNS = tuple(Column(n, "any", "ns" if n == "time_ns" else None, "what it is") for n in TABLE.column_names)
ANSWER = Answer(TABLE, COLUMNS, ("rank 5: <b>no</b> \x07report",), {"clocks": ({"host": "a", "drift_ppm": 0.5},)})
FACTS = {"ranks": 8, "hosts": 1, "devices": 8, "span_ns": 10}


def arguments(**given):
    return argparse.Namespace(
        **{
            "format": "table",
            "output": None,
            "limit": None,
            "picture": None,
            "csv_safe": False,
            "wide": False,
            "units": None,
            **given,
        }
    )


def test_json_is_the_envelope_and_nothing_else():
    envelope = json.loads(to_json("overlap", ANSWER, TABLE, FACTS), parse_constant=pytest.fail)
    assert envelope == {
        "alltrace": 1,
        "verb": "overlap",
        "run": FACTS,
        "columns": [
            {"name": "rank", "unit": None},
            {"name": "name", "unit": None},
            {"name": "time_ns", "unit": "ns"},
            {"name": "share", "unit": None},
            {"name": "rate", "unit": None},
        ],
        "rows": [
            {"rank": 0, "name": "plain", "time_ns": 0, "share": 0.5, "rate": 0.25},
            {"rank": 1, "name": 'a "quoted", name', "time_ns": 1234567, "share": None, "rate": 2.0},
            {"rank": 2, "name": "two\nlines\r", "time_ns": None, "share": None, "rate": None},
            {"rank": 3, "name": "\x1b[31m\u202e", "time_ns": -5, "share": None, "rate": 99.96},
            {"rank": 4, "name": "naïve 核", "time_ns": 2**62, "share": 1e-9, "rate": 1e300},
            {"rank": 5, "name": "<img src=x onerror=alert(1)>", "time_ns": 7, "share": 100.0, "rate": -0.04},
            {"rank": 6, "name": "a|b*c", "time_ns": 8, "share": 2.0, "rate": 3.0},
            {"rank": 7, "name": None, "time_ns": 9, "share": 12345.678, "rate": 4.0},
        ],
        "notes": ["rank 5: <b>no</b> \x07report"],
        "clocks": [{"host": "a", "drift_ppm": 0.5}],
    }
    envelope = json.loads(to_json("gaps", Answer(TABLE.slice(0, 0), COLUMNS), TABLE.slice(0, 0), FACTS))
    assert (envelope["rows"], envelope["notes"]) == ([], [])


@pytest.mark.parametrize("form", ["csv", "json", "md"])
def test_a_name_writes_nothing_to_a_terminal(form, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    write_answer("v", ANSWER, FACTS, arguments(format=form))
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.split("\n"))
    assert "\\x1b[31m\\u202e" in shown.replace("\\\\", "\\").replace("\\u001b", "\\x1b").replace("\\[", "[")


def test_markdown_and_tables_show_text_as_text():
    assert to_markdown(ANSWER, TABLE.slice(0, 7)).splitlines() == [
        "| rank | name | time\\_ns | share | rate |",
        "|---:|---|---:|---:|---:|",
        "| 0 | plain | 0 | 0.5 | 0.2 |",
        '| 1 | a "quoted", name | 1234567 | nan | 2.0 |',
        "| 2 | two\\\\nlines\\\\r |  |  |  |",
        "| 3 | \\\\x1b\\[31m\\\\u202e | -5 | inf | 100.0 |",
        f"| 4 | naïve 核 | 4611686018427387904 | 1e-09 | {format(1e300, '.1f')} |",
        "| 5 | &lt;img src=x onerror=alert(1)&gt; | 7 | 100.0 | -0.0 |",
        "| 6 | a\\|b\\*c | 8 | 2.0 | 3.0 |",
        "",
        "- rank 5: &lt;b&gt;no&lt;/b&gt; \\\\x07report",
    ]
    rows = TABLE.select(["rank", "name", "time_ns", "share"]).slice(0, 4)
    assert to_text(ANSWER, rows, cut=3).splitlines() == [
        "rank  name                time_ns  share",
        "----  ----------------  ---------  -----",
        "   0  plain                     0    0.5",
        '   1  a "quoted", name  1,234,567    nan',
        "   2  two\\nlines\\r",
        "   3  \\x1b[31m\\u202e           -5    inf",
        "",
        "clocks:",
        "host  drift_ppm",
        "----  ---------",
        "a           0.5",
        "... 3 more rows; --limit shows more or fewer",
        "",
        "note: rank 5: <b>no</b> \\x07report",
    ]
    table = pa.table({"name": ["a" * 60], "time_ns": [123456789]})
    row = to_text(Answer(table, ()), table, form=TableForm(40)).splitlines()[2]
    assert row == "a" * 17 + "…" + "a" * 9 + "  123,456,789"
    assert len(row) == 40


def test_what_sql_can_give_has_a_form_in_every_format():
    table = pa.table(
        {
            "sum": pa.array([Decimal(3), None], pa.decimal128(38, 0)),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "bytes": pa.array([b"\xff\x00", None]),
            "list": pa.array([[1, None], None], pa.list_(pa.int64())),
            "struct": pa.array([{"a": "x"}, None], pa.struct([("a", pa.string())])),
            "nothing": pa.nulls(2),
            "flag": pa.array([True, None]),
            "day": pa.array([0, None], pa.date32()),
            "wait": pa.array([(0, 1, 0), None], pa.month_day_nano_interval()),
        }
    )
    answer = Answer(table, tuple(Column(n, "any", None, "") for n in table.column_names))
    first, second = json.loads(to_json("sql", answer, table, FACTS))["rows"]
    assert first | {"wait": None} == {
        "sum": 3, "price": 1.5, "bytes": "ff00", "list": [1, None], "struct": {"a": "x"}, "nothing": None, "flag": True,
        "day": "1970-01-01", "wait": None,
    }  # fmt: skip
    assert set(second.values()) == {None}
    cells = list(csv.reader(io.StringIO(to_csv(table))))
    assert cells[1][:8] == ["3", "1.50", "ff00", "1, ", '{"a": "x"}', "", "true", "1970-01-01"]
    assert cells[2] == [""] * 9
    assert to_text(answer, table).splitlines()[2].split()[:3] == ["3", "1.50", "ff00"]
    assert '{"a": "x"}' in to_markdown(answer, table)


def test_a_file_holds_what_standard_output_would(tmp_path, capsys):
    for form, text in (
        ("json", to_json("v", ANSWER, TABLE, FACTS)),
        ("csv", to_csv(TABLE)),
        ("md", to_markdown(ANSWER, TABLE)),
    ):
        write_answer("v", ANSWER, FACTS, arguments(format=form))
        assert capsys.readouterr().out == text
        write_answer("v", ANSWER, FACTS, arguments(format=form, output=tmp_path / f"a.{form}"))
        assert (tmp_path / f"a.{form}").read_bytes() == text.encode()
        assert capsys.readouterr().out == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.json", "a.md"]


def test_parquet_has_the_table_and_notes_go_to_standard_error(tmp_path, capsys):
    write_answer("v", ANSWER, FACTS, arguments(format="parquet", output=tmp_path / "a.parquet", limit=3))
    assert pq.read_table(tmp_path / "a.parquet").schema.equals(TABLE.schema)
    assert pq.read_table(tmp_path / "a.parquet").drop_columns("share").equals(TABLE.slice(0, 3).drop_columns("share"))
    assert capsys.readouterr() == ("", "alltrace: rank 5: <b>no</b> \\x07report\n")


def test_the_first_rows_alone(capsys):
    write_answer("v", ANSWER, FACTS, arguments(format="csv", limit=1))
    assert capsys.readouterr().out == "rank,name,time_ns,share,rate\n0,plain,0,0.5,0.2\n"
    write_answer("v", ANSWER, FACTS, arguments(limit=0))
    assert "... 8 more rows" in capsys.readouterr().out


def test_a_limit_cuts_no_picture(tmp_path, capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "alltrace.cli.output.write_picture", lambda _verb, answer, _path: drawn.append(answer.table.num_rows)
    )
    answer = ANSWER._replace(chart=Chart("bars", "rank", ("time_ns",)))
    write_answer("v", answer, FACTS, arguments(format="csv", limit=1, picture=tmp_path / "p.svg"))
    assert drawn == [ANSWER.table.num_rows]
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("output", [".", "/", "..", ""])
def test_an_output_that_is_no_file_is_refused(output):
    with pytest.raises(UsageError, match="expected the name of a file"):
        check_output(arguments(output=Path(output)))


def test_a_folder_that_is_not_there_cannot_be_written_to(tmp_path):
    for form in ("csv", "parquet"):
        with pytest.raises(InputError, match="it cannot be written"):
            write_answer("v", ANSWER, FACTS, arguments(format=form, output=tmp_path / "none" / "a"))


def test_the_target_of_a_link_is_replaced_and_not_the_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "target").write_text("old")
    write_answer("v", ANSWER, FACTS, arguments(format="csv", output=tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text().startswith("rank,name")


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_answer("v", ANSWER, FACTS, arguments(format="csv", output=pipe))
    reader.join(10)
    assert read == [to_csv(TABLE).encode()]
    assert pipe.is_fifo()


def test_a_pipe_without_a_name_of_its_own_is_written_to():
    read, write = os.pipe()
    write_answer("v", ANSWER, FACTS, arguments(format="csv", output=Path(f"/dev/fd/{write}")))
    os.close(write)
    with os.fdopen(read, "rb") as file:
        assert file.read() == to_csv(TABLE).encode()


def test_a_link_to_itself_is_replaced(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    write_answer("v", ANSWER, FACTS, arguments(format="csv", output=tmp_path / "loop"))
    assert (tmp_path / "loop").read_bytes() == to_csv(TABLE).encode()


def test_a_name_that_is_no_unicode_is_escaped(tmp_path, capsys):
    answer = Answer(TABLE.slice(0, 1), COLUMNS, (os.fsdecode(b"bad-\xff: no report"),))
    write_answer("v", answer, FACTS, arguments(format="json", output=tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text())["notes"] == ["bad-\udcff: no report"]


def test_parquet_has_dictionaries_of_words_and_none_of_what_differs(tmp_path):
    count = 10_000
    table = pa.table(
        {
            "word": ["compute", "copy"] * (count // 2),
            "text": [f"range {n}" for n in range(count)],
            "time_ns": range(count),
        }
    )
    columns = tuple(Column(n, "any", None, "") for n in table.column_names)
    write_answer("durations", Answer(table, columns), FACTS, arguments(format="parquet", output=tmp_path / "a.parquet"))
    assert pq.read_table(tmp_path / "a.parquet").equals(table)
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    coded = {group.column(i).path_in_schema: group.column(i).has_dictionary_page for i in range(3)}
    assert coded == {"word": True, "text": False, "time_ns": False}


def streamed(answer, rows=3, made=None):
    """The same answer with all of its tables as streams of some rows at a time; `made` gets each piece as it is
    made."""

    def pieces(table):
        for first in range(0, table.num_rows, rows):
            if made is not None:
                made.append(first)
            yield table.slice(first, rows)

    further = {
        n: AnswerTable(t.table.slice(0, 0), t.columns, RowStream(pieces(t.table), t.table))
        for n, t in answer.further.items()
    }
    return answer._replace(
        table=TABLE.slice(0, 0), stream=RowStream(pieces(answer.table), answer.table), further=further
    )


@pytest.mark.parametrize("form", ["table", "csv", "json", "md"])
@pytest.mark.parametrize("limit", [None, 0, 2, 3, 100])
def test_rows_that_are_still_made_are_written_as_those_of_a_table(form, limit, capsys):
    further = {name: AnswerTable(table, COLUMNS) for name, table in (("more", TABLE), ("none", TABLE.slice(0, 0)))}
    for answer in (ANSWER, ANSWER._replace(further=further), Answer(TABLE.slice(0, 0), COLUMNS)):
        write_answer("v", answer, FACTS, arguments(format=form, limit=limit))
        wanted = capsys.readouterr()
        write_answer("v", streamed(answer), FACTS, arguments(format=form, limit=limit))
        assert capsys.readouterr() == wanted


def test_rows_are_written_before_the_others_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr("alltrace.cli.output._GROUP_ROWS", 1)
    made = []
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    for form in ("csv", "json", "md"):
        made.clear()
        answer = streamed(ANSWER, made=made)
        text = []
        monkeypatch.setattr(sys.stdout, "write", lambda piece, text=text: text.append((piece, len(made))))
        write_answer("v", answer, FACTS, arguments(format=form))
        assert len(made) == 3
        assert [count for piece, count in text if "plain" in piece] == [1], (
            "the first rows, when one of three pieces was made"
        )
    made.clear()
    answer = streamed(ANSWER, made=made)
    write_answer("v", answer, FACTS, arguments(format="csv", limit=2))
    assert len(made) == 1, "nothing is made that is not shown"
    save_tables("v", streamed(ANSWER), FACTS, {"parquet": tmp_path / "a.parquet"})
    assert pq.ParquetFile(tmp_path / "a.parquet").metadata.num_row_groups == 3


def test_several_forms_are_written_at_once(tmp_path):
    files = {kind: tmp_path / f"a.{kind}" for kind in ("parquet", "csv", "json", "md")}
    assert save_tables("v", streamed(ANSWER), FACTS, files) == TABLE.num_rows
    assert files["csv"].read_bytes() == to_csv(TABLE).encode()
    assert files["json"].read_bytes() == to_json("v", ANSWER, TABLE, FACTS).encode()
    assert files["md"].read_bytes() == to_markdown(ANSWER, TABLE).encode()
    assert pq.read_table(files["parquet"]).drop_columns("share").equals(TABLE.drop_columns("share"))
    assert save_tables("v", streamed(Answer(TABLE.slice(0, 0), COLUMNS)), FACTS, files) == 0
    assert pq.read_table(files["parquet"]).num_rows == 0


@pytest.mark.parametrize("when", [0, 1])
def test_of_several_files_none_is_left_where_one_fails(tmp_path, when):
    def broken():
        for n in range(2):
            if n == when:
                raise InputError("rank 3", found="its kernels are damaged")
            yield TABLE

    files = {kind: tmp_path / f"a.{kind}" for kind in ("parquet", "csv", "json", "md")}
    with pytest.raises(InputError, match="its kernels are damaged"):
        save_tables("v", ANSWER._replace(stream=RowStream(broken(), TABLE.slice(0, 0))), FACTS, files)
    assert not list(tmp_path.iterdir())


def test_an_error_names_the_file_that_it_is_of(tmp_path):
    with pytest.raises(InputError, match=r"b\.csv: it cannot be written") as error:
        save_tables(
            "v", streamed(ANSWER), FACTS, {"parquet": tmp_path / "a.parquet", "csv": tmp_path / "none" / "b.csv"}
        )
    assert "a.parquet" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_table_of_rows_that_are_still_made_waits_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = []
    text = streamed_text(ANSWER, streamed(ANSWER, 1, made).stream)
    assert next(text).startswith("rank  name")
    assert len(made) == TABLE.num_rows, "how wide columns are is known when all are made"
    assert next(text).count("\n") == 1, "a piece is shown at a time"
    assert "".join(text)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(
        InputError, match=r"none: the rows of the answer cannot be stored there .No such file.*--format csv"
    ):
        list(streamed_text(ANSWER, streamed(ANSWER).stream))


@pytest.mark.parametrize("verb", [["breakdown"], ["recipe", "kernels"], ["stats", "cuda_gpu_kern_sum"]])
def test_a_dash_is_standard_output(alltrace, run, verb):
    done = alltrace(*verb, run, "-o", "-", "--format", "json")
    assert done.code == 0
    assert json.loads(done.out) == json.loads(alltrace(*verb, run, "--format", "json").out)
    assert not Path("-").exists()


def test_a_report_as_text_goes_to_standard_output(alltrace, run):
    done = alltrace("report", run, "-o", "-", "--format", "md")
    assert (done.code, done.out[:1]) == (0, "#")


@pytest.mark.parametrize(
    "command",
    [
        ["export", "chrome", "RUN", "-o", "-"],
        ["import", "RUN", "-o", "-"],
        ["notebook", "RUN", "-o", "-"],
        ["recipe", "all", "RUN", "-o", "-"],
        ["report", "RUN", "-o", "-"],
        ["breakdown", "RUN", "-o", "-", "--format", "parquet"],
        ["synth", "--ideal", "tiny", "-o", "-"],
    ],
)
def test_what_is_no_text_is_refused(alltrace, run, command):
    done = alltrace(*[run if word == "RUN" else word for word in command])
    assert done.code == 2
    assert "-o" in done.err
    assert not Path("-").exists()


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


def test_pictures_that_cannot_be_written_or_do_not_exist(alltrace, run, tmp_path):
    done = alltrace("overlap", run, "--picture", tmp_path / "no folder" / "o.png")
    assert done.code == 3
    assert "cannot be written" in done.err
    assert "Traceback" not in done.err
    done = alltrace("sql", run, "select 1 as one", "--picture", tmp_path / "2" / "s.png")
    assert done.code == 2
    assert "sql has no chart" in done.err
