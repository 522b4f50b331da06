import pytest
from tests.history_rows import put
from tests.making import make_run
from tests.tiles.conftest import rank_rows
from tests.ui.conftest import client_of

from alltrace.history.questions import ask_history, place_of
from alltrace.history.run_rows import run_id
from alltrace.history.store import Kept, open_history
from alltrace.run.manifest import read_manifest
from alltrace.trace.errors import InputError
from alltrace.ui.history import HistoryFile
from alltrace.ui.json_values import plain_answer


def with_runs(path):
    with open_history(path, write=True) as history:
        for number in range(7):
            hosts = [{"host": "bad", "slow": True, "kind": "slow-host", "lost_percent": 4.0}, {"host": "good"}]
            put(
                history,
                number,
                step_ns=(100 + 30 * (number == 6)) * 10**6,
                hosts=hosts,
                findings=[{"kind": "slow-host"}],
            )
        put(history, 9, job="other", tags=["night"])
    return path


@pytest.fixture
def client(tmp_path):
    make_run(tmp_path / "run", {0: rank_rows()})
    return client_of(
        [tmp_path / "run"], tmp_path / "scratch", ready=False, history=HistoryFile(with_runs(tmp_path / "h.duckdb"))
    )


def test_the_page_has_the_answers_of_the_command(client, tmp_path):
    assert client.get("/api/run").json()["history"] == "h.duckdb"
    told = client.get("/api/history", params={"job": "train"}).json()
    with open_history(tmp_path / "h.duckdb") as history:
        for by in ("run", "host", "finding"):
            answer = ask_history(history, by, job="train")
            assert told[by].pop("figure")["data"], by
            assert told[by] == plain_answer(answer)
    assert len(told["breakdown"]["figure"]["data"]) == 4, "the classes of time"
    assert (told["jobs"], told["tags"], told["place"]) == (["other", "train"], ["night"], None)


def test_the_run_that_is_shown_is_found_wherever_it_lies(client, tmp_path):
    own = run_id(read_manifest(tmp_path / "run"))
    with open_history(tmp_path / "h.duckdb", write=True) as history:
        (kept,) = [k for k in history.kept() if k.run_id == "run3"]
        history._connection.execute("UPDATE runs SET run_id = ? WHERE run_id = 'run3'", [own])
        assert isinstance(kept, Kept)
        assert place_of(history, own) == 3
        assert place_of(history, own, job="other") is None
    assert client.get("/api/history").json()["place"] == 3


def test_a_job_that_no_run_has_is_refused(client):
    found = client.get("/api/history", params={"job": "nobody"})
    assert (found.status_code, "nobody" in found.json()["error"]) == (400, True)


def test_without_a_history_the_page_is_told_how_to_open_one(tmp_path):
    make_run(tmp_path / "run", {0: rank_rows()})
    found = client_of([tmp_path / "run"], tmp_path / "scratch", ready=False).get("/api/history")
    assert (found.status_code, "--history HISTORY" in found.json()["error"]) == (400, True)


def test_what_is_not_a_history_is_refused_before_the_page_is_served(tmp_path):
    (tmp_path / "no.duckdb").write_text("no")
    with pytest.raises(InputError, match="DuckDB"):
        HistoryFile(tmp_path / "no.duckdb")
