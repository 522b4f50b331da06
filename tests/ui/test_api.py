import json
import shutil
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from tests.making import make_run
from tests.tiles.conftest import rank_rows
from tests.ui.conftest import HOSTILE, client_of

from alltrace.tiles.cancel import CancelledError, Token
from alltrace.ui.session import alone

US = 1000


def test_facts_tiles_heat_map_and_tracks_of_a_run(client):
    found = client.get("/api/run").json()
    assert (found["alltrace"], found["verb"]) == (1, "ui")
    assert found["run"] == {"ranks": 3, "hosts": 1, "devices": 3, "span_ns": 130 * US}
    assert (found["state"]["ready"], found["state"]["partial"], found["state"]["error"]) == (True, False, None)
    assert [r["rank"] for r in found["ranks"]] == [0, 1, 2]
    assert found["ranks"][0]["devices"] == ["H200"]
    assert (found["missing_ranks"], found["origin_ns"]) == ([3], -40 * US)
    assert "rank 3: no report" in found["notes"]
    assert {"name": "busy", "scale": None} in found["metrics"]
    assert client.get("/api/runs").json()["runs"][0]["name"] == "run"
    body = {"tracks": ["0/gpu/0/0/7"], "level": 9, "first": 0, "count": 1}
    found = client.post("/api/tiles", json=body).content
    header = json.loads(found[8 : 8 + struct.unpack("<I", found[4:8])[0]])
    assert header["names"] == [HOSTILE, "k" * 200] or header["names"] == ["k" * 200, HOSTILE]
    whole = client.get("/api/event", params={"rank": 0, "table": "kernels", "row": 1}).json()
    assert whole["name"] == "k" * 300
    level = client.get("/api/run").json()["grid"]["level"]
    found = client.get("/api/heat", params={"metric": "busy", "level": level + 10, "index": 0})
    assert (found.headers["x-alltrace-rows"], found.headers["x-alltrace-bins"]) == ("3", "1")
    values = struct.unpack("<3H", found.content)
    assert values[0] == pytest.approx(65534 * 70 / 130, abs=40)
    assert values[2] == 65535
    found = client.post("/api/tracks", json={"ranks": [0, 2]}).json()["tracks"]
    assert [t["label"] for t in found["0"]] == [
        "devices",
        "GPU 0 stream 7",
        "GPU 0 stream 20",
        "GPU 0 stream 30",
        *[t["label"] for t in found["0"] if t["group"] == "collectives"],
        "ranges, main (4001)",
        "CUDA API, main (4001)",
    ]
    assert [t["key"] for t in found["2"]] == ["summary"]


def test_a_range_its_events_and_an_area(client):
    found = client.post("/api/window", json={"ranks": None, "start": 0, "end": 130 * US}).json()
    assert found["ranks_done"] == 3
    idle = client.post("/api/window", json={"ranks": None, "start": 5 * US, "end": 15 * US}).json()["breakdown"]
    assert [(r["rank"], r["idle_ns"]) for r in idle] == [(0, 10 * US), (1, 10 * US)]
    assert found["breakdown"][0]["compute_ns"] == 50 * US
    assert client.post("/api/window", json={"ranks": [], "start": 0, "end": 9}).json()["breakdown"] == []
    events = client.post(
        "/api/events", json={"ranks": [0], "tables": ["kernels"], "start": 0, "end": 200 * US, "pattern": "onerror"}
    ).json()
    assert events["name"] == [HOSTILE]
    hits = client.post("/api/search", json={"pattern": "^k{300}$", "ranks": [0, 1]}).json()
    assert (hits["names"], hits["total"], hits["by_rank"]) == (["k" * 300], 1, {"0": 1})
    near = client.get("/api/neighbour", params={"rank": 0, "table": "kernels", "row": 0, "forward": "true"}).json()
    assert near == {"event": None}
    body = {
        "tracks": ["0/summary", "1/summary", "0/ranges/0"],
        "start": 0,
        "end": 130 * US,
        "flame": "ranges",
        "pattern": "^gemm",
    }
    found = client.post("/api/area", json=body).json()
    assert (found["ranks_asked"], found["ranks_done"]) == (2, 2)
    assert {r["name"]: r["count"] for r in found["totals"]}["step 0"] == 1
    assert [(r["rank"], r["compute_ns"]) for r in found["breakdown"]] == [(0, 50 * US), (1, 50 * US)]
    assert sum(found["histogram"]["count"]) == 1
    flame = found["flame"]
    assert dict(zip(flame["name"], flame["total_ns"], strict=True)) == {"step 0": 260 * US, "forward": 50 * US}
    assert flame["self_ns"] == [210 * US, 50 * US]


