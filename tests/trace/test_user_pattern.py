import re
import time

import pytest
from tests.together import together

from alltrace.trace.errors import UsageError, encodable
from alltrace.trace.user_pattern import UserPattern


def test_it_finds_what_pythons_expressions_find_and_names_groups():
    texts = ["void gemm<float>(int)", "ncclDevKernel_AllReduce", "", "ü", "a\nb"]
    for pattern in ("gemm", "^nccl.*Reduce$", "(?i)NCCL", "[[:alpha:]]", "ü", "a.b"):
        expected = [re.search(pattern.replace("[[:alpha:]]", "[a-zA-Z]"), t) is not None for t in texts]
        if pattern != "[[:alpha:]]":
            assert UserPattern("--x", pattern).matches(texts) == expected
    assert UserPattern("--x", "x").matches([]) == []
    pattern = UserPattern("--x", r"step (?P<step>\d+) loss (?P<loss>[\d.]+)")
    assert pattern.names == {"step", "loss"}
    assert pattern.groups(["at step 5 loss 1.5", "no"]) == [{"step": "5", "loss": "1.5"}, None]
    assert UserPattern("--x", "no group").names == set()


@together("text", ["(", "(?=x)", r"(a)\1", "x" * 1001, "\ud800", "a\x00"])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(UsageError, match=r"--x is .*, which is not a valid regular expression"):
        UserPattern("--x", text)


def test_time_is_linear_and_texts_can_be_stored():
    begun = time.process_time()
    assert UserPattern("--x", r"(\w+)+!").matches(["a" * 100_000]) == [False]
    assert time.process_time() - begun < 2
    assert [encodable(t) for t in ("a", "", "🦀", "\ud800", "a\x00")] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (r"at (?P<step>\d+)(, loss (?P<loss>\S+))?", {"step", "loss"}),
        (r"[(](?P<rank>\d+)\((x|y)", {"rank"}),
        (r"[]()](?P<rank>\d+)", {"rank"}),
        (r"(a)(b)", set()),
    ],
)
def test_groups_without_a_name_group_and_nothing_else(text, names):
    assert UserPattern("--pattern", text).names == names


def test_what_groups_hold_beside_others_without_a_name():
    pattern = UserPattern("--pattern", r"at (?P<step>\d+)(, loss (?P<loss>\S+))?")
    assert pattern.groups(["at 3, loss 2.5", "at 4", "x"]) == [
        {"step": "3", "loss": "2.5"},
        {"step": "4", "loss": ""},
        None,
    ]
