"""The documentation names everything there is, and what it says is so."""

import argparse
import importlib
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tools import make_docs

from alltrace.cli.registry import CAPTURE_VERBS, VERBS
from alltrace.cli.verbs.check import _budget as read_budget
from alltrace.recipes.questions.check import read_limits
from alltrace.recipes.questions.diagnose.finding import EVIDENCE
from alltrace.recipes.registry import NVIDIA_RECIPES, RECIPES, REPORTS, find, find_report
from alltrace.recipes.terms import KIND_MEANINGS
from alltrace.synth import SCENARIOS, write_run
from alltrace.trace.errors import EXIT_BREACH, EXIT_DONE, EXIT_INPUT, EXIT_STRICT, EXIT_USAGE
from alltrace.trace.schema import TABLES
from tests.together import together

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
EVERY_PAGE = together("page", PAGES)


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")


def section(page, title):
    """What stands under a heading, up to the next of its level or above."""
    level = title.split()[0]
    found = re.search(rf"^{re.escape(title)}$\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {title!r}"
    return found[1]


def test_the_pages_made_from_the_code_are_up_to_date():
    stale = [p.name for p, text in make_docs.rendered().items() if p.read_text(encoding="utf-8") != text]
    assert not stale, "run python tools/make_docs.py"


@pytest.mark.slow
def test_what_the_first_pages_show_is_what_is_printed():
    command = [sys.executable, str(ROOT / "tools" / "make_readme.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@together("verb", [v.name for v in VERBS])
def test_every_verb_is_described_with_its_options_and_an_example(verb):
    own = section(text_of("cli.md"), f"### `alltrace {verb}`")
    assert re.search(rf"(Example: `|<!-- output of: )alltrace {verb} ", own)
    whole = own + section(text_of("cli.md"), "## Options that many verbs share")
    parser = argparse.ArgumentParser(add_help=False)
    next(v for v in VERBS if v.name == verb).command().configure(parser)
    for action in parser._actions:
        assert all(re.search(rf"[`\s]{flag}[`\s,]", whole) for flag in action.option_strings), action.option_strings


@EVERY_PAGE
def test_code_blocks_are_closed_and_separated_from_text(page):
    inside, blocks, after = False, 0, None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if re.match(r" *```", line):
            assert not inside or line.strip() == "```", f"line {number}: a block opens inside of another"
            assert not inside or blocks, f"line {number}: an empty block"
            inside, blocks, after = not inside, 0, None if not inside else number
        elif inside:
            blocks += 1
        elif after == number - 1:
            assert not line.strip() or line.startswith("<!--"), f"line {number}: text follows a block"
    assert not inside


def test_every_verb_is_described_once():
    titles = re.findall(r"^### `alltrace (.+)`$", text_of("cli.md"), re.MULTILINE)
    assert sorted(titles) == sorted(v.name for v in VERBS)


def test_the_budget_that_is_shown_is_one_that_check_takes(tmp_path):
    (text,) = re.findall(
        r"^```toml\n(.*?)^```", section(text_of("cli.md"), "### `alltrace check`"), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "budget.toml").write_text(text, encoding="utf-8")
    limits = read_limits(read_budget(tmp_path / "budget.toml"), "budget.toml")
    assert [limit.name for limit in limits[-1:]] == ["the gemm"]


@together("name", [*RECIPES, *(f"stats:{r}" for r in REPORTS)])
def test_every_recipe_and_report_is_described_with_its_options_and_columns(name):
    recipe = find_report(name[6:]) if name.startswith("stats:") else find(name)
    page = text_of("recipes.md")
    reports = page.index("\n# The reports of nsys stats")
    own = section(page[reports:] if name.startswith("stats:") else page[:reports], f"## `{recipe.name}`")
    # what the recipes of nsys share is told once, above them
    shared = (
        page[page.index("\n# The recipes of nsys") : page.index("\n## ", page.index("\n# The recipes of nsys"))]
        if recipe.name in NVIDIA_RECIPES
        else ""
    )
    for option in recipe.options:
        assert f"| `--{option.name.replace('_', '-')}` |" in shared + own
    flags = {o.name: o.default for o in recipe.options if o.type is bool}
    for options in recipe.option_sets():
        if flags.items() <= options.items():
            for column in recipe.answer_columns(options):
                assert f"`{column.name}` | {column.unit or ''} |" in own.replace("`**", "`")


@together("name", TABLES)
def test_every_table_is_described_with_its_columns_and_units(name):
    own = section(text_of("tables.md"), f"### `{name}`")
    for column in TABLES[name].columns:
        unit = "ns" if column.type == "time" else column.unit or ""
        assert f"| `{column.name}` | {column.type} | {unit} |" in own


def test_every_exit_code_scenario_and_variable_is_described():
    codes = section(text_of("cli.md"), "## Exit codes")
    for code in (EXIT_DONE, EXIT_BREACH, EXIT_USAGE, EXIT_INPUT, EXIT_STRICT, 130):
        assert f"| {code} |" in codes
    assert all(f"`{s}`" in text_of("synth.md") for s in SCENARIOS)
    source = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "src").rglob("*.py"))
    variables = section(text_of("cli.md"), "## Environment variables")
    assert all(f"`{v}`" in variables for v in set(re.findall(r'"(ALLTRACE_[A-Z_]+)"', source)))


def test_every_kind_of_finding_is_described_with_its_evidence():
    own = section(text_of("diagnose.md"), "## Kinds")
    assert all(f"| `{kind}`" in own or f", `{kind}`" in own for kind in KIND_MEANINGS)
    # what the evidence of a capture-fault counts follows from its place
    counted = {
        "lost_records",
        "of_records",
        "reports",
        "without_ranges",
        "graph_launches",
        "components",
        "first_step",
        "first_missing_step",
    }
    told = {name for name in EVIDENCE if f"`{name}`" in text_of("diagnose.md")}
    assert set(EVIDENCE) - told == {*counted, "steps"}


def test_every_recipe_that_a_page_names_exists():
    pages = [*make_docs.DOCS.glob("*.md"), make_docs.ROOT / "README.md"]
    texts = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"(?:`|alltrace )recipe ([a-z][\w-]*)", texts))
    assert len(named) > 40
    # the example of how to write one
    assert named - {*RECIPES, *NVIDIA_RECIPES, "all"} == {"longest-kernels"}


