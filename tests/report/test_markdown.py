import html
import re

from tests.charts.answers import HOSTILE
from tests.making import make_run

from alltrace.report import gather, to_markdown
from alltrace.report.markdown import literal


def test_a_report_for_a_pull_request_has_findings_and_no_markup(hostile_run):
    text = to_markdown(gather(hostile_run, "nightly @team", pictures=False))
    assert text.startswith(
        "# alltrace: nightly @&#8203;team\n\n4 ranks, 1 host, 4 devices, 69.00 ms from first to last event\n"
    )
    assert "## What costs time" in text
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>") == 5
    assert "- device\n  - parallel efficiency: " in text
    assert "rank 4: no report" in text
    text = to_markdown(gather(hostile_run, HOSTILE[0], pictures=False))
    assert "<img" not in text
    assert "<script" not in text
    assert "<b>" not in text
    assert all(line.isprintable() for line in text.split("\n"))
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)


def test_a_name_is_no_link():
    for name in ("see http://a.example", "www.a.example/x", "(WWW.a.example)", "x-www.a.example"):
        assert not re.search(r"(?i)://|www\.", literal(name))
        assert html.unescape(literal(name)).replace("\u200b", "") == name


def test_an_empty_run_says_so(tmp_path):
    text = to_markdown(gather(make_run(tmp_path, {}), "empty", pictures=False))
    assert "**Nothing could be judged.**" in text
    assert "No data." in text