def test_rows_of_a_query_are_laid_on_the_timeline(client, monkeypatch):
    query = 'SELECT rank, "start", "end", \'x\' AS name FROM kernels ORDER BY rank, "start"'
    found = client.post("/api/laid", json={"query": query}).json()
    assert [(t["rank"], t["start"][0], t["length"][0], t["lane"]) for t in found["tracks"]] == [
        (0, 40 * US, 40 * US, [0, 1, 0]),
        (1, 40 * US, 40 * US, [0, 1, 0]),
    ]
    refused = client.post("/api/laid", json={"query": "SELECT rank FROM kernels"})
    assert (refused.status_code, "no column of times" in refused.json()["error"]) == (400, True)
    monkeypatch.setattr("alltrace.ui.api.LAID_ROWS", 2)
    assert "only the first 2 rows are shown" in client.post("/api/laid", json={"query": query}).json()["notes"]


def test_times_count_from_the_start_and_the_matrix_has_words(client):
    recipes = {r["name"]: r["session_time"] for r in client.get("/api/recipes").json()["recipes"]}
    assert (recipes["gaps"], recipes["gpu_gaps"], recipes["stats:cuda_gpu_trace"]) == (False, True, True)
    rows = client.post("/api/sql", json={"query": 'SELECT min("start") FROM ranges'}).json()["rows"]
    assert rows == [[0]]
    trace = client.post("/api/recipe", json={"name": "stats:cuda_gpu_trace", "options": {}, "ranks": [0]}).json()
    at = [c["name"] for c in trace["columns"]].index("Start (ns)")
    assert min(r[at] for r in trace["rows"]) == 0, "where the first kernel is on the session's clock"
    info = client.post("/api/recipe", json={"name": "info", "options": {}}).json()
    at = [c["name"] for c in info["columns"]].index("start_ns")
    assert info["rows"][0][at] == -40 * US
    told = client.get("/api/matrix", params={"measure": "wait_ns", "by": "rank"}).json()
    assert told["labels"] == [0, 1, 2]
    cells = client.get("/api/matrix-cells", params={"measure": "wait_ns", "by": "rank"}).content
    assert sum(struct.unpack("<9d", cells)) == told["total"]
    refused = client.get("/api/matrix", params={"measure": "x", "by": "rank"})
    assert (refused.status_code, "measure" in refused.json()["error"]) == (400, True)


def test_notes_are_kept_and_two_steps_compared(client):
    assert client.get("/api/notes").json() == {"notes": []}
    note = {"text": HOSTILE, "start": 5, "end": 9, "ranks": [1]}
    assert client.post("/api/note-add", json=note).json()["notes"] == [{"id": 1, **note}]
    assert client.get("/api/notes").json()["notes"][0]["text"] == HOSTILE
    refused = client.post("/api/note-add", json=note | {"start": 10})
    assert (refused.status_code, "the start first" in refused.json()["error"]) == (400, True)
    assert client.post("/api/note-remove", json={"id": 1}).json() == {"notes": []}
    assert client.post("/api/note-remove", json={"id": 1}).status_code == 400
    spans = {"first_start": 40 * US, "first_end": 80 * US, "second_start": 80 * US, "second_end": 120 * US}
    found = client.post("/api/two-spans", json={"ranks": None, **spans}).json()
    more = {r["name"]: r["more_ns"] for r in found["names"]}
    assert (more[HOSTILE], more["gemm_kernel"]) == (-40 * US, -40 * US)
    assert found["ranks_done"] == 3


