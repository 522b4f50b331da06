"""The help of `nsys stats` and `nsys analyze` on one report, rule or format."""

import re

import pytest
from tests.together import together

from alltrace.cli.main import main
from alltrace.cli.nsys.forms import ENDINGS, FORMATS, format_reference, parse_form
from alltrace.cli.nsys.reports import EARLIER_NAMES, Reports
from alltrace.cli.nsys.rules import TITLES, Rules
from alltrace.recipes.registry import REPORTS, find_report

_ARGUMENT = re.compile(r"^    :([a-z-]+)(=VALUE)?: ", re.MULTILINE)


@together("name", REPORTS)
def test_a_report_accepts_the_arguments_that_its_help_lists_and_has_its_columns(name):
    text = Reports().reference(name)
    arguments = _ARGUMENT.findall(text)
    assert {a.replace("-", "_") for a, _ in arguments} == {o.name for o in find_report(name).options}
    for argument, value in arguments:
        find_report(f"{name}:{argument}=1" if value else f"{name}:{argument}")
    columns = text.partition("Columns:")[2]
    assert all(f"    {cell.title.strip()}: " in columns for cell in find_report(name).cells)


def test_an_earlier_name_has_the_help_of_its_successor():
    assert all(Reports().reference(old) == Reports().reference(new) for old, new in EARLIER_NAMES.items())


@together("name", TITLES)
def test_a_rule_has_its_title_and_its_advice(name):
    text = Rules().reference(name)
    assert text.startswith(f"{name} -- {TITLES[name]}\n")
    assert max(map(len, text.splitlines())) <= 80


def test_formats_accept_the_arguments_that_their_help_lists():
    assert FORMATS.keys() == ENDINGS.keys()
    for name in FORMATS:
        for argument in re.findall(
            r":([a-z]+)", "".join(re.findall(r"^    (:[^ ].*?): ", format_reference(name), re.MULTILINE))
        ):
            values = {"dur": "us", "ts": "us", "time": "us", "mem": "KB", "thru": "KB", "bytes": "KB"}
            parsed = parse_form(
                f"{name}:{argument}={values[argument]}" if argument in values else f"{name}:{argument}", None, "csv"
            )
            assert parsed.name == name


@pytest.mark.parametrize(
    ("command", "option", "name", "shown"),
    [
        ("stats", "--help-reports", "osrt_sum", "osrt_sum -- "),
        ("stats", "--help-formats", "csv", ":nohdr: No header."),
        ("stats", "--help-formats", "ALL", "htable -- an HTML table"),
        ("analyze", "--help-rules", "gpu_gaps", ":gap=VALUE: "),
    ],
)
def test_on_the_command_line(capsys, command, option, name, shown):
    assert main(["nsys", command, option, name]) == 0
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("stats", "--help-reports"), ("stats", "--help-formats"), ("analyze", "--help-rules")]
)
def test_a_name_that_does_not_exist_is_refused(capsys, words):
    assert main(["nsys", *words, "nope"]) != 0
    assert "nope" in capsys.readouterr().err
