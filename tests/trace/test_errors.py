import os
import pickle

import pytest

from alltrace.trace.errors import AlltraceError, DamageError, InputError, StrictError, UsageError, path_text, printable


def test_an_input_error_is_one_sentence_of_four_facts():
    error = InputError("a/b.sqlite", found="is empty", expected="a report", advice="export it again")
    assert str(error) == "a/b.sqlite: is empty; expected a report; export it again"
    assert str(InputError("x", found="is empty")) == "x: is empty"
    assert str(InputError("a\nb\x1b[31m\udcff", found="is empty")) == r"a\nb\x1b[31m\udcff: is empty"


def test_what_cannot_be_done_has_the_reason_of_the_system():
    denied = PermissionError(13, "Permission denied", "/runs/a")
    error = DamageError.cannot_be("read", "a", denied, expected="a run", advice="import it again")
    assert type(error) is DamageError
    assert str(error) == "a: it cannot be read (Permission denied); expected a run; import it again"
    assert str(InputError.cannot_be("written there", "a", ValueError("b\n"), what="the rows")) == (
        r"a: the rows cannot be written there (b\n)"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AlltraceError("x"), 3),
        (InputError("p", found="f", expected="e", advice="a"), 3),
        (StrictError("x"), 4),
        (UsageError("x"), 2),
    ],
)
def test_errors_come_through_a_process_boundary(error, code):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
    assert again.exit_code == code


def test_an_unknown_name_gets_a_hint():
    assert (
        str(UsageError.unknown("recipe", "kernel", ["kernels", "gaps"]))
        == "unknown recipe 'kernel'; did you mean kernels?"
    )
    assert (
        str(UsageError.unknown("recipe", "zzz", ["kernels", "gaps"]))
        == "unknown recipe 'zzz'; expected one of gaps, kernels"
    )


@pytest.mark.parametrize(
    ("text", "shown"), [("a b ü ✓", "a b ü ✓"), ("a\tb\r\n", r"a\tb\r\n"), ("\u202ex", r"\u202ex"), ("\x9b", r"\x9b")]
)
def test_nothing_unprintable_is_shown(text, shown):
    assert printable(text) == shown


def test_a_path_as_text():
    assert path_text("/logs/ü✓.log") == "/logs/ü✓.log"
    assert path_text(os.fsdecode(b"/logs/\xff.log")) == r"/logs/\xff.log"