def test_recipes_findings_and_the_time_of_the_job(client):
    known = {r["name"]: r for r in client.get("/api/recipes").json()["recipes"]}
    assert {"breakdown", "stragglers", "stats:cuda_gpu_kern_sum"} <= set(known)
    assert known["breakdown"]["options"][0]["choices"] == ["device", "run"]
    found = client.post("/api/recipe", json={"name": "breakdown", "options": {"span": "run"}, "ranks": [1, 2]}).json()
    at = [c["name"] for c in found["columns"]].index("compute_ns")
    assert [row[at] for row in found["rows"]] == [50 * US]
    assert any(n.startswith("rank 2 has no `kernels`, `copies` or `graphs`: ") for n in found["notes"])
    found = client.get("/api/findings").json()
    assert found["verdict"].endswith(".")
    assert len(found["cards"]) == len(found["rows"])
    assert all(c["place"]["ranks"][0] == c["place"]["culprit"] and c["proof"]["recipe"] for c in found["cards"])
    assert found["columns"][0]["name"] == "kind"
    assert client.get("/api/by-rank").json()["columns"]["rank"] == [0, 1, 2]
    found = client.get("/api/job-time").json()
    classes = ["compute", "exposed communication", "unclassified", "exposed copy", "idle"]
    assert [c["name"] for c in found["classes"]] == classes
    rows = client.post("/api/recipe", json={"name": "breakdown"}).json()
    at = [c["name"] for c in rows["columns"]].index("compute_ns")
    assert found["devices"] == len(rows["rows"])
    assert found["classes"][0]["ns"] == sum(row[at] for row in rows["rows"]) > 0


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("window", {"start": 5, "end": 5}, "empty"),
        ("window", {"start": "x", "end": 5}, "start is 'x'; expected a whole number"),
        ("window", {"start": 0, "end": 1 << 70}, "expected a whole number"),
        ("window", {"start": 0, "end": 5, "ranks": [77]}, "rank 77 is not in the run"),
        ("window", {"start": 0, "end": 5, "ranks": "all"}, "expected a list of ranks"),
        ("area", {"tracks": ["0/summary"], "start": 5, "end": 5}, "empty"),
        ("area", {"tracks": ["x/summary"], "start": 0, "end": 5}, "unknown track"),
        ("area", {"tracks": ["7/summary"], "start": 0, "end": 5}, "rank 7 is not in the run"),
        ("two-spans", {"first_start": 0, "first_end": 5, "second_start": 7, "second_end": 7}, "empty"),
        ("tiles", {"tracks": ["0"], "level": 5, "first": 0, "count": 1}, "unknown track"),
        ("tiles", {"tracks": ["0/summary"], "level": 5, "first": 0, "count": 10**6}, "expected 8192"),
        ("tiles", {"tracks": "0/summary", "level": 5, "first": 0, "count": 1}, "expected a list of texts"),
        ("events", {"tables": ["../names"], "start": 0, "end": 5}, "unknown table"),
        ("search", {"pattern": "("}, "not a valid regular expression"),
        ("recipe", {"name": "../x"}, "unknown recipe"),
        ("recipe", {"name": "breakdown", "options": {"span": "x"}}, "expected one of"),
        ("recipe", {"name": "breakdown", "options": {"span": ["x"]}}, "plain values"),
        ("sql", {}, "query is None"),
    ],
)
def test_bad_requests_are_answered_in_one_sentence(client, path, body, message):
    found = client.post(f"/api/{path}", json=body)
    assert found.status_code == 400
    assert message in found.json()["error"]


@pytest.mark.parametrize("body", [b"[1]", b"{", b"\xff", b"[" * 100_000, b'"' + b"x" * (2 << 20)])
def test_what_is_no_request_is_refused(client, body):
    found = client.post("/api/window", content=body)
    assert found.status_code == 400
    assert "the request is" in found.json()["error"]


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM ranks",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY ranks TO 'x.csv'",
        "SET memory_limit = '9GB'",
        "ATTACH 'x.db'",
    ],
)
def test_sql_reads_the_run_and_nothing_else(client, query):
    assert client.post("/api/sql", json={"query": query}).status_code == 400


def test_a_damaged_rank_is_an_error_that_names_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    make_run(tmp_path / "run", {r: rank_rows() for r in range(3)})
    (tmp_path / "run/ranks/rank=1/kernels.parquet").write_bytes(b"cut")
    client = client_of([tmp_path / "run"], tmp_path / "scratch")
    assert "rank=1/kernels.parquet: it is damaged" in client.get("/api/run").json()["state"]["error"]
    body = {"ranks": [0, 2], "start": 0, "end": 10**6, "tables": ["kernels"], "pattern": "gemm"}
    for question in ("window", "events", "search"):
        found = client.post(f"/api/{question}", json=body)
        assert (found.status_code, "kernels.parquet" in found.json()["error"]) == (500, True)


