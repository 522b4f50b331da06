"""Lines of the source, the PTX and the machine code, from instructions made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ncu_launches import measured, of

from alltrace.recipes.ncu import source
from alltrace.trace.kernel_code import Instruction, Listing, Place

STALL = "smsp__pcsamp_warps_issue_stalled_"


def samples(wait, selected=0, idle=0, **others):
    return {f"{STALL}wait": wait, f"{STALL}selected": selected, f"{STALL}wait_not_issued": idle, **others}


def instruction(offset, line, ptx_line, values=None, file="/src/a.cu"):
    text = f"OP{offset}"
    return Instruction(
        "f", offset, 0x1000 + offset, text, line and Place(file, line), Place("ptx", ptx_line), values or {}
    )


MEMORY = {
    "memory_l2_theoretical_sectors_global": 64.0,
    "memory_l2_theoretical_sectors_global_ideal": 32,
    "memory_l1_wavefronts_shared_ideal": 8,
    "thread_inst_executed_true": 96,
}
INSTRUCTIONS = [
    instruction(0, 7, 2, samples(30, 10, 5, inst_executed=100, thread_inst_executed=3200)),
    instruction(16, 5, 2, samples(0, 20, inst_executed=10)),
    instruction(32, 7, 1, {**samples(20), f"{STALL}barrier": 20, **MEMORY}),
    instruction(48, None, 4),
]
LISTING = Listing(INSTRUCTIONS, {"/src/a.cu": [f"line {n}" for n in range(1, 8)]}, {"ptx": ["// 1", "mov", "// 3"]})


def asked(listing=LISTING, **options):
    return source.answer([replace(each, listing=listing) for each in of(measured())], (), **options)


def test_lines_of_the_source_have_the_sums_of_their_instructions():
    found = asked()
    rows = found.table.to_pylist()
    assert [(r["file"], r["line"], r["text"], r["instructions"]) for r in rows] == [
        ("/src/a.cu", 5, "line 5", 1), ("/src/a.cu", 7, "line 7", 2), (None, None, None, 1)
    ]  # fmt: skip
    fifth, seventh, rest = rows
    assert (seventh["samples"], seventh["samples_not_issued"], seventh["share_percent"]) == (80, 5, 80.0)
    assert (seventh["top_stall"], seventh["top_stall_percent"]) == ("wait", 62.5)
    assert (fifth["samples"], fifth["top_stall"]) == (20, None)
    assert (seventh["executed"], seventh["threads_executed"], seventh["global_sectors"],
        seventh["shared_wavefronts"]) == (
        100, 3200, 64, None
    )  # fmt: skip
    assert (seventh["threads_predicated_on"], seventh["global_sectors_ideal"], seventh["shared_wavefronts_ideal"]) == (
        96,
        32,
        8,
    )
    assert (rest["samples"], rest["share_percent"], rest["executed"]) == (None, None, None)
    assert found.notes == ()


def test_states_of_lines_are_a_table_of_their_own():
    rows = asked().further["stalls"].table.to_pylist()
    assert [(r["line"], r["state"], r["samples"], r["samples_not_issued"]) for r in rows] == [
        (5, "selected", 20, 0), (7, "wait", 50, 5), (7, "barrier", 20, 0), (7, "selected", 10, 0)
    ]  # fmt: skip
    assert rows[1]["meaning"] == "a fixed latency of the previous instruction"


def test_lines_of_ptx_and_instructions():
    ptx = asked(lines="ptx").table.to_pylist()
    assert [(r["file"], r["line"], r["text"], r["samples"]) for r in ptx] == [
        ("ptx", 1, "// 1", 40), ("ptx", 2, "mov", 60), ("ptx", 4, None, None)
    ]  # fmt: skip
    sass = asked(lines="sass").table.to_pylist()
    assert [(r["address"], r["text"], r["line"], r["samples"]) for r in sass] == [
        ("0x1000", "OP0", 7, 40), ("0x1010", "OP16", 5, 20), ("0x1020", "OP32", 7, 40), ("0x1030", "OP48", None, None)
    ]  # fmt: skip
    assert len({r["address"] for r in asked(lines="sass").further["stalls"].table.to_pylist()}) == 3


def test_every_way_to_count_gives_the_same_sums():
    totals = [
        [
            sum(r[c] or 0 for r in asked(lines=lines).table.to_pylist())
            for c in ("samples", "samples_not_issued", "executed")
        ]
        for lines in ("source", "ptx", "sass")
    ]
    assert totals == [[100, 5, 110]] * 3


def test_without_lines_there_are_instructions():
    bare = Listing([replace(i, source=None, ptx=None, address=None) for i in INSTRUCTIONS], {}, {})
    rows = asked(bare).table.to_pylist()
    assert [r["address"] for r in rows] == ["f+0x0", "f+0x10", "f+0x20", "f+0x30"]
    assert "1 of 1 launches have no lines of the source in their report" in asked(bare, lines="source").notes[0]
    empty = asked(Listing([replace(i, values={}) for i in INSTRUCTIONS], {}, {}, "the code is damaged"))
    assert "a.ncu-rep: the code is damaged" in empty.notes
    assert "no samples by line" in empty.notes[-1]


def test_the_total_alone_where_there_are_no_states():
    only = Listing([replace(INSTRUCTIONS[0], values={"smsp__pcsamp_sample_count": 8})], {}, {})
    (row,) = asked(only).table.to_pylist()
    assert (row["samples"], row["samples_not_issued"], row["top_stall"]) == (8, None, None)


def test_source_files_that_the_report_lacks_are_asked_for():
    wanted = []

    def text_of(path):
        wanted.append(path)
        return ["one"] * 6 if path == "/src/a.cu" else None

    rows = asked(replace(LISTING, sources={}), text_of=text_of).table.to_pylist()
    assert [r["text"] for r in rows] == ["one", None, None]
    assert set(wanted) == {"/src/a.cu"}


def test_a_launch_without_code_has_no_rows_and_a_note():
    found = source.answer(of(measured()), ())
    assert found.table.num_rows == 0
    assert found.notes == ("1 of 1 launches have no code in their report; a printed page has none",)
    with pytest.raises(KeyError):
        found.further["lines"]
