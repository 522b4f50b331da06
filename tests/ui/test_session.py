import threading
from dataclasses import replace

import pytest
from tests.making import make_run
from tests.tiles.conftest import rank_rows
from tests.ui.conftest import client_of
from tests.ui.gates import Gate, hold

from alltrace.run.checksums import write_rank_record
from alltrace.run.importer import import_reports
from alltrace.run.manifest import RANK_RECORD, read_manifest, write_manifest
from alltrace.run.store import PartialRun
from alltrace.synth import write_run
from alltrace.trace.errors import InputError
from alltrace.ui.facts import make_answers
from alltrace.ui.session import Session


def being_imported(folder, done):
    """A run of which only some ranks have been committed."""
    run = make_run(folder, {r: rank_rows(r) for r in range(3)})
    for record in run.ranks:
        place = folder / record.folder
        (place / RANK_RECORD).unlink()
        (place / "names.parquet").write_bytes((folder / "names.parquet").read_bytes())
        write_rank_record(place, record, {})
        if record.rank not in done:
            place.rename(folder / "ranks" / f".staging-{record.rank}")
    (folder / "names.parquet").unlink()
    write_manifest(folder, replace(read_manifest(folder), complete=False, ranks=()))


def test_ranks_that_come_later_or_are_damaged(tmp_path):
    being_imported(tmp_path / "run", {0, 1})
    assert [r.rank for r in PartialRun(tmp_path / "run").ranks] == [0, 1]
    client = client_of([tmp_path / "run"], tmp_path / "scratch")
    found = client.get("/api/run").json()
    assert [s["name"] for s in found["state"].pop("stages")] == ["levels"]
    assert found["state"] == {"shown": 2, "aligned": False, "ready": True, "partial": True, "error": None}
    assert any("still being imported" in n for n in found["notes"])
    window = client.post("/api/window", json={"start": 0, "end": 10**6}).json()
    assert [r["compute_ns"] for r in window["breakdown"]] == [50_000, 50_000]
    assert not (tmp_path / "run/tiles").exists(), "what is being written is left alone"
    folder = tmp_path / "2" / "run"
    being_imported(folder, {0})
    client = client_of([folder], tmp_path / "2" / "scratch")
    assert client.get("/api/run").json()["run"]["ranks"] == 1
    (folder / "ranks/.staging-2").rename(folder / "ranks/rank=2")
    client.get("/api/run")
    assert client.sessions[0]._ready.wait(30)
    assert [r["rank"] for r in client.get("/api/run").json()["ranks"]] == [0, 2]
    being_imported(tmp_path / "3" / "run", {0, 1})
    (tmp_path / "3" / "run/ranks/rank=1" / RANK_RECORD).write_text("{}")
    assert [r.rank for r in PartialRun(tmp_path / "3" / "run").ranks] == [0]


def test_a_run_is_shown_unaligned_then_aligned_then_with_its_levels(tmp_path, monkeypatch):
    """The clocks of two hosts are 5 ms apart by their stamps; each stage waits until the test has looked."""
    write_run("tiny", tmp_path / "reports", ranks=2, hosts=2, steps=2, ideal=True)
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    gates = {name: Gate() for name in ("aligned", "pyramid", "diagnose")}
    hold(monkeypatch, "alltrace.ui.session.aligned", gates["aligned"])
    hold(monkeypatch, "alltrace.ui.session.pyramid", gates["pyramid"])
    hold(monkeypatch, "alltrace.ui.facts._findings", gates["diagnose"])
    client = client_of([tmp_path / "run"], tmp_path / "scratch", ready=False, when_ready=make_answers)
    assert client.get("/api/state").json()["shown"] is None
    assert (
        client.post("/api/tiles", json={"tracks": ["0/summary"], "level": 9, "first": 0, "count": 1}).status_code == 503
    )
    client.sessions[0].start()
    seen = []
    for name in gates:
        gates[name].reached()
        state = client.get("/api/state").json()
        steps = len(client.get("/api/run").json()["steps"])
        tiles = client.post("/api/tiles", json={"tracks": ["0/summary"], "level": 20, "first": 0, "count": 1})
        asked = client.get("/api/by-rank").status_code
        doing = [s["name"] for s in state["stages"] if s["state"] == "doing"]
        seen.append((doing, state["shown"], state["aligned"], state["ready"], steps, tiles.status_code, asked))
        gates[name].open()
    assert seen == [
        (["clocks"], 1, False, False, 0, 200, 503),
        (["levels"], 2, True, False, 2, 200, 503),
        (["findings"], 3, True, True, 2, 200, 200),
    ]
    assert client.get("/api/findings").json()["verdict"]
    assert [s["state"] for s in client.get("/api/state").json()["stages"]] == ["done"] * 4


