"""Dumps of the flight recorder, pickles with code in them."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.thorough import cases
from tests.together import together

from alltrace.readers.flight_recorder.read import read_recording
from alltrace.readers.plain_pickle import PickleRefusedError, decode, decode_first
from alltrace.recipes.logs.flight_recorder import answer
from alltrace.trace.errors import InputError

PLAIN = {
    "a": [1, -1, 255, 256, 70000, 1 << 40, -(1 << 70), 1.5, None, True, False],
    "b": ("x", "é" * 300, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "c": {1: {"x": [[]]}, "shared": ["s"] * 3},
    "long": list(range(3000)),
}


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/never",)


def dump(entries, version="2.10", groups=None):
    return {
        "version": version,
        "pg_config": groups or {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "entries": entries,
    }


def entry(sequence, op="nccl:all_reduce", state="completed", **more):
    return {
        "record_id": sequence,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "profiling_name": op,
        "time_created_ns": 1_700_000_000_000_000_000 + sequence,
        "input_sizes": [[2, 3]],
        "input_dtypes": ["Float"],
        "output_sizes": [[2, 3]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "is_p2p": False,
        "frames": [{"name": "step", "filename": "train.py", "line": 7}],
        **more,
    }


@together("protocol", range(6))
def test_plain_data_of_every_protocol(protocol):
    assert decode(pickle.dumps(PLAIN, protocol)) == PLAIN


@together("protocol", range(6))
@together("value", [Evil(), dt.date(2020, 1, 1), {1, 2}, os.getcwd, b"x", complex(1, 2)])
def test_anything_else_is_refused(protocol, value):
    with pytest.raises(PickleRefusedError, match="instruction"):
        decode(pickle.dumps({"entries": [value]}, protocol))
    assert not Path("/tmp/never").exists()


@pytest.mark.slow
def test_damaged_pickles_are_refused_in_a_sentence():
    data = pickle.dumps(PLAIN)
    rng = random.Random(0)
    for cut in range(0, len(data) - 1, 7):
        with pytest.raises(PickleRefusedError):
            decode(data[:cut])
    for _ in range(cases(500, 3000)):
        broken = bytearray(data)
        for _n in range(3):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            decode(bytes(broken))
        except PickleRefusedError:
            continue


@together("protocol", range(6))
@together("behind", [b"\0\0", b"\n", b"", pickle.dumps(1), b"x"])
def test_what_follows_a_pickle_is_not_passed_over(protocol, behind):
    pickled = pickle.dumps(PLAIN, protocol)
    assert decode_first(pickled + behind) == (PLAIN, len(pickled))
    if behind.strip(b"\0\n"):
        with pytest.raises(PickleRefusedError, match=f"^more follows the end of its pickle at byte {len(pickled)}$"):
            decode(pickled + behind)
    else:
        assert decode(pickled + behind) == PLAIN


@pytest.mark.parametrize(
    "write", [pickle.dumps, lambda content: json.dumps(content).encode() + b"\n"], ids=["pickle", "json"]
)
def test_a_second_dump_in_a_file_is_said(tmp_path, write):
    path = tmp_path / "nccl_trace_rank_3"
    path.write_bytes(write(dump([entry(1), entry(2)])) + write(dump([entry(9)])))
    recording = read_recording(str(path))
    assert ([e.sequence for e in recording.entries], recording.damage) == ([1, 2], None)
    note = f"{path}: the file goes on after the end of its first dump; what follows is not read"
    assert note in answer([recording], "hangs").notes
    path.write_bytes(write(dump([entry(1), entry(2)])) + b"\0\0\n")
    assert read_recording(str(path)).goes_on is None


def test_a_self_containing_list_ends():
    data = b"\x80\x02]q\x00h\x00a."
    value = decode(data)
    assert value[0] is value


def test_a_key_of_nested_tuples_does_not_end_the_process():
    """Python hashes them level by level without looking how deep, until the stack is full."""
    code = "from alltrace.readers.plain_pickle import decode\n"
    code += r"decode(b'\x80\x02})' + b'\x85' * 300_000 + b'K\x01s.')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "PickleRefusedError: it has a dict whose keys are neither texts nor numbers" in done.stderr


def nested(levels):
    """A list in which lists are ten times each, level by level: a small pickle, and no end as text."""
    value = ["x"]
    for _ in range(levels):
        value = [value] * 10
    return value


ODD = [
    10**30,
    float("inf"),
    float("nan"),
    -(2**63),
    True,
    [[[]]],
    {"a": 1},
    nested(30),
    "x",
    "nccl:send 1->" + "9" * 30,
]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_odd_values_are_entries_not_understood_or_left_out(tmp_path, value):
    path = tmp_path / "nccl_trace_rank_3"
    for key in ("version", "rank", "pg_config"):
        path.write_bytes(pickle.dumps({**dump([entry(1)]), key: value}))
        assert read_recording(str(path)).ranks == (3,)
    for key in ("name", "desc", "ranks"):
        path.write_bytes(
            pickle.dumps(dump([entry(1)], groups={"0": {"name": "0", "desc": "x", "ranks": [0], key: value}}))
        )
        assert len(read_recording(str(path)).entries) == 1
    for key in entry(1):
        path.write_bytes(pickle.dumps(dump([entry(1), entry(2, duration_ms=1.0, **{key: value})])))
        found = read_recording(str(path))
        assert len(found.entries) + found.unread == 2
        answers = [answer([found], view).table for view in ("entries", "hangs", "times")]
        assert answers[0].num_rows == len(found.entries)


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_dumps(tmp_path, form):
    path = tmp_path / "nccl_trace_rank_3"
    root = dump(
        [entry(1), entry(2, state="started"), entry(3, op="nccl:send 3->1", is_p2p=True, p2p_seq_id=5), "nonsense"]
    )
    path.write_bytes(pickle.dumps(root) if form == "pickle" else json.dumps(root).encode())
    found = read_recording(str(path))
    assert (found.ranks, found.groups, found.unread, found.version) == ((3,), {"0": (0, 1)}, 1, "2.10")
    assert [(e.sequence, e.op, e.state, e.bytes, e.peer) for e in found.entries] == [
        (1, "all_reduce", "completed", 24, None),
        (2, "all_reduce", "started", 24, None),
        (5, "send", "completed", 24, 1),
    ]
    assert found.entries[0].frame == "train.py:7 step"


def test_a_pickle_with_code_is_refused_by_name(tmp_path):
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match=r"nccl_trace_rank_0: it has the instruction .*nothing in it was executed"):
        read_recording(str(path))


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "x"
    for data in (b"hello", pickle.dumps([1]), b"{}", b'{"a": {', b""):
        path.write_bytes(data)
        with pytest.raises(InputError):
            read_recording(str(path))


def test_files_of_inspector_are_sent_to_their_own_question(tmp_path):
    path = tmp_path / "h-pid1.log"
    path.write_text(json.dumps({"header": {"id": "0x9f"}, "coll_perf": {"coll": "AllReduce"}}) + "\n" + "{")
    with pytest.raises(InputError, match=r"it is an NCCL Inspector file.*logs inspector"):
        read_recording(str(path))


@pytest.mark.parametrize("form", [2, 4, "json", "indented"])
def test_a_dump_that_ends_early_holds_the_operations_before_its_end(tmp_path, form):
    """Wherever it is cut: the operations that are read are the first ones, unchanged, and more of them the later the
    cut."""
    content = dump([entry(n, op=f"nccl:all_{n}") for n in range(1, 8)])
    text = isinstance(form, str)
    data = (
        json.dumps(content, indent=2 if form == "indented" else None).encode() if text else pickle.dumps(content, form)
    )
    path = tmp_path / "nccl_trace_rank_1"
    path.write_bytes(data)
    whole = read_recording(str(path)).entries
    most = 0
    for size in range(0, len(data) - 1, 9):
        path.write_bytes(data[:size])
        try:
            recording = read_recording(str(path))
        except InputError:
            assert most == 0, size
            continue
        assert "ends early" in recording.damage
        assert recording.entries == whole[: len(recording.entries)]
        assert len(recording.entries) >= most
        most = len(recording.entries)
    assert most >= 6


@pytest.mark.parametrize(("content", "found"), [(b"", "it is empty"), (b"\0" * 64, "it holds only zeros")])
def test_a_dump_without_content(tmp_path, content, found):
    path = tmp_path / "nccl_trace_rank_1"
    path.write_bytes(content)
    with pytest.raises(InputError, match=found):
        read_recording(str(path))
