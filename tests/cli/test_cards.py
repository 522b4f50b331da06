import argparse
import re
import subprocess

import pytest
from tests.recipes.questions.diagnose.test_cards import row, told

from alltrace.cli import cards
from alltrace.cli.cards import cards_text
from alltrace.recipes.questions.diagnose.cards import Proof, StepTimes

FOUND = told(
    row(
        "straggler",
        slowdown=1.25,
        where=f"sm90_{'x' * 120}",
        advice="Look at `nvidia-smi --query-gpu=clocks.sm,power.draw`, then drain it.",
    ),
    row("data-stall", range(16), severity="medium", lost_share=0.05, stalled_ns_per_step=2_804_702.0),
    row("fusion", severity="low", lost_ns=None, lost_share=None, opportunity_share=0.1),
    notes=["7 steps are judged; warm-up and checkpoint steps are left out"],
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_word_is_cut_at_any_width(width):
    text = cards_text(FOUND, width=width)
    assert max(map(len, text.splitlines())) <= width
    said = " ".join(text.replace(" \\\n", "\n").split())
    for card in FOUND.cards:
        for words in (card.what, card.who, card.cost, card.evidence, card.advice):
            assert " ".join(words.split()) in said
    assert re.search(r"where +sm90_x+…x+$", text, re.MULTILINE), "a name that is longer than a line loses its middle"
    assert re.search(r"\d\n *(%|ms|s|GB|µs)", text) is None, "a number stays with its unit"


@pytest.mark.parametrize("width", [60, 80, 110])
def test_a_command_can_be_copied(width):
    """A shell that gets the lines of a card runs the command of the advice."""
    words = ["echo", f"--query={'clocks,' * 20}end", "--format=csv", *(f"--option-{n}=value" for n in range(9))]
    text = cards_text(
        told(row("straggler", slowdown=1.25, advice=f"Run `{' '.join(words)}` on each node.")), width=width
    )
    script = text[text.index("`") + 1 : text.rindex("`")]
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == words[1:]
    (command,) = [
        line for line in cards_text(FOUND, width=width, run=f"/a{'/long' * 30}").splitlines() if "stragglers" in line
    ]
    assert command.endswith(f"/a{'/long' * 30}"), "the card's own command is one line"


def test_the_first_findings_alone_and_no_signs_of_a_trace():
    text = cards_text(FOUND, limit=1)
    assert "straggler" in text
    assert "data-stall" not in text
    assert "... 2 more findings; --limit shows more or fewer" in text
    text = cards_text(told(row("straggler", slowdown=1.25, where="\x1b[31mred\nline")))
    assert "\x1b" not in text
    assert "\\x1b[31mred\\nline" in text


def test_severities_are_in_colour_where_it_is_wanted(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert cards.wants_color()
    assert "\x1b[1;31m1  HIGH  straggler\x1b[0m" in cards_text(FOUND, color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", cards_text(FOUND, color=True)) == cards_text(FOUND)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not cards.wants_color()
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "dumb")
    assert not cards.wants_color()


def test_the_proof_is_a_command_and_no_finding_has_a_reason():
    proof = Proof("steps", {"per_step": True, "by": "rank"})
    assert proof.command("'my run'") == "alltrace recipe steps 'my run' --per-step --by rank"
    assert cards_text(told(notes=["nothing ran on a device"])) == "Nothing ran on a device.\n"


@pytest.mark.parametrize(
    ("terminal", "arguments", "has_cards"),
    [
        (False, (), True),
        (True, (), True),
        (True, ("--units", "ns"), False),
        (True, ("--format", "table"), False),
        (False, ("--format", "cards"), True),
    ],
)
def test_cards_are_the_form_without_another(tmp_path, capsys, monkeypatch, terminal, arguments, has_cards):
    from tests.making import kernel, make_run

    from alltrace.cli.main import main

    make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 1_000_000)]}})
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["diagnose", str(tmp_path / "run"), *arguments]) == 0
    out = capsys.readouterr().out
    assert ("\n   ranks " in out) == has_cards
    lines = [line for line in out.splitlines() if not line.startswith("   command ")]  # which is one line
    assert terminal or max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--units", "ns", "--format", "cards"], "--units ns works with tables"),
        (["--units", "auto", "--format", "csv"], "--units auto works with tables"),
    ],
)
def test_units_of_a_format_without_them_are_refused(tmp_path, capsys, arguments, complaint):
    from alltrace.cli.main import main

    assert main(["diagnose", str(tmp_path), *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_file_gets_the_cards_too(tmp_path):
    from alltrace.recipes.base import Answer
    from alltrace.recipes.questions.diagnose import COLUMNS, _schema
    from alltrace.trace.columns import table_of

    answer = Answer(table_of([row("straggler", slowdown=1.25)], COLUMNS, _schema()), COLUMNS)
    args = argparse.Namespace(output=tmp_path / "cards.txt", limit=None, picture=None, run=["my run"])
    cards.write_cards("diagnose", answer, {11: "node1", 12: "node1"}, args)
    assert args.output.read_text().endswith("command   alltrace recipe stragglers 'my run'\n")


@pytest.mark.parametrize(
    ("times", "marked", "width", "lines"),
    [
        ([10, 10, 10, 17, 17, 17, 17], 3, 80, ["\u2581\u2581\u2581\u2588\u2588\u2588\u2588", "   ^ step 3"]),
        ([10] * 59 + [17], 59, 66, ["\u2581" * 59 + "\u2588", "step 3 ^".rjust(60)]),
        # in half the width two steps are a bar, of which the longer one counts
        ([10] * 57 + [17, 10, 10], 57, 30, ["\u2581" * 28 + "\u2588\u2581", "step 3 ^".rjust(29)]),
        ([10, 17], 1, 7, ["\u2581\u2588", " ^", "step 3"]),
        ([10, 10], 0, 80, ["\u2581\u2581", "^ step 3"]),
    ],
)
def test_a_picture_of_steps_in_blocks(times, marked, width, lines):
    drawn = list(cards._bars(StepTimes(tuple(range(len(times))), tuple(times), marked, "step 3"), width))
    assert [line[13:] for line in drawn] == lines
    assert drawn[0].split()[:2] == ["by", "step"]
