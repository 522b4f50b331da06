"""Requests with text that nobody expects: none costs what was there before, and none breaks the server."""

import json
import random
import time
from collections import Counter
from urllib.parse import urlencode

import pytest
from tests.making import make_run
from tests.thorough import cases
from tests.tiles.conftest import rank_rows
from tests.ui.conftest import client_of

HOSTILE = [
    "\ud800",
    "a\udfffb",
    "\x00",
    "\u202e",
    "\ufeff",
    "\x1b[31m",
    "<script>",
    "'; drop table ranks; --",
    "",
    " ",
    "é" * 3000,
    "🦀",
]
PATHS = "note-add note-remove search window area events tracks tiles heat-fine two-spans recipe sql".split()
GOT = "heat event neighbour matrix matrix-cells findings by-rank job-time state roofline weighed history".split()
NOTES = ("note-add", "note-remove")
FIELDS = "text start end ranks id pattern tracks tables name options steps query metric level".split()
FIELDS += ["index", "first", "count", "flame", "skip_warmup", "least_ns", "track", "first_start", "first_end"]


def value(draw, depth=0):
    kinds = [
        lambda: draw.choice(HOSTILE),
        lambda: draw.choice([0, -1, 1 << 62, 1 << 70, -(1 << 63), 1.5, 1e308, True, None]),
        lambda: draw.choice(["kernels", "rank 0", "0/kernels", "diagnose", "(", "(\\w+)+!", "select 1"]),
        lambda: [value(draw, depth + 1) for _ in range(draw.randrange(3))],
        lambda: {draw.choice(FIELDS + HOSTILE): value(draw, depth + 1) for _ in range(draw.randrange(3))},
    ]
    return draw.choice(kinds[: 5 if depth < 2 else 3])()


def test_no_body_loses_a_note_or_breaks_the_server(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    make_run(tmp_path / "run", {0: rank_rows(), 1: {}})
    client = client_of([tmp_path / "run"], tmp_path / "scratch")
    draw, kept = random.Random(7), 0
    plain = {"text": "a note", "start": 0, "end": 5, "ranks": [0]}
    turns = cases(300, 1000)
    for turn in range(turns):
        # each query starts a process
        path = "note-add" if turn % 3 == 0 else PATHS[-1] if turn in (100, 160, 220) else draw.choice(PATHS[:-1])
        body = {name: value(draw) for name in draw.sample(FIELDS, draw.randrange(6))}
        if path == "note-add":
            body = {**plain, **({draw.choice(["text", "start", "end", "ranks"]): value(draw)} if turn % 2 else {})}
        text = json.dumps(body) if turn % 50 else json.dumps(body)[:-1]
        found = client.post(f"/api/{path}", content=text, headers={"content-type": "application/json"})
        assert found.status_code in (200, 400, 422), (path, text, found.text)
        if path == "note-add" and found.status_code == 200:
            kept += 1
        if path == "note-remove" and found.status_code == 200:
            kept -= 1
        if turn % 25 == 0:
            notes = client.get("/api/notes")
            assert (notes.status_code, len(notes.json()["notes"])) == (200, kept)
    assert kept > 0.15 * turns


def test_a_bad_note_of_the_file_costs_itself(tmp_path, monkeypatch):
    from alltrace.run.json_files import write_json
    from alltrace.run.store import Run
    from alltrace.tiles.notes import FILE, Notes

    run = make_run(tmp_path / "run", {0: rank_rows()})
    good = {"id": 1, "text": "good", "start": 0, "end": 5, "ranks": []}
    bad = [{**good, "text": "\ud800"}, {**good, "id": "x"}, {"id": 2}, 5, None, {**good, "start": 9}]
    write_json(run.path / FILE, {"notes": [*bad, good]})
    assert Notes(Run(run.path)).all() == [good]


def test_a_note_about_a_rank_that_is_not_there_is_refused(client):
    body = {"text": "x", "start": 0, "end": 0}
    for ranks in ([-1], [0, 99], [1 << 40]):
        found = client.post("/api/note-add", json={**body, "ranks": ranks})
        assert (found.status_code, "does not have" in found.json()["error"]) == (400, True)


def test_a_link_in_the_place_of_the_notes_is_replaced_and_not_followed(client, tmp_path):
    from alltrace.tiles.notes import FILE

    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "run" / FILE).symlink_to(tmp_path / "mine.txt")
    client.post("/api/note-add", json={"text": "x", "start": 0, "end": 0, "ranks": []})
    assert (tmp_path / "mine.txt").read_text() == "mine"
    begun = time.monotonic()
    assert client.get("/api/run").status_code == 200
    assert time.monotonic() - begun < 1