@together("view", ["overview", "timeline", "events", "recipes", "compare", "roofline"])
def test_every_value_of_an_address_is_described(view):
    line = next(ln for ln in section(text_of("ui.md"), "## Addresses").splitlines() if ln.startswith(f"| `{view}` |"))
    module = (ROOT / "src" / "alltrace" / "ui" / "static" / f"{view}.js").read_text(encoding="utf-8")
    read = set(re.findall(r"\bvalues\.([a-z_]+)\b(?!\()", module))
    assert read
    assert all(f"`{name}`" in line for name in read)


@EVERY_PAGE
def test_every_link_leads_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "``", text)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path) if path else page
        assert place.exists(), target
        if anchor:
            assert anchor in anchors(place.read_text(encoding="utf-8")), target


GUIDES = [DOCS / "start.md", *sorted((DOCS / "guides").glob("*.md")), *sorted((DOCS / "concepts").glob("*.md"))]


@together("page", GUIDES)
def test_every_command_of_a_guide_is_one_that_alltrace_takes(page):
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks = "\n".join(block for language, block in fenced if not language).replace("\\\n", " ")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [*blocks.splitlines(), *(code for code in re.findall(r"`([^`\n]+)`", prose) if " " in code)]
    commands = [found[1] for line in lines if (found := re.search(r"\b(alltrace [a-z].*)", line))]
    assert commands or page.stem == "waiting"
    for command in commands:
        _program, verb, *values = shlex.split(command.partition(" | ")[0], comments=True)
        values = values[: values.index("--")] if "--" in values else values  # what follows is a program
        if any(not v.startswith("-") for v in values[verb == "capture" :]):  # a sentence names verbs without arguments
            parses(verb, values)


def parses(verb, values):
    """Fail where a verb does not take these arguments."""
    names = CAPTURE_VERBS if verb == "capture" else VERBS
    if verb == "capture":
        verb, *values = values
    assert verb in {v.name for v in names}, verb
    if verb in ("nsys", "recipe", "stats"):  # they have options of each report
        return
    parser = argparse.ArgumentParser()
    next(v for v in names if v.name == verb).command().configure(parser)
    parser.parse_args(values)


def anchors(text):
    """The anchors that a page's headings get."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


@EVERY_PAGE
def test_no_page_names_a_path_of_somebodys_machine(page):
    found = re.findall(r"(?<![\w.])/(?:home|root|Users|work|tmp|mnt|scratch)/\S*", page.read_text(encoding="utf-8"))
    assert not found


def test_the_examples_of_the_library_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLTRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0}, raising=False)
    write_run("tiny", "reports", ideal=True)
    blocks = re.findall(r"^```python\n(.*?)^```", text_of("library.md"), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 4
    names = {}
    for block in blocks:
        exec(compile(block, "library.md", "exec"), names)
    assert [r.rank for r in names["run"].ranks] == [0, 1]
    assert names["run"].hosts == ("node001", "node002")
    assert names["table"].num_rows == 2
    assert capsys.readouterr().out == "unknown recipe 'brekdown'; did you mean breakdown?\n"


@together("kind", ["nccl", "nccl-tests", "training", "flight-recorder", "inspector"])
def test_every_view_of_logs_is_described_with_its_columns(kind):
    own = section(text_of("logs.md"), f"## `logs {kind}`")
    for view, columns in make_docs.log_columns(kind).items():
        table = section(own, f"### `--view {view}`")
        assert all(f"| `{c.name}` |" in table for c in columns)


def test_every_question_to_a_history_is_described_with_its_columns():
    from alltrace.history.questions import COLUMNS

    for by, columns in COLUMNS.items():
        table = re.search(
            rf"<!-- columns of: history {by} -->\n(.*?)<!-- end of columns -->", text_of("history.md"), re.DOTALL
        )
        assert table is not None
        assert all(f"| `{c.name}` |" in table[1] for c in columns)


def _has(module, name):
    try:
        return hasattr(importlib.import_module(module), name) or find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError:
        return False


def test_what_a_newcomer_copies_fits_the_tree():
    """What CONTRIBUTING.md imports exists, lines around those that it adds are in their files, its recipe is the
    template."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    added = re.findall(r"(?m)^\+from (alltrace[\w.]*) import (.+)$", text)
    lost = [
        f"{module}: {name}"
        for module, names in added
        for name in names.split(", ")
        if not _has(module, name.split()[0])
    ]
    path = ROOT
    for line in "\n".join(re.findall(r"(?ms)^```diff\n(.*?)^```", text)).splitlines():
        if line.startswith(("--- ", "+++ ")):
            path = ROOT / line[4:].removeprefix("a/").removeprefix("b/")
        elif line[:1] in (" ", "-") and line[1:] not in path.read_text(encoding="utf-8").splitlines():
            lost.append(f"{path.relative_to(ROOT)}: {line[1:].strip()}")
    assert not lost
    template = (ROOT / "examples" / "recipe_package" / "longest_kernels.py").read_text(encoding="utf-8")
    assert "".join(f"+{line}\n" for line in template.splitlines()) in text
