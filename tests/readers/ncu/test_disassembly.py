"""The words of instructions, from a program that prints as nvdisasm does."""

from __future__ import annotations

import json
import sys

import pytest

from alltrace.readers.ncu.disassembly import Word, disassembled, find_nvdisasm
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
