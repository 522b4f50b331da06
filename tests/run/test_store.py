"""A run, opened: tables with nulls and clocks, by Arrow and by SQL; damage is a sentence."""

from __future__ import annotations

import json
import pickle
import shutil
import tracemalloc
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from tests.making import kernel, make_run

from alltrace.align.store import aligned
from alltrace.recipes.questions.sql import query
from alltrace.run.json_files import read_json, write_json
from alltrace.run.manifest import (
    MANIFEST,
    Clock,
    Manifest,
    RankRecord,
    ReportRecord,
    is_run,
    plain,
    rank_from_json,
    read_manifest,
    write_manifest,
)
from alltrace.run.names import Names, _distinct
from alltrace.run.store import PartialRun, Run, SentRun
from alltrace.trace.errors import DamageError, InputError, UsageError
from alltrace.trace.names import name_id
from alltrace.trace.schema import EVENT_TABLES, TABLES


def test_tables_by_arrow_and_by_sql_are_equal(tiny_run, tmp_path):
    """Times too, with clocks that are off and drift: both hosts' events move by the same map in both ways."""
    shutil.copytree(tiny_run, tmp_path / "run")
    manifest = read_manifest(tiny_run)
    clocks = (manifest.clocks[0], manifest.clocks[1]._replace(offset_ns=-123_456_789, drift_ppm=17.25))
    write_manifest(tmp_path / "run", replace(manifest, clocks=clocks))
    run, plain = Run(tmp_path / "run"), Run(tiny_run)
    names = dict(run.table("names").fetchall())
    for table in (t for t in EVENT_TABLES if run.ranks[1].rows.get(t)):
        rank = run.rank(1).table(table)
        named = set(TABLES[table].name_columns())
        expected = [tuple(names.get(v) if c in named else v for c, v in row.items()) for row in rank.to_pylist()]
        of_run = run.table(table, ranks=[1])
        stored = [c for c in of_run.columns[2:] if c != "duration"]
        rows = of_run.select(*(f'"{c}"' for c in stored)).fetchall()
        assert sorted(rows, key=repr) == sorted(expected, key=repr)
    session, plain_session = run.in_session_time(), plain.in_session_time()
    before, after = (r.rank(1).table("kernels").column("start").to_pylist() for r in (plain_session, session))
    assert before != after
    shifted = [t + 123_456_789 for t in before]
    assert after == [t - round(t * 17.25e-6) for t in shifted]
    assert session.rank(0).table("kernels").equals(plain_session.rank(0).table("kernels"))
    for opened in (run, session):
        found = opened.connect().execute("SELECT start_ns, end_ns FROM ranks ORDER BY rank").fetchall()
        assert opened.span_ns == (min(s for s, _ in found), max(e for _, e in found))


def test_time_0_is_the_first_event_of_any_rank_and_the_sessions_start_is_kept(tiny_run):
    run = Run(tiny_run)
    session = run.in_session_time()
    zero = session.span_ns[0]
    assert zero != 0
    assert (run.origin_ns, session.origin_ns) == (zero, 0)
    assert run.span_ns == (0, session.span_ns[1] - zero)
    for record in run.ranks:
        for table in (t for t in ("kernels", "api", "ranges") if run.has(record, t)):
            own, told = (r.rank(record.rank).table(table, ["start"]).column(0).to_pylist() for r in (run, session))
            assert own == [t - zero for t in told]
    sent = pickle.loads(pickle.dumps(SentRun(session)))
    assert sent.run.span_ns == session.span_ns


@pytest.mark.slow
def test_tables_that_are_missing_are_empty(tiny_run):
    run = Run(tiny_run)
    for table in TABLES:
        found = run.rank(0).table(table)
        assert found.schema.names == list(TABLES[table].column_names)
        if table in EVENT_TABLES:
            assert found.num_rows == run.ranks[0].rows.get(table, 0)
            assert [c for c in run.table(table).columns if c != "duration"] == [
                "rank",
                "host",
                *TABLES[table].column_names,
            ]
            assert run.table(table).shape[0] == sum(r.rows.get(table, 0) for r in run.ranks)
    assert not run.rank(0).has("mpi")
    assert {r for (r,) in run.table("threads").project("rank").distinct().fetchall()} == {0, 1}
    assert run.table("threads", ranks=[1]).shape[0] == run.rank(1).table("threads").num_rows > 0


