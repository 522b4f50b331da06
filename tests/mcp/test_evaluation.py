"""Questions as an agent asks them of the server: the answer has the expected cell, and says what must not be concluded
from it."""

import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest
from tests.recorded.asking import DERIVED

import alltrace.api
from alltrace.cli.main import main
from alltrace.mcp.skill import cautions, skill_text

HERE = Path(__file__).parent
QUESTIONS = tomllib.loads((HERE / "evaluation.toml").read_text(encoding="utf-8"))["question"]


def cell_of(reply, question):
    """The cell that answers the question."""
    row = question.get("row")
    if row is None:
        return reply[question["column"]]
    wanted = [reply["rows"][row]] if isinstance(row, int) else [r for r in reply["rows"] if row.items() <= r.items()]
    return wanted[0][question["column"]] if wanted else "no such row"


def failings(reply, question):
    """What is wrong with the answer to a question."""
    value, expected = cell_of(reply, question), question.get("expected")
    if value != (pytest.approx(expected, abs=0.001) if isinstance(expected, float) else expected):
        yield f"{question['asked']} {question['column']} is {value!r}, and {expected!r} is right"
    if question["note"] not in " ".join([*reply["notes"], reply.get("verdict", "")]):
        yield f"{question['asked']} Nothing excludes: {question['wrong']}"


@pytest.mark.skipif(find_spec("mcp") is None, reason="needs mcp")
def test_answers_have_the_cell_and_exclude_the_wrong_conclusion(tmp_path, monkeypatch):
    import mcp
    from alltrace.mcp.server import make_server
    from alltrace.mcp.tools import Tools

    shutil.copytree(HERE.parent / "recorded" / "runs", tmp_path / "runs", ignore=DERIVED)
    opened = []
    open_run = alltrace.api.open_run
    monkeypatch.setattr(
        alltrace.api, "open_run", lambda path, **options: opened.append(path) or open_run(path, **options)
    )
    told = []

    async def ask():
        async with mcp.Client(make_server(Tools([tmp_path / "runs"], tmp_path / "cache"))) as client:
            for question in QUESTIONS:
                answer = await client.call_tool(question["tool"], question["arguments"])
                told.extend(
                    [answer.content[0].text] if answer.is_error else failings(answer.structured_content, question)
                )

    anyio.run(ask)
    assert told == []
    assert len(QUESTIONS) >= 40
    named = {a for q in QUESTIONS for key, a in q["arguments"].items() if key in ("run", "run_a", "run_b", "path")}
    again = sum(q["tool"] == "open" for q in QUESTIONS)  # which reads the files anew
    assert len(named) <= len(opened) <= len(named) + again  # a run stays open for the next call


def test_a_question_whose_answer_is_wrong_or_unlimited_fails():
    question = {
        "asked": "How many?",
        "column": "n",
        "row": {"rank": 1},
        "expected": 2.0,
        "wrong": "All.",
        "note": "some",
    }
    assert list(failings({"rows": [{"rank": 1, "n": 2.0004}], "notes": ["some are missing"]}, question)) == []
    assert len(list(failings({"rows": [{"rank": 1, "n": 3.0}], "notes": []}, question))) == 2
    assert next(failings({"rows": [], "notes": []}, question)).startswith("How many? n is 'no such row'")


def test_the_skill_is_printed_and_installed(tmp_path, capsys):
    assert main(["skill"]) == 0
    assert capsys.readouterr().out == skill_text()
    assert main(["skill", "--install", str(tmp_path / "skills")]) == 0
    assert (tmp_path / "skills" / "alltrace" / "SKILL.md").read_text(encoding="utf-8") == skill_text()
    (tmp_path / "file").write_text("")
    assert main(["skill", "--install", str(tmp_path / "file")]) == 3
    assert "it cannot be made" in capsys.readouterr().err


def test_the_skill_names_itself_and_only_what_exists(capsys):
    import re

    from alltrace.cli.registry import VERBS
    from alltrace.mcp.server import NAMES
    from alltrace.recipes.registry import names

    head, body = skill_text().removeprefix("---\n").split("\n---\n", 1)
    front = dict(line.split(": ", 1) for line in head.splitlines())
    assert (front["name"], set(front)) == ("alltrace", {"name", "description"})
    assert len(front["description"]) < 1024
    verbs = {verb.name for verb in VERBS}
    used = re.findall(r"`(?:alltrace )?([a-z-]+) (?:RUN|FOLDER|TERM|NAME)", body)
    assert used
    assert set(used) <= verbs
    asked = {name for text in re.findall(r"`(?:alltrace )?recipe ([a-z,-]+) RUN", body) for name in text.split(",")}
    assert asked <= set(names())
    assert set(cautions()) <= {*names(), *NAMES}
    assert all(f"`{name}`: " in body for name in cautions())
    for verb, options in (
        ("diff", "--by-tree"),
        ("check", "--baseline --budget"),
        ("steps", "--per-step"),
        ("recipe", "--list"),
    ):
        assert main([verb, "--help"]) == 0
        shown = capsys.readouterr().out
        assert all(option in shown for option in options.split())
