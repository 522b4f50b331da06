"""The contents of a report other than metrics: instances, sections, rules and code; and the listed instructions."""

from __future__ import annotations

import pytest
from tests.readers.ncu.building import block, code, cubin, inner, instance, launch, part, whole
from tests.readers.ncu.test_listing import PLACE, TABLE

from alltrace.readers.ncu.disassembly import Word
from alltrace.readers.ncu.listing import Listings
from alltrace.readers.ncu.read import read_report
from alltrace.trace.errors import InputError

START = 0x7F0000001000
STRINGS = ["inst_executed", "smsp__pcsamp_warps_issue_stalled_wait", "launch__function_pcs", "opcodes"]
BINARY = cubin(
    [(".text.f", b"\1" * 64), (".text.g", b"\2" * 32), (".debug_line", TABLE), (".nv_debug_ptx_txt", b"one\0two\0")],
    [(3, PLACE, 1, None)],
)


def of_metric(number, own, *values):
    return inner(13, whole(1, number) + inner(2, whole(5, own)) + b"".join(instance(k, v) for k, v in values))


LAUNCH = launch(
    of_metric(0, 96, (START, 32), (START + 16, 64), (START + 0x200, 5)),
    of_metric(1, 9, (START + 16, 9)),
    of_metric(2, START, (0, START)),
    of_metric(3, 3, ("MOV", 2), ("BRA", 1)),
    inner(5, "f"),
    inner(15, whole(1, 40)),
    inner(17, inner(1, "B") + inner(2, "Second") + whole(3, 20)),
    inner(17, inner(1, "A") + inner(2, "First") + whole(3, 10)),
    inner(19, inner(1, "R") + inner(2, "Rule") + inner(4, "A")),
)
FUNCTIONS = (("f", START), ("g", START + 0x200), ("data", 5))
HEAD = b"NVR\x00" + part(whole(1, 7))
REPORT = HEAD + block(
    STRINGS, [LAUNCH], [code(40, BINARY, FUNCTIONS[:1]), code(40, b"", FUNCTIONS[1:], [("/src/a.cu", "1\n2\nthree")])]
)


@pytest.fixture
def read(tmp_path):
    def made(data=REPORT, detail=True):
        path = tmp_path / "x.ncu-rep"
        path.write_bytes(data)
        return read_report(path, detail=detail)

    return made


def test_instances_sections_and_rules_are_read_with_detail_alone(read):
    (found,) = read().launches
    assert found.metrics["inst_executed"] == 96
    assert dict(found.instances) == {
        "inst_executed": [(START, 32), (START + 16, 64), (START + 0x200, 5)],
        "smsp__pcsamp_warps_issue_stalled_wait": [(START + 16, 9)],
        "launch__function_pcs": [(0, START)],
        "opcodes": [("MOV", 2), ("BRA", 1)],
    }
    assert [s.name for s in found.sections] == ["First", "Second"]
    assert (found.rules[0].name, found.mangled, found.code) == ("Rule", "f", 40)
    plain = read(detail=False)
    assert (len(plain.launches[0].instances), plain.launches[0].sections, plain.launches[0].rules, plain.codes) == (
        0,
        (),
        (),
        {},
    )
    assert plain.launches[0].metrics == found.metrics


def test_code_that_a_report_adds_to_is_one(read):
    (found,) = read().codes.values()
    assert found.binary == BINARY
    assert found.functions == dict(FUNCTIONS)
    assert found.files == {"/src/a.cu": "1\n2\nthree"}


def test_a_report_with_detail_that_is_cut_anywhere_is_an_error(read):
    for cut in range(len(HEAD), len(REPORT), 7):
        if cut == len(HEAD):
            continue
        with pytest.raises(InputError, match="damaged or cut short"):
            read(REPORT[:cut])


def listing(read, disassemble=None, data=REPORT):
    report = read(data)
    return Listings(disassemble).of(report.launches[0], report.codes.get(40))


def test_instructions_have_their_lines_and_values(read):
    found = listing(read)
    assert [(i.function, i.offset, i.address) for i in found.instructions] == [
        *(("f", n, START + n) for n in (0, 16, 32, 48)), *(("g", n, START + 0x200 + n) for n in (0, 16))
    ]  # fmt: skip
    assert [i.source and tuple(i.source) for i in found.instructions] == [
        ("/src/a.cu", 5), ("/src/a.cu", 3), ("/src/a.cu", 3), ("/src/b.h", 3), None, None
    ]  # fmt: skip
    second = {"inst_executed": 64, "smsp__pcsamp_warps_issue_stalled_wait": 9}
    assert [i.values for i in found.instructions] == [{"inst_executed": 32}, second, {}, {}, {"inst_executed": 5}, {}]
    assert found.sources == {"/src/a.cu": ["1", "2", "three"]}
    assert found.ptx == {".nv_debug_ptx_txt": ["one", "two"]}


def test_words_of_instructions_have_the_address_of_their_target(read):
    def words(binary):
        assert binary == BINARY
        return {"f": [Word(0, "MOV R1, R2", None), Word(16, "@P0 BRA", 32)]}

    found = listing(read, words)
    assert [i.text for i in found.instructions] == ["MOV R1, R2", f"@P0 BRA {START + 32:#x}", None, None, None, None]


def test_code_that_is_damaged_leaves_the_addresses(read):
    found = listing(read, data=REPORT.replace(BINARY, b"\0" * len(BINARY)))
    assert "not a 64-bit ELF" in found.problem
    assert (found.instructions[0].address, found.instructions[0].values) == (START, {"inst_executed": 32})
    assert len(found.instructions) == 3
    assert not Listings().of(read().launches[0], None).problem