def test_a_question_that_the_run_cannot_answer_is_refused_in_a_sentence(client):
    found = client.post("/api/recipe", json={"name": "whatif", "options": {"max_error": -1}})
    assert (found.status_code, "the replay error is" in found.json()["error"]) == (422, True)


def devices_rows():
    """A process that works with two devices, which the page shows as a rank and some recipes judge as two."""
    rows = rank_rows()
    other = [{**row, "device": 1, "correlation": None} for row in rows["kernels"]]
    devices = [{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H200"} for d in range(2)]
    return {**rows, "kernels": rows["kernels"] + other, "devices": devices}


def asked_at_random(draw, recipes):
    """A path and what is sent to it: of a recipe often what it has options for, with values that nobody expects."""
    path = draw.choice([*PATHS[:-1], "laid", "diff", "recipe", *GOT])
    body = {name: value(draw) for name in draw.sample(FIELDS, draw.randrange(6))}
    if path in ("recipe", "diff") and draw.random() < 0.8:
        recipe = draw.choice(recipes)
        wanted = draw.sample(recipe["options"], min(len(recipe["options"]), draw.randrange(4)))
        options = {o["name"]: draw.choice([value(draw), o["default"], *(o["choices"] or ())]) for o in wanted}
        body = {"name": recipe["name"], "options": options, "steps": draw.choice([None, "0:2", value(draw)])}
    if path == "laid":
        body["query"] = draw.choice(HOSTILE)  # none of which starts a process
    return path, body


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seed", cases((11,), (11, 12, 13)))
def test_a_thousand_bodies_for_every_path_and_no_query_break_nothing(tmp_path, monkeypatch, seed):
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    for name, ranks in (("run", {0: rank_rows(), 1: {}}), ("other", {0: devices_rows(), 1: devices_rows()})):
        make_run(tmp_path / name, ranks)
    client = client_of([tmp_path / "run", tmp_path / "other"], tmp_path / "scratch")
    recipes = client.get("/api/recipes").json()["recipes"]
    draw, codes, kept = random.Random(seed), Counter(), 0
    queries = [
        *HOSTILE,
        "select 1",
        "select '\ud800'",
        "select '\x00'",
        "attach 'x'",
        "select * from kernels",
        "(" * 2000,
    ]
    for turn in range(1000):
        path, body = ("sql", {"query": draw.choice(queries)}) if turn % 40 == 0 else asked_at_random(draw, recipes)
        at = f"/api/{'b/' if path not in NOTES and path != 'diff' and turn % 3 else ''}{path}"
        if path in GOT:
            values = {name: str(each)[:1000] for name, each in body.items()}
            found = client.get(f"{at}?{urlencode(values, errors='surrogatepass')}")
        else:
            found = client.post(at, content=json.dumps(body), headers={"content-type": "application/json"})
        assert found.status_code in (200, 400, 422), (at, body, found.text)
        codes[found.status_code] += 1
        kept += {"note-add": 1, "note-remove": -1}.get(path, 0) * (found.status_code == 200)
        if turn % 20 == 0:
            begun = time.monotonic()
            assert client.get("/api/run").status_code == 200
            assert time.monotonic() - begun < 1
    assert len(client.get("/api/notes").json()["notes"]) == kept
    assert min(codes[200], codes[400]) > 50


def test_neither_patterns_nor_options_reach_beyond_the_question(client):
    begun = time.process_time()
    for kernel in ("(\\w+)+!", "(a|a)*$b"):  # of a kernel with a name of 300 letters
        client.post("/api/recipe", json={"name": "whatif", "options": {"kernel": kernel, "scale": 0.5}})
    assert time.process_time() - begun < 5
    found = client.post("/api/recipe", json={"name": "whatif", "options": {"kernel": "(?=x)"}})
    assert (found.status_code, "not a valid regular expression" in found.json()["error"]) == (400, True)
    recipes = {r["name"]: [o["name"] for o in r["options"]] for r in client.get("/api/recipes").json()["recipes"]}
    for name, option, other in (("collectives", "nccl_tests", "instances"), ("efficiency", "reference", "scaling")):
        found = client.post("/api/recipe", json={"name": name, "options": {option: "/etc/hostname"}})
        assert (found.status_code, "names files" in found.json()["error"]) == (400, True)
        assert (option in recipes[name], other in recipes[name]) == (False, True)
