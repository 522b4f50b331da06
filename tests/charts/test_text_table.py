import re
from types import SimpleNamespace

import pyarrow as pa
import pytest
from tests.cli.widths import heads, lacking
from tests.recorded.asking import opened

from alltrace.api import OpenRun
from alltrace.charts.text_table import TableForm, streamed_text, to_text
from alltrace.recipes.base import Answer
from alltrace.recipes.row_stream import RowStream
from alltrace.run.manifest import Device
from alltrace.run.members import gpu_names
from alltrace.trace.columns import Column, by_importance

KERNELS = [f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x{n}x64_execute_kernel__5x_cublas" for n in (64, 128)]
TABLE = pa.table(
    {
        "name": KERNELS,
        "ranks": pa.array([[0, 1, 2, 3], [5]], pa.list_(pa.int32())),
        "hosts": pa.nulls(2, pa.string()),
        "start_ns": [1_234_567_890, 0],
        "lost_ns": [12_412_345, None],
        "lost_ns_per_step": [1_773_192, 46],
        "bytes": [3_200_000_000, 1],
        "share": [0.5, 0.25],
    }
)


def text(width=0, *, units=True):
    return to_text(Answer(TABLE, ()), TABLE, form=TableForm(width, units)).splitlines()


def below(lines):
    """The lines below the rule."""
    return lines[next(n for n, line in enumerate(lines) if line.startswith("-") and not set(line) - {"-", " "}) + 1 :]


def test_numbers_of_a_column_have_one_unit_and_the_same_decimals():
    head, units, _, first, second, *left_out = text()
    assert head.split() == ["name", "ranks", "start", "lost", "lost_per_step", "bytes", "share"]
    assert units.split() == ["s", "ms", "µs", "MB"]
    assert first.split()[1:] == "0-3 1.234568 12.41 1,773.192 3,200.000 0.5000".split()
    assert second.split()[1:] == "5 0.000000 0.046 <0.001 0.2500".split()
    assert {line.index(".", line.index("  ")) for line in (first, second)} == {first.index(".", first.index("  "))}
    assert left_out == ["", "not shown: hosts; --wide shows all"]


@pytest.mark.parametrize(
    ("values", "unit", "cells"),
    [
        ([12_456_400_000, 12_456_500_000], "s", ["12.46", "12.46"]),
        ([1_189_100_000, 365_900_000], "s", ["1.189", "0.366"]),
        ([3_000_000_000, 2_000], "ms", ["3,000.000", "0.002"]),
        ([950, 3], "ns", ["950", "3"]),
        ([-5_000_000, 2_500_000], "ms", ["-5.000", "2.500"]),
        ([0, 9_999_600], "ms", ["0.000", "10.000"]),
    ],
)
def test_four_digits_count(values, unit, cells):
    table = pa.table({"name": ["a", "b"], "lost_ns": values})
    _, units, _, *rows = to_text(Answer(table, ()), table, form=TableForm(80, units=True)).splitlines()
    assert units.strip() == unit
    assert [row.split()[1] for row in rows] == cells


def test_a_column_that_is_all_zero_is_not_shown_unless_it_is_the_answer():
    table = pa.table(
        {
            "rank": [0, 0],
            "exposed_ns": [0, 0],
            "copy_ns": [0, 0],
            "share": [0.0, 0.0],
            "at_step": [0, 0],
            "count": [1, 0],
        }
    )
    columns = by_importance(
        tuple(Column(name, "int64", None, "") for name in table.column_names), ("rank", "exposed_ns")
    )
    lines = to_text(Answer(table, columns), table, form=TableForm(80, units=True)).splitlines()
    assert [head.removesuffix("ns") for head in heads("\n".join(lines))] == ["rank", "exposed", "at_step", "count"]
    assert lines[-1] == "not shown: copy_ns, share; --wide shows all"
    whole = to_text(Answer(table, columns), table, form=TableForm(0, units=True, whole=True))
    assert len(heads(whole)) == 6
    assert "not shown" not in whole


@pytest.mark.parametrize("width", [40, 60])
def test_the_more_important_columns_stay(width):
    names = ("rank", "host", "span_ns", "busy_percent", "idle_percent", "answer_percent")
    table = pa.table({name: [12.5, 10.0] for name in names})
    columns = by_importance(
        tuple(Column(name, "float64", None, "") for name in names), ("rank", "answer_percent", "host", "idle_percent")
    )
    shown = heads(to_text(Answer(table, columns), table, form=TableForm(width, units=True)))
    assert {"rank", "answer_percent", "host"} <= set(shown)
    assert ("idle_percent" in shown) or "busy_percent" not in shown


def test_devices_have_short_names_and_other_texts_are_as_they_are():
    table = pa.table({"gpu": ["GPU-8f", "unknown"], "name": ["GPU-8f", "b"]})
    text = to_text(Answer(table, ()), table, form=TableForm(80, units=True, gpus={"GPU-8f": "GPU 3"}))
    assert [line.split("  ")[0] for line in text.splitlines()[2:]] == ["GPU 3", "unknown"]
    assert "GPU-8f" in text


def test_plain_numbers_are_as_they_were():
    head, _, first, _ = text(units=False)
    assert "lost_ns_per_step" in head
    assert "1,234,567,890  12,412,345" in first


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_columns_are_dropped_before_names_cannot_be_told_apart(width):
    lines = text(width)
    assert max(map(len, lines)) <= width
    shown = [head.removesuffix("µs") for head in heads("\n".join(lines))]
    first, second, *rest = below(lines)
    assert first.split()[0] != second.split()[0]
    left_out = " ".join(rest)
    assert "not shown: " in left_out
    assert "hosts" in left_out, "a column without a value goes first"
    for name, read in (
        ("ranks", "ranks"),
        ("start_ns", "start"),
        ("lost_ns", "lost"),
        ("bytes", "bytes"),
        ("share", "share"),
    ):
        assert any(re.fullmatch(rf"{read}(s|ms|MB)?", head) for head in shown) != bool(
            re.search(rf"\b{name}\b", left_out)
        ), "each column is shown or named"


def test_names_are_folded_where_a_table_is_too_wide():
    table = pa.table({"rank": [1], "exposed_communication_percent": [12.5], "of_all": [10], "count": [3]})
    wide, narrow = (to_text(Answer(table, ()), table, form=TableForm(w)).splitlines() for w in (80, 40))
    assert wide[0].split() == table.column_names
    assert narrow[:3] == ["            exposed_", "      communication_  of_", "rank         percent  all  count"]
    assert heads("\n".join(narrow)) == table.column_names
    assert "\n".join(text(200)).endswith("not shown: hosts; --wide shows all")
    assert KERNELS[0] in "\n".join(text(250))


@pytest.mark.parametrize("width", [0, 60, 200])
def test_rows_that_are_still_made_look_the_same(width):
    stream = RowStream((t for t in (TABLE, TABLE.slice(2))), TABLE.schema.empty_table())
    form = TableForm(width, units=True)
    lines = "".join(streamed_text(Answer(TABLE.slice(0, 0), ()), stream, form)).splitlines()
    expected = text(width)
    first = next(n for n, line in enumerate(expected) if line.startswith("-")) + 1
    names = slice(first, first + 2)  # of rows that come one after the other, names are cut alike
    lines[names] = [line[34:] for line in lines[names]]
    expected[names] = [line[34:] for line in expected[names]]
    assert lines == expected


def test_a_stream_of_rows_has_one_unit_and_its_first_column():
    pieces = [pa.table({"lost_ns": [5_000_000]}), pa.table({"lost_ns": [12, -7_000_000_000]})]
    stream = RowStream(iter(pieces), pieces[0].schema.empty_table())
    text = "".join(streamed_text(Answer(pieces[0].slice(0, 0), ()), stream, TableForm(80, units=True)))
    assert text.split() == ["lost", "ms", "----------", "5.000", "<0.001", "-7,000.000"]
    table = pa.table({"total_ns": [1], "name": ["x" * 90], "other": ["y" * 90]})
    lines = to_text(Answer(table, ()), table, form=TableForm(30)).splitlines()
    assert heads("\n".join(lines))[0] == "total_ns"
    assert max(map(len, lines)) <= 30


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        (
            [("n1", 0, "u0", "01"), ("n1", 1, "u1", "02"), ("n2", 0, "u2", "01")],
            {"u0": "GPU 0", "u1": "GPU 1", "u2": "GPU 0"},
        ),
        ([("n1", 0, "u0", "02"), ("n1", 0, "u1", "01")], {"u0": "GPU 1", "u1": "GPU 0"}),
        ([("n1", 0, "u0", None), ("n1", 0, "u1", "01")], {}),
        ([("n1", 0, None, "01"), ("n2", 3, None, "01")], {}),
    ],
)
def test_a_device_is_called_by_its_number_on_its_host(devices, names):
    made = [Device(0, ordinal, uuid, bus_id, "H100", host) for host, ordinal, uuid, bus_id in devices]
    ranks = [SimpleNamespace(devices=[device]) for device in made]
    assert gpu_names(ranks) == names


@pytest.mark.parametrize(
    "question",
    ["breakdown", "overlap", "kernels", "steps", "stragglers", "stats:cuda_gpu_kern_sum", "cuda_gpu_kern_sum"],
)
def test_what_a_row_is_about_and_the_answer_are_on_every_terminal(made_once, question):
    run = OpenRun(made_once("recorded-ddp-slow-rank", lambda folder: opened("ddp-slow-rank", folder)) / "ddp-slow-rank")
    answers = list(lacking(run, question))
    assert [missing for _, missing in answers] == [[]] * 4