def test_who_no_longer_wants_an_answer_does_not_wait_for_the_turn():
    turn, token = threading.Lock(), Token()
    with turn:
        threading.Timer(0.1, token.cancel).start()
        with pytest.raises(CancelledError), alone(turn, token):
            pass
    with pytest.raises(CancelledError), alone(turn, token):
        pass
    with alone(turn, Token()):
        assert turn.locked()
    assert not turn.locked()


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("large", [False, True])
def test_a_long_comparison_or_recipe_keeps_no_other_question_waiting(tmp_path, monkeypatch, large):
    """Only questions of the same kind wait for their turn: tracks, events, queries and answers that are kept come at
    once."""
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    for name in "ab":
        make_run(tmp_path / name, {r: rank_rows() for r in range(2)})
    first = client_of([tmp_path / "a", tmp_path / "b"], tmp_path / "scratch")
    started, go_on = tmp_path / "started", tmp_path / "go on"
    monkeypatch.setattr("alltrace.ui.recipe_process.LARGE_ROWS", 0 if large else 1 << 60)
    kept = first.post("/api/recipe", json={"name": "diagnose"}).json()
    monkeypatch.setattr("alltrace.ui.recipe_process._compare", partial(_wait, started, go_on))
    event = {"rank": 0, "table": "kernels", "row": 1}
    asked = [
        ("get", "/api/run", {}),
        ("get", "/api/event", {"params": event}),
        ("post", "/api/tracks", {"json": {"ranks": [0, 1]}}),
        ("post", "/api/window", {"json": {"ranks": [0], "start": 0, "end": 10**5}}),
        ("post", "/api/sql", {"json": {"query": "SELECT count(*) AS n FROM kernels"}}),
        ("post", "/api/recipe", {"json": {"name": "diagnose"}}),
    ]
    with first, ThreadPoolExecutor(8) as threads:  # one loop, as of the server
        waiting = [threads.submit(first.post, "/api/diff", json={}) for _ in range(4)]
        waiting.append(threads.submit(first.post, "/api/recipe", json={"name": "breakdown"}))
        try:
            while not started.exists():
                time.sleep(0.01)
            answers = [
                threads.submit(getattr(first, how), path, **about).result(timeout=60) for how, path, about in asked
            ]
            assert [a.status_code for a in answers] == [200] * len(asked)
            assert answers[-1].json()["rows"] == kept["rows"]
            assert not any(w.done() for w in waiting)
        finally:
            go_on.touch()
        assert [w.result(timeout=120).status_code for w in waiting] == [200] * 5


def _wait(started, go_on, runs, question, progress):
    from alltrace.recipes.questions.diff import compare

    started.touch()
    while not go_on.exists():
        time.sleep(0.01)
    return compare(runs[0], runs[1], **question.options, **question.about)


def test_sql_has_limits(client, monkeypatch):
    found = client.post(
        "/api/sql", json={"query": "SELECT rank, count(*) AS n FROM kernels GROUP BY rank ORDER BY rank"}
    ).json()
    assert found["rows"] == [[0, 3], [1, 3]]
    many = client.post("/api/sql", json={"query": "SELECT * FROM range(6000)"}).json()
    assert len(many["rows"]) == 5000
    assert "only the first 5000 rows are shown" in many["notes"]
    exact = client.post("/api/sql", json={"query": "SELECT 9007199254740993 AS big, 'nan'::DOUBLE AS x"}).json()
    assert exact["rows"] == [["9007199254740993", None]]
    monkeypatch.setattr("alltrace.ui.api.SQL_SECONDS", 0.2)
    slow = client.post(
        "/api/sql",
        json={"query": "SELECT count(*) FROM range(10000000000) a, range(1000) b WHERE a.range * b.range = 7"},
    )
    assert (slow.status_code, "longer than 0.2 s" in slow.json()["error"]) == (400, True)
    monkeypatch.setattr("alltrace.ui.api.SQL_SECONDS", 60)
    monkeypatch.setattr("alltrace.ui.api.SQL_MEMORY_BYTES", 32 << 20)
    wide = client.post(
        "/api/sql", json={"query": "SELECT count(*) FROM (SELECT DISTINCT hash(range) FROM range(50000000))"}
    )
    assert "memory ran out" in wide.json()["error"]


def test_a_run_that_is_removed_is_said_to_be(client):
    shutil.rmtree(client.sessions[0].path)
    for path, body in (
        ("window", {"start": 0, "end": 9}),
        ("tiles", {"tracks": ["0/ranges/0"], "level": 2, "first": 0, "count": 1}),
    ):
        found = client.post(f"/api/{path}", json=body)
        assert found.status_code == 410
        assert "was removed while it was open" in found.json()["error"]
    assert client.get("/api/run").status_code == 410
