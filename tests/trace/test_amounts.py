import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.together import together

from alltrace.trace.amounts import amount, shortened, told_apart
from alltrace.trace.number_text import counted, number_ranges, numbered


@together(
    ("value", "unit", "digits", "shown"),
    [
        (12_412_345, "ns", 3, "12.4 ms"),
        (3_200_000_000, "bytes", 3, "3.20 GB"),
        (999_990, "ns", 3, "1.00 ms"),
        (999_990, "ns", 6, "999.990 µs"),
        (46, "ns", 4, "46 ns"),
        (0, "ns", 4, "0 ns"),
        (-12_412_345, "ns", 3, "-12.4 ms"),
        (99.1, "GB/s", 3, "99.1 GB/s"),
        (61_234_567_890_000, "ns", 3, "61,235 s"),
        (17.368, "%", 3, "17.4 %"),
        (1_234_567, None, 3, "1,234,567"),
        (None, "ns", 3, ""),
        (True, None, 3, "yes"),
    ],
)
def test_an_amount_has_the_unit_that_suits_it(value, unit, digits, shown):
    assert amount(value, unit, digits) == shown


def test_names_that_differ_in_the_middle_or_at_the_end_stay_apart():
    ends = [
        f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x{n}x64_execute_kernel__5x_cublas" for n in (64, 128, 256)
    ]
    assert len(set(told_apart(ends, 24))) == 3
    assert all(len(n) <= 24 for n in told_apart(ends, 24))
    tails = [
        f"void at::native::vectorized_elementwise_kernel<4, at::native::{n}>" for n in ("AddFunctor", "MulFunctor")
    ]
    assert told_apart(tails, 24) == ["void at::na…:AddFunctor>", "void at::na…:MulFunctor>"]
    assert told_apart(["short", "a" * 40, "a" * 40], 20) == ["short", shortened("a" * 40, 20), shortened("a" * 40, 20)]


@given(st.lists(st.text("ab_", min_size=0, max_size=40), max_size=8), st.integers(4, 30))
def test_names_are_never_too_long_and_keep_their_order(names, longest):
    cut = told_apart(names, longest)
    assert all(len(c) <= longest for c in cut)
    assert [c == n for c, n in zip(cut, names, strict=True) if len(n) <= longest] == [True] * sum(
        len(n) <= longest for n in names
    )
    assert len({(n, c) for n, c in zip(names, cut, strict=True)}) == len(set(names))


@given(st.text("abc", min_size=60, max_size=60), st.integers(0, 59), st.integers(8, 40))
def test_two_names_that_differ_in_one_place_differ_when_cut(name, place, longest):
    other = f"{name[:place]}X{name[place + 1 :]}"
    assert len(set(told_apart([name, other], longest))) == 2


@pytest.mark.parametrize(("number", "text"), [(0, "0 ranks"), (1, "1 rank"), (2, "2 ranks"), (1024, "1,024 ranks")])
def test_one_thing_has_no_s(number, text):
    assert counted(number, "rank") == text


def test_plurals_and_spans_of_numbers():
    assert [counted(n, "entry", "entries") for n in (1, 2)] == ["1 entry", "2 entries"]
    assert number_ranges([]) == "none"
    assert number_ranges([7, 0, 2, 1]) == "0-2, 7"
    assert (numbered("rank", [3]), numbered("Rank", [4, 3])) == ("rank 3", "Ranks 3-4")
