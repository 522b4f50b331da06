from __future__ import annotations

import threading

import pytest
from tests.making import make_run
from tests.tiles.conftest import rank_rows
from tests.ui.conftest import client_of

from alltrace.run.checksums import write_rank_record
from alltrace.run.manifest import RANK_RECORD, read_manifest, write_manifest
from alltrace.run.partial import PartialRun


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
    write_manifest(folder, read_manifest(folder)._replace(complete=False, ranks=()))


def test_a_run_being_imported_shows_the_ranks_that_are_there(tmp_path):
    being_imported(tmp_path / "run", {0, 1})
    assert [r.rank for r in PartialRun(tmp_path / "run").ranks] == [0, 1]
    client = client_of([tmp_path / "run"], tmp_path / "scratch")
    found = client.get("/api/run").json()
    assert found["state"] == {"doing": "ready", "done": 2, "ranks": 2, "ready": True, "partial": True, "error": None}
    assert any("still being imported" in n for n in found["notes"])
    window = client.post("/api/window", json={"start": 0, "end": 10**6}).json()
    assert [r["compute_ns"] for r in window["breakdown"]] == [50_000, 50_000]
    assert not (tmp_path / "run/tiles").exists(), "what is being written is left alone"


def test_ranks_that_come_later_are_seen(tmp_path):
    folder = tmp_path / "run"
    being_imported(folder, {0})
    client = client_of([folder], tmp_path / "scratch")
    assert client.get("/api/run").json()["run"]["ranks"] == 1
    (folder / "ranks/.staging-2").rename(folder / "ranks/rank=2")
    client.get("/api/run")
    assert client.sessions[0]._ready.wait(30)
    assert [r["rank"] for r in client.get("/api/run").json()["ranks"]] == [0, 2]


def test_a_rank_whose_record_is_damaged_is_not_there_yet(tmp_path):
    being_imported(tmp_path / "run", {0, 1})
    (tmp_path / "run/ranks/rank=1" / RANK_RECORD).write_text("{}")
    assert [r.rank for r in PartialRun(tmp_path / "run").ranks] == [0]


def test_the_page_is_there_before_the_levels_are(tmp_path):
    make_run(tmp_path / "run", {0: rank_rows()})
    client = client_of([tmp_path / "run"], tmp_path / "scratch", ready=False)
    state = client.get("/api/run").json()["state"]
    assert (state["ready"], state["doing"]) == (False, "opening")
    found = client.get("/api/by-rank")
    assert (found.status_code, found.json()["error"]) == (503, "opening: 0 of 1 ranks done")
    client.sessions[0].prepare()
    assert client.get("/api/by-rank").status_code == 200


@pytest.mark.parametrize(
    ("error", "said"),
    [(MemoryError(), "memory ran out while drawing"), (KeyError("x"), "an internal error of alltrace while drawing")],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_nobody_expects_does_not_leave_the_page_waiting(tmp_path, monkeypatch, error, said):
    def fails(*_, **__):
        raise error

    make_run(tmp_path / "run", {0: rank_rows()})
    monkeypatch.setattr("alltrace.tiles.build.pyramid", fails)
    client = client_of([tmp_path / "run"], tmp_path / "scratch", ready=False)
    client.sessions[0].start()
    assert client.sessions[0]._ready.wait(30)
    assert said in client.get("/api/run").json()["state"]["error"]
    assert said in client.get("/api/by-rank").json()["error"]


def test_a_run_of_which_nothing_can_be_read_says_why(tmp_path):
    make_run(tmp_path / "run", {0: rank_rows()})
    (tmp_path / "run/ranks/rank=0/kernels.parquet").write_bytes(b"cut")
    client = client_of([tmp_path / "run"], tmp_path / "scratch")
    assert "kernels.parquet" in client.get("/api/run").json()["state"]["error"]
    assert "kernels.parquet" in client.get("/api/findings").json()["error"]


def test_two_runs_have_their_data_apart(tmp_path):
    for name, ranks in (("one", [0]), ("two", [0, 1])):
        make_run(tmp_path / name, {r: rank_rows() for r in ranks})
    client = client_of([tmp_path / "one", tmp_path / "two"], tmp_path / "scratch")
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
