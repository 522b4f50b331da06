from __future__ import annotations

import ctypes
import platform
import struct
from pathlib import Path

import pytest
from llvmlite import binding as llvm

from alltrace.trace import code_image, machine_code

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or llvm.llvm_version_info < (16,), reason="images are of x86-64 code, and of opaque pointers"
)

SUM = """
define i64 @add(i64 %a, i64 %b) {
  %c = add i64 %a, %b
  ret i64 %c
}
"""
CONSTANTS = """
@table = internal constant [4 x double] [double 1.5, double 2.5, double 4.0, double 8.0]
@where = internal constant [2 x ptr] [ptr @table, ptr getelementptr (i8, ptr @table, i64 16)]
define double @pick(i64 %n) {
  %at = getelementptr [2 x ptr], ptr @where, i64 0, i64 %n
  %found = load ptr, ptr %at
  %second = getelementptr double, ptr %found, i64 1
  %value = load double, ptr %second
  ret double %value
}
"""
OUTSIDE = """
declare double @pow(double, double)
declare ptr @memset(ptr, i32, i64)
define double @power(double %a, ptr %room) {
  %done = call ptr @memset(ptr %room, i32 7, i64 5)
  %found = call double @pow(double %a, double 3.0)
  %again = call double @pow(double %found, double 2.0)
  ret double %again
}
"""


def compiled(text: str) -> bytes:
    return bytes(machine_code._machine(anywhere=True).emit_object(llvm.parse_assembly(text)))


def opened(text: str, symbol: str, result, *arguments):
    whole = code_image.image(compiled(text), symbol)
    assert whole is not None
    assert whole.startswith(code_image.MAGIC)
    return ctypes.CFUNCTYPE(result, *arguments)(code_image.open_image(whole))


def test_code_runs_from_an_image():
    add = opened(SUM, "add", ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    assert add(2**40, -3) == 2**40 - 3


def test_constants_and_their_addresses_are_where_they_belong():
    first, second = (opened(CONSTANTS, "pick", ctypes.c_double, ctypes.c_int64) for _ in range(2))
    assert [first(0), first(1), second(0), second(1)] == [2.5, 8.0, 2.5, 8.0]


def test_the_c_library_is_called():
    room = ctypes.create_string_buffer(8)
    power = opened(OUTSIDE, "power", ctypes.c_double, ctypes.c_double, ctypes.c_void_p)
    assert power(2.0, ctypes.addressof(room)) == 64.0
    assert room.raw == b"\7\7\7\7\7\0\0\0"


@pytest.mark.parametrize(
    ("text", "symbol"),
    [
        (SUM, "subtract"),
        ("declare i64 @other(i64)\ndefine i64 @add(i64 %a) {\n %c = call i64 @other(i64 %a)\n ret i64 %c\n}", "add"),
        (
            "@kept = internal global i64 3\ndefine i64 @add(i64 %a) {\n %b = load i64, ptr @kept\n store i64 %a, ptr @kept\n"
            " ret i64 %b\n}",
            "add",
        ),
    ],
    ids=["another name", "a function of elsewhere", "data that change"],
)
def test_what_cannot_stand_alone_is_no_image(text, symbol):
    assert code_image.image(compiled(text), symbol) is None


def test_code_of_other_processors_is_no_image():
    code = bytearray(compiled(SUM))
    struct.pack_into("<H", code, 18, 183)  # EM_AARCH64
    assert code_image.image(bytes(code), "add") is None
    assert code_image.image(b"\xcf\xfa\xed\xfe" + bytes(100), "add") is None


@pytest.mark.parametrize("damage", [lambda _: b"", lambda w: w[:12], lambda w: b"x" + w[1:], lambda w: w[:32], lambda w: w[:33]])
def test_what_is_no_image_is_refused(damage):
    whole = code_image.image(compiled(CONSTANTS), "pick")
    with pytest.raises(ValueError, match="not an image"):
        code_image.open_image(damage(whole))


def test_memory_that_runs_cannot_be_written():
    code_image.open_image(code_image.image(compiled(SUM), "add"))
    at = ctypes.addressof(ctypes.c_char.from_buffer(code_image._OPEN[-1]))
    maps = [line.split() for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    (rights,) = (m[1] for m in maps if int(m[0].split("-")[0], 16) <= at < int(m[0].split("-")[1], 16))
    assert rights.startswith("r-x")
