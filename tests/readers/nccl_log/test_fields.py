"""Numbers in records."""

from __future__ import annotations

import pytest

from alltrace.readers.nccl_log.fields import signed


@pytest.mark.parametrize(("text", "number"), [(b"(nil)", 0), (b"0x1f", 31), (b"0xffffffffffffffff", -1)])
def test_addresses_are_signed_numbers_and_nil_is_0(text, number):
    assert signed(text) == number
