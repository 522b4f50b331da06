"""The words of instructions, from a program that prints as nvdisasm does."""

from __future__ import annotations

import json
import random
import sys

import pytest
from tests.readers.ncu.building import END, SET_ADDRESS, cubin, line_table
from tests.together import together

from alltrace.readers.ncu.disassembly import Word, disassembled, find_nvdisasm
from alltrace.readers.ncu.listing import line_at, read_cubin
from alltrace.readers.wire import WireError
from alltrace.trace.errors import UsageError

JUMP = {"control-flow": "True"}
INSTRUCTIONS = [
    {"opcode": "S2R", "operands": "R2,SR_TID.X"},
    {"predicate": "@!P0", "opcode": "BRA", "operands": "0x20", "other-attributes": JUMP},
    {"opcode": "BSSY", "operands": "B0,0x30", "other-attributes": JUMP},
    {"opcode": "WARPSYNC", "operands": "0xffffffff", "other-attributes": JUMP},
    {"predicate": "PR", "opcode": "P2R", "operands": "R1,R2,0xf"},
    {"predicate": "@P0", "opcode": "EXIT", "other-attributes": JUMP},
]


def program(tmp_path, printed):
    path = tmp_path / "nvdisasm"
    path.write_text(f"#!{sys.executable}\nprint({printed!r})\n")
    path.chmod(0o755)
    return str(path)


def test_instructions_have_words_and_targets(tmp_path):
    printed = json.dumps([{}, [{"function-name": "f", "start": 0, "length": 96, "sass-instructions": INSTRUCTIONS}]])
    assert disassembled(b"code", program(tmp_path, printed)) == {
        "f": [
            Word(0, "S2R R2, SR_TID.X", None), Word(16, "@!P0 BRA", 32), Word(32, "BSSY B0,", 48),
            Word(48, "WARPSYNC 0xffffffff", None), Word(64, "P2R R1, PR, R2, 0xf", None), Word(80, "@P0 EXIT", None),
        ]
    }  # fmt: skip
    assert Word(16, "BRA", 32).shown(0x1000) == "BRA 0x1020"
    assert Word(16, "BRA", 32).shown(None) == "BRA 0x20"


@pytest.mark.parametrize(
    "printed", ["", "old format", "[]", "[{}, [{}]]", '[{}, [{"function-name": "f", "sass-instructions": []}]]']
)
def test_another_program_is_refused_in_a_sentence(tmp_path, printed):
    with pytest.raises(UsageError, match=r"--sass: .* -json does not print code as nvdisasm of CUDA 12\.8 does"):
        disassembled(b"code", program(tmp_path, printed))


def test_a_program_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="nvdisasm was not found; `pip install nvidia-cuda-nvdisasm`"):
        find_nvdisasm(None)
    with pytest.raises(UsageError, match="/x/nvdisasm was not found"):
        find_nvdisasm("/x/nvdisasm")


# Code of kernels made by hand: functions, and lines of the source and of the PTX.


PROGRAM = SET_ADDRESS + bytes((3, 4, 1)) + bytes((2, 16, 3, 0x7E, 1)) + bytes((2, 32, 4, 2, 1)) + bytes((2, 16)) + END
TABLE = line_table(PROGRAM, ("a.cu", "b.h"), ("/src",))
PLACE = len(TABLE) - len(PROGRAM) + 3
PTX = b"// first\0mov.u32 r1;\0\0ret;\0"
FILE = cubin(
    [(".text.f", b"\1" * 64), (".text.g", b"\2" * 32), (".debug_line", TABLE), (".nv_debug_ptx_txt", PTX)],
    [(3, PLACE, 1, None)],
)


def test_functions_have_their_lines():
    found = read_cubin(FILE)
    assert {name: f.size for name, f in found.functions.items()} == {"f": 64, "g": 32}
    assert found.ptx == {".nv_debug_ptx_txt": ["// first", "mov.u32 r1;", "", "ret;"]}
    lines = found.functions["f"].lines
    assert [tuple(row) for row in lines] == [(0, "/src/a.cu", 5), (16, "/src/a.cu", 3), (48, "/src/b.h", 3)]
    assert found.functions["g"].lines == []
    assert [line_at(lines, offset)[2] for offset in (0, 15, 16, 47, 48, 1000)] == [5, 5, 3, 3, 3, 3]
    assert line_at([], 0) is None


def test_an_addend_moves_the_lines():
    found = read_cubin(cubin([(".text.f", b"\1" * 64), (".debug_line", TABLE)], [(2, PLACE, 1, 16)]))
    assert [row.offset for row in found.functions["f"].lines] == [16, 32, 64]


def test_every_opcode_of_a_line_program():
    program = (
        SET_ADDRESS + bytes((20,)) + bytes((8, 1)) + bytes((9, 5, 0, 1)) + bytes((5, 1, 6, 7, 10, 11, 12, 1, 1)) + END
    )
    # 20: advances no byte and 5 lines; 8: as 255 would, 17 bytes; 9: 5 bytes; 5, 6, 7, 10 to 12 have no effect on rows
    # or are special opcodes 10 to 12, which add a row 5 to 3 lines before
    table = line_table(program)
    found = read_cubin(
        cubin([(".text.f", b"\1"), (".debug_line", table)], [(2, len(table) - len(program) + 3, 1, None)])
    )
    rows = [(row.offset, row.line) for row in found.functions["f"].lines]
    assert rows[:3] == [(0, 6), (17, 6), (22, 6)]
    assert rows[3:] == [(22, 1), (22, -3), (22, -6), (22, -6), (22, -6)]


@pytest.mark.parametrize(("version", "after"), [(3, b""), (4, b"\1")])
def test_later_versions_of_line_tables(version, after):
    table = line_table(PROGRAM, version=version, after_version=after)
    found = read_cubin(
        cubin([(".text.f", b"\1" * 64), (".debug_line", table)], [(2, len(table) - len(PROGRAM) + 3, 1, None)])
    )
    assert [row.line for row in found.functions["f"].lines] == [5, 3, 3]


def test_a_table_of_an_unknown_version_is_passed_over():
    both = line_table(PROGRAM, version=7) + TABLE
    place = len(both) - len(PROGRAM) + 3
    found = read_cubin(cubin([(".text.f", b"\1" * 64), (".debug_line", both)], [(2, place, 1, None)]))
    assert [row.line for row in found.functions["f"].lines] == [5, 3, 3]


@together(
    ("binary", "found"),
    [
        (b"", "not a 64-bit ELF"),
        (b"\x7fELF\x01\x01" + b"\0" * 60, "not a 64-bit ELF"),
        (b"\x7fELF\x02\x01", "cut short"),
        (FILE[:-1], "without its table of sections"),
        (cubin([(".debug_line", line_table(PROGRAM)[:-4])]), "longer than its section"),
        (cubin([(".debug_line", line_table(SET_ADDRESS + bytes((0, 99, 1))))]), "cut short"),
        (cubin([(".debug_line", line_table(bytes((2,)) + b"\xff" * 12))]), "does not end"),
    ],
)
def test_damage_is_an_error(binary, found):
    with pytest.raises(WireError, match=found):
        read_cubin(binary)


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_is_an_error_or_an_answer(seed):
    draw = random.Random(seed)
    read = 0
    for _ in range(200):
        data = bytearray(FILE)
        for _ in range(draw.randint(1, 5)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            read_cubin(bytes(data))
        except WireError:
            continue
        read += 1
    assert 20 < read < 200
