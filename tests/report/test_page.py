import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import pyarrow as pa
import pytest
from tests.charts.answers import HOSTILE
from tests.making import make_run
from tests.recipes.questions.diagnose.test_cards import row, told

from alltrace.charts.timeline_links import PAGE
from alltrace.recipes.base import Answer
from alltrace.report import Report, gather, to_html, to_markdown
from alltrace.report.content import ASKS, Section
from alltrace.report.markdown import literal
from alltrace.report.page import check_plotly
from alltrace.trace.errors import UsageError

VOID = {"meta", "br", "img", "input", "link"}


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links, self.ids, self.text, self.blocks = [], [], [], [], [], {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, given))
        self.links += [v for k, v in attributes if k in ("src", "href", "action")]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in VOID:
            self.open.append((tag, given.get("id")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][0] in ("script", "style"):
            self.blocks[self.open[-1]] = data
        else:
            self.text.append(data)


@pytest.fixture
def page(hostile_run):
    """The page of the hostile run, and its text."""
    text = to_html(gather(hostile_run, HOSTILE[1]))
    return Page(text), text


def test_the_verdict_and_whole_cards_are_told_or_why_there_are_none():
    findings = Section(next(a for a in ASKS if a.key == "findings"), None, "rank 3: <damaged>")
    text = to_html(Report("a run", {"ranks": 1, "hosts": 1, "devices": 1, "span_ns": 5}, "", (findings,)))
    assert "rank 3: <damaged>" in Page(text).text
    advice = "Look at the clocks. " * 40
    found = told(row("straggler", slowdown=1.25, advice=advice, where="<b>gemm"), notes=["7 steps are judged"])
    findings = Section(next(a for a in ASKS if a.key == "findings"), Answer(pa.table({"kind": ["straggler"]}), ()))
    report = Report("a run", {"ranks": 16, "hosts": 1, "devices": 16, "span_ns": 5}, "", (findings,), found)
    text = Page(to_html(report)).text
    assert text.count(found.verdict) == 1
    for words in (found.cards[0].what, found.cards[0].cost, found.cards[0].evidence, advice, "<b>gemm"):
        assert any(words in t for t in text), words
    marked = to_markdown(report)
    assert f"**{literal(found.verdict)}**" in marked
    assert literal(advice) in marked
    assert "`alltrace recipe stragglers RUN`" in marked


def unpacked(page, name):
    return gzip.decompress(base64.b64decode(page.blocks["script", name]))


def test_the_page_is_whole_and_every_section_has_its_place(page):
    parsed, _ = page
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {link[1:] for link in parsed.links if not link.startswith(PAGE)} <= set(parsed.ids)
    words = " ".join(parsed.text)
    assert "4 ranks" in re.sub(r"\s+", " ", words)
    assert "rank 4: no report" in words


def test_nothing_is_loaded_from_anywhere(page):
    parsed, _ = page
    places = [a["href"] for tag, a in parsed.tags if tag == "a" and a.get("class") == "place"]
    assert places
    assert all(link.startswith("#") or link in places for link in parsed.links)
    assert all(link.startswith(f"{PAGE}#timeline?") for link in places)
    policy = next(a["content"] for t, a in parsed.tags if t == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    digest = base64.b64encode(hashlib.sha256(parsed.blocks["script", None].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}' blob:" in policy


def test_names_from_a_trace_are_text(page):
    parsed, text = page
    assert "img" not in {t for t, _ in parsed.tags}
    assert "<b>bold" not in text
    assert all(not name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert len([t for t, _ in parsed.tags if t == "script"]) == 3
    words = "".join(parsed.text)
    assert HOSTILE[0] in words
    assert HOSTILE[1] in words


def test_charts_travel_packed_and_whole(page):
    parsed, _ = page
    figures = json.loads(unpacked(parsed, "figures"))
    drawn = [a["data-figure"] for _, a in parsed.tags if "data-figure" in a]
    assert set(drawn) <= set(figures)
    assert {"breakdown:", "activity:compute", "activity:idle", "kernels:"} <= set(figures)
    assert not {"<", ">", "$"} & set(json.dumps(figures, ensure_ascii=False))
    assert unpacked(parsed, "plotly") == check_plotly().read_bytes()


@pytest.mark.parametrize("rows", [{}, {0: {}}], ids=["no rank", "no event"])
def test_an_empty_run_has_a_page_that_says_so(rows, tmp_path):
    parsed = Page(to_html(gather(make_run(tmp_path, rows), "empty")))
    words = "".join(parsed.text)
    assert words.count("No data.") >= 8
    assert json.loads(unpacked(parsed, "figures")) == {}


def test_plotly_that_is_not_there_is_said_before_the_work(monkeypatch):
    monkeypatch.setattr("alltrace.report.page.find_spec", lambda _name: None)
    with pytest.raises(UsageError, match="need plotly, which is not installed"):
        check_plotly()


def test_times_lead_to_where_the_page_is_served(hostile_run):
    parsed = Page(to_html(gather(hostile_run, "r"), 'http://host:1/"><b>'))
    places = [a["href"] for tag, a in parsed.tags if tag == "a" and a.get("class") == "place"]
    assert places
    assert all(p.startswith('http://host:1/"><b>#timeline?') for p in places)
    assert parsed.open == []