def test_what_is_kept_is_shown_at_the_next_start_without_a_stage_of_waiting(tmp_path, monkeypatch):
    write_run("tiny", tmp_path / "reports", ranks=2, hosts=2, steps=2, ideal=True)
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    first = client_of([tmp_path / "run"], tmp_path / "scratch", when_ready=make_answers)
    make_answers(first.sessions[0])
    answers = [first.get(f"/api/{name}").json() for name in ("findings", "job-time", "by-rank")]

    def never(*_, **__):
        raise AssertionError("this is kept")

    for name in ("alltrace.align.store._make", "alltrace.tiles.build._make", "alltrace.ui.recipe_process._ask"):
        monkeypatch.setattr(name, never)
    monkeypatch.setattr("alltrace.ui.session.EarlyView", never)
    again = client_of([tmp_path / "run"], tmp_path / "scratch")
    assert again.get("/api/state").json()["shown"] == 1
    assert [again.get(f"/api/{name}").json() for name in ("findings", "job-time", "by-rank")] == answers


def test_the_page_is_there_before_the_levels_are(tmp_path):
    make_run(tmp_path / "run", {0: rank_rows()})
    client = client_of([tmp_path / "run"], tmp_path / "scratch", ready=False)
    state = client.get("/api/run").json()["state"]
    assert (state["ready"], state["shown"], {s["state"] for s in state["stages"]}) == (False, None, {"waiting"})
    found = client.get("/api/by-rank")
    assert (found.status_code, found.json()["error"]) == (503, "aligning clocks: 0 of 1 ranks done")
    client.sessions[0].prepare()
    assert client.get("/api/by-rank").status_code == 200


def test_where_the_clocks_cannot_be_found_nothing_unaligned_is_left_to_be_looked_at(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise InputError(tmp_path, found="no room", advice="make room")

    make_run(tmp_path / "run", {0: rank_rows()})
    monkeypatch.setattr("alltrace.ui.session.aligned", fails)
    client = client_of([tmp_path / "run"], tmp_path / "scratch")
    state = client.get("/api/state").json()
    assert (state["shown"], state["ready"], state["stages"][0]["state"]) == (None, False, "failed")
    for found in (client.get("/api/findings"), client.post("/api/tracks", json={"ranks": [0]})):
        assert found.status_code == 500
        assert "no room" in found.json()["error"]


@pytest.mark.parametrize(
    ("error", "said"),
    [(MemoryError(), "memory ran out while drawing"), (KeyError("x"), "an internal error of alltrace while drawing")],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_nobody_expects_does_not_leave_the_page_waiting(tmp_path, monkeypatch, error, said):
    def fails(*_, **__):
        raise error

    make_run(tmp_path / "run", {0: rank_rows()})
    monkeypatch.setattr("alltrace.ui.session.pyramid", fails)
    client = client_of([tmp_path / "run"], tmp_path / "scratch", ready=False)
    client.sessions[0].start()
    assert client.sessions[0]._ready.wait(30)
    assert said in client.get("/api/run").json()["state"]["error"]
    assert said in client.get("/api/by-rank").json()["error"]


def test_runs_that_cannot_be_read_and_two_runs(tmp_path):
    make_run(tmp_path / "run", {0: rank_rows()})
    (tmp_path / "run/ranks/rank=0/kernels.parquet").write_bytes(b"cut")
    client = client_of([tmp_path / "run"], tmp_path / "scratch")
    assert "kernels.parquet" in client.get("/api/run").json()["state"]["error"]
    assert "kernels.parquet" in client.get("/api/findings").json()["error"]
    for name, ranks in (("one", [0]), ("two", [0, 1])):
        make_run(tmp_path / "2" / name, {r: rank_rows() for r in ranks})
    client = client_of([tmp_path / "2" / "one", tmp_path / "2" / "two"], tmp_path / "2" / "scratch")
    assert [client.get(f"/api/{p}run").json()["run"]["ranks"] for p in ("", "b/")] == [1, 2]
    assert len(client.get("/api/runs").json()["runs"]) == 2
    found = client.post("/api/diff", json={"what": "copy"}).json()
    values = dict(zip((c["name"] for c in found["columns"]), found["rows"][0], strict=True))
    assert (values["count_a"], values["count_b"], values["total_change_ns"]) == (1, 2, 10_000)
    assert client.post("/api/diff", json={"what": "x"}).status_code == 400


def test_what_takes_long_is_made_once_and_holds_nothing_else_up(tmp_path):
    make_run(tmp_path / "run", {0: rank_rows()})
    (session,) = client_of([tmp_path / "run"], tmp_path / "scratch").sessions
    begun, gate, made = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        assert gate.wait(20)
        made.append(1)
        return "slow"

    threads = [threading.Thread(target=session.kept, args=("slow", slow)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    assert session.kept("quick", lambda: session.kept("other", lambda: 7)) == 7
    gate.set()
    for thread in threads:
        thread.join(20)
    assert (session.kept("slow", slow), made) == ("slow", [1])


def test_a_long_name_is_cut_in_its_middle(tmp_path):
    make_run(tmp_path / "run", {0: rank_rows()})
    named = [
        Session(tmp_path / "run", tmp_path / "scratch", 1, name=name).name
        for name in (None, "a/b", "x" * 60 + "/reports")
    ]
    assert named[:2] == ["run", "a/b"]
    assert (len(named[2]), named[2][-8:]) == (50, "/reports")
    assert "…" in named[2]