def test_columns_that_are_held_are_read_once(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    rank = Run(tmp_path / "run").rank(1)
    expected = rank.table("kernels", ["end", "kind", "start"])
    rank.hold("kernels", ["start", "end", "kind"])
    rank.hold("mpi", ["start"])
    assert rank.file_table("mpi", ["start"]).num_rows == 0
    for file in (tmp_path / "run").rglob("kernels.parquet"):
        file.unlink()
    assert rank.table("kernels", ["end", "kind", "start"]).equals(expected)
    with pytest.raises(InputError, match="cannot be read"):
        rank.file_table("kernels", ["start", "stream"])


def test_some_ranks(tiny_run):
    run = Run(tiny_run)
    assert run.table("kernels", ranks=[1]).project("rank, host").distinct().fetchall() == [(1, "node002")]
    assert run.table("kernels", ranks=[]).fetchall() == []
    for what, found in ((lambda: run.table("kernels", ranks=[0, 5]), "rank 5 is not in the run; it has 0-1"),
                        (lambda: run.table("kernel"), "unknown table 'kernel'; did you mean kernels"),
                        (lambda: run.table("names", ranks=[0]), "names belongs to the whole run")):  # fmt: skip
        with pytest.raises(UsageError, match=found):
            what()


def test_nulls_stay_nulls(tiny_run):
    run = Run(tiny_run)
    kernels = run.rank(0).table("kernels", ["graph_node", "start"])
    assert kernels.column("graph_node").null_count == kernels.num_rows
    assert run.table("kernels", ranks=[0]).project("graph_node").distinct().fetchall() == [(None,)]


def names_file(path, rows):
    pq.write_table(pa.Table.from_pylist(rows, TABLES["names"].arrow_schema()), path)
    return path


@pytest.mark.parametrize(("few", "many"), [(0, 1), (1_000, 1 << 16)])
def test_texts_of_ids(tmp_path, monkeypatch, few, many):
    monkeypatch.setattr("alltrace.run.names._FEW_TEXTS", few)
    monkeypatch.setattr("alltrace.run.names._MANY_ROWS", many)
    rows = [{"id": name_id(t), "value": t} for t in ("b", "", "ü", "a\nb")]
    names = Names(lambda: [names_file(tmp_path / "1", rows[:3]), names_file(tmp_path / "2", rows[1:])])
    ids = pa.chunked_array([[name_id("b"), None, 12345], [name_id("a\nb"), name_id("")]], pa.int64())
    assert names.texts(ids).to_pylist() == ["b", None, None, "a\nb", ""]
    assert names.table().num_rows == 4
    assert names.texts(pa.array([], pa.int64())).to_pylist() == []
    assert Names(list).texts(pa.array([1, None], pa.int64())).to_pylist() == [None, None]


def test_names_of_many_ranks_are_joined_as_they_are_read(tmp_path, monkeypatch):
    """Ranks have the same names, so what is held at once does not grow with them."""
    monkeypatch.setattr("alltrace.run.names._MANY_ROWS", 4)
    rows = [{"id": name_id(t), "value": t} for t in ("a", "b", "c")]
    sizes = []
    monkeypatch.setattr(
        "alltrace.run.names._distinct",
        lambda tables, path: sizes.append(sum(map(len, tables))) or _distinct(tables, path),
    )
    files = [names_file(tmp_path / str(n), rows) for n in range(9)]
    assert Names(lambda: files).table().num_rows == 3
    assert max(sizes) <= 9


def test_two_names_with_one_id_are_noticed(tmp_path):
    files = [names_file(tmp_path / t, [{"id": 7, "value": t}]) for t in ("a", "b")]
    with pytest.raises(InputError, match="two different names share an id"):
        Names(lambda: files).table()


def test_a_manifest_comes_back_as_it_was(tiny_run, tmp_path):
    manifest = read_manifest(tiny_run)
    odd = replace(manifest, notes=("caf\udce9 ü",), tables=("kernels",), missing_ranks=(4,), zero_utc_ns=None)
    for each in (manifest, odd, Manifest()):
        write_manifest(tmp_path, each)
        assert read_manifest(tmp_path) == each
        assert [p.name for p in tmp_path.iterdir()] == [MANIFEST]
    assert all(rank_from_json(json.loads(json.dumps(plain(r)))) == r for r in manifest.ranks)


def test_a_json_that_cannot_be_written_leaves_what_was_there(tmp_path):
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert read_json(tmp_path / "x.json") == {"a": 1}
    assert len(list(tmp_path.iterdir())) == 1


DAMAGE = [
    ("", "it cannot be read"), ("{", "it cannot be read"), ("[]", "it contains no JSON object"),
    ("[" * 100_000, "it cannot be read"),
    ('{"a": ' + "9" * 5000 + "}", "it cannot be read"), ("{}", "it is damaged: its checksum"),
    (b"\xff", "it cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "found"), DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_manifest_is_a_sentence(tmp_path, text, found):
    (tmp_path / MANIFEST).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=rf"manifest\.json: {found}.*; import the reports again") as caught:
        Run(tmp_path)
    assert "\n" not in str(caught.value)


CHANGES = [
    lambda m: m.pop("ranks"),
    lambda m: m.update(ranks=None),
    lambda m: m.update(ranks=["ab"]),
    lambda m: m.update(surprise=1),
    lambda m: m.update(complete="yes"),
    lambda m: m["ranks"][0].update(rank="../../../etc"),
    lambda m: m["ranks"][0].update(rank=-1),
    lambda m: m["ranks"][0].update(rank=True),
    lambda m: m["ranks"][0].update(rows={"kernels": "many"}),
    lambda m: m["ranks"][0].update(rows={"kernels": -1}),
    lambda m: m["ranks"][0].update(reports=[9]),
    lambda m: m["ranks"][0].update(host=None),
    lambda m: m["ranks"][0].update(start_ns=1 << 70),
    lambda m: m["ranks"][1].update(rank=0),
    lambda m: m["clocks"][0].update(drift_ppm=float("nan")),
    lambda m: m["clocks"][0].update(offset_ns=0.5),
    lambda m: m["reports"][0].update(environment={"RANK": 1}),
    lambda m: m["ranks"][0].update(warnings=[]),
    lambda m: m.update(columns=[]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_manifest_with_a_wrong_fact_is_a_sentence(tiny_run, tmp_path, change):
    value = read_json(tiny_run / MANIFEST)
    change(value)
    write_json(tmp_path / MANIFEST, value)
    with pytest.raises(InputError, match=r"a damaged manifest .*; import the reports again"):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_is_no_run(tmp_path):
    with pytest.raises(InputError, match=r"no manifest\.json; expected a run directory made by"):
        Run(tmp_path)
    (tmp_path / MANIFEST).write_text("{}")
    assert not is_run(tmp_path)


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "noise"])
@pytest.mark.parametrize("file", ["ranks/rank=1/kernels.parquet", "names.parquet"])
def test_a_damaged_table_is_a_sentence(tiny_run, tmp_path, damage, file):
    shutil.copytree(tiny_run, tmp_path / "run")
    path = tmp_path / "run" / file
    whole = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(
            {"empty": b"", "cut": whole[: len(whole) // 2], "noise": b"PAR1" + b"x" * 500 + b"PAR1"}[damage]
        )
    run = Run(tmp_path / "run")
    asks = [lambda: query(run, "SELECT count(*), any_value(name) FROM kernels")]
    asks.append(
        (lambda: run.rank(1).table("kernels")) if "kernels" in file else (lambda: run.texts(pa.array([1], pa.int64())))
    )
    found = "cannot be read" if damage == "gone" else "is damaged"
    for ask in asks:
        with pytest.raises(DamageError, match=rf"{path.name}: it {found}.*; import the reports again") as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_clocks_of_hosts_that_are_not_there_change_nothing(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    manifest = read_manifest(tiny_run)
    write_manifest(tmp_path / "run", replace(manifest, clocks=(*manifest.clocks, Clock("elsewhere", 5))))
    assert Run(tmp_path / "run").rank(0).table("api").equals(Run(tiny_run).rank(0).table("api"))


# A run that goes to other processes.


RANKS = {r: {"kernels": [kernel(10 * r, 40 + r)]} for r in (0, 3)}


def test_here_it_is_the_run_itself_and_there_it_is_opened_once(tmp_path):
    run = make_run(tmp_path / "run", RANKS)
    sent = SentRun(run)
    assert sent.run is run
    there = pickle.loads(pickle.dumps(sent))
    assert there.run is not run
    assert there.run is there.run
    assert there.run.manifest == run.manifest
    assert there.run.overlay is None


def test_it_is_read_there_by_the_same_alignment(tmp_path):
    run = make_run(tmp_path / "run", RANKS)
    aligned(run)
    there = pickle.loads(pickle.dumps(SentRun(run))).run
    assert there.overlay.folder == run.overlay.folder
    assert there.manifest == run.manifest


@pytest.mark.parametrize("kind", [Run, PartialRun])
def test_it_is_of_the_same_kind_and_little_is_sent(tmp_path, kind):
    make_run(tmp_path / "run", dict.fromkeys(range(50), RANKS[0]))
    whole = pickle.dumps(SentRun(kind(tmp_path / "run")))
    assert type(pickle.loads(whole).run) is kind
    assert len(whole) < 1_000


def test_json_is_checked_and_written_member_by_member(tmp_path):
    """The checksum is that of the whole as Python's `json` writes it, whatever the layout of the file."""
    values = [{}, {"a": []}, {"a": [1, {"b": [2, "\u00fc\udc80"]}, []], "c": {}, "d": None, "e": {"1": [1, 2]}}]
    for value in values:
        write_json(tmp_path / "x.json", value)
        assert read_json(tmp_path / "x.json") == value
        stored = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
        assert stored.pop("checksum") == xxhash.xxh3_128_hexdigest(json.dumps(value).encode())
        assert stored == value


def test_the_manifest_of_thousands_of_ranks_is_written_rank_by_rank(tmp_path):
    count = 2000
    ranks = [RankRecord(n, 0, "h", (n,), (), "RANK", (n,), rows=dict.fromkeys("abcdefgh", n)) for n in range(count)]
    manifest = Manifest(tuple(ReportRecord(f"{n}.sqlite", 1, "") for n in range(count)), tuple(ranks))
    tracemalloc.start()
    try:
        write_manifest(tmp_path, manifest)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read_manifest(tmp_path) == manifest
    assert peak < 200 * count  # was 2.5 kB
