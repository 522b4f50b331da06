from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.align.step_names import iteration_of, step_name

LONG = "9" * 400


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)",
            ("mixed", 46, 9, 8192, 42919),
        ),
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
            ("decode", 32, 0, 32, 55086),
        ),
        ("execute_context_2(100)_generation_0(0)", ("prefill", 2, 2, 100, None)),
        ("execute_context_1(888_788544)_generation_0(0)", ("prefill", 1, 1, 888, None)),
        ("execute_context_0_generation_4", ("decode", 4, 0, None, None)),
        ("execute_new_1_cached_3", ("mixed", 4, 1, None, None)),
        ("step[EXTEND bs=15 toks=15360]", ("prefill", 15, 15, 15360, None)),
        ("step[DECODE bs=32]", ("decode", 32, 0, 32, None)),
        ("step[TARGET_VERIFY bs=8]", ("target_verify", 8, None, None, None)),
        ("[Executor] _forward_step 6: 1 ctx reqs, 32 gen reqs", ("mixed", 33, 1, None, None)),
        ("decode[bs=4 tok=4]", ("decode", 4, 0, 4, None)),
        (f"step[DECODE bs={LONG}]", ("decode", None, 0, None, None)),
        (
            "execute_context_1(2)_generation_1(3)_generation_1(4)",
            None,
        ),  # where sizes end is not a matter of trying all brackets
        ("ProfilerStep#3", None),
        ("aten::mm", None),
    ],
)
def test_names_of_servers(name, said):
    assert iteration_of(name) == said
    if said:
        assert len(name) > 300 or step_name(name).role == "step"


@pytest.mark.parametrize("name", ["execute_context_1(" + ")_generation_1(" * 4_000, "step[" + "a" * 60_000])
def test_a_long_name_takes_no_square_of_its_length(name):
    begin = time.process_time()
    assert iteration_of(name) is None
    assert time.process_time() - begin < 1


@pytest.mark.slow
@given(st.text(max_size=60))
def test_any_text_is_read(text):
    for name in (text, f"step[{text}]", f"execute_context_1({text})_generation_2({text})"):
        iteration_of(name)
