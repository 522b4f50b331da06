"""Instructions in words, by NVIDIA's `nvdisasm`: a report holds the code only in binary."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.trace.errors import UsageError
from alltrace.trace.scratch import scratch_folder

_SECONDS = 120
_ADVICE = "`pip install nvidia-cuda-nvdisasm`, or give the path of the one from CUDA 12.8 or later with --nvdisasm PATH"


class Word(NamedTuple):
    """An instruction."""

    offset: int  # its place in the function
    text: str  # the instruction, without its target
    target: int | None  # offset in the function that it jumps to; None if it does not, or to what is not known

    def shown(self, start: int | None) -> str:
        """The text, with the address of its target if the function's address is known."""
        return self.text if self.target is None else f"{self.text} {self.target + (start or 0):#x}"


def find_nvdisasm(named: str | None) -> str:
    """The program: the one that is named, else the one on the path. Raises `UsageError`: there is none."""
    program = shutil.which(named or "nvdisasm")
    if program is None:
        raise UsageError(f"--sass: {named or 'nvdisasm'} was not found; {_ADVICE}")
    return program


def disassembled(binary: bytes, program: str) -> dict[str, list[Word]]:
    """The instructions of each function by mangled name. Raises `UsageError`: it fails, or prints what is unknown."""
    with scratch_folder("alltrace-code-") as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(binary)
        try:
            done = subprocess.run([program, "-json", str(path)], capture_output=True, timeout=_SECONDS, check=False)
            functions = json.loads(done.stdout)[1]
            return {each["function-name"]: _instructions(each) for each in functions}
        except (
            OSError,
            subprocess.TimeoutExpired,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            ZeroDivisionError,
        ) as error:
            problem = f"{program} -json does not print code as nvdisasm of CUDA 12.8 does ({error})"
            raise UsageError(f"--sass: {problem}; {_ADVICE}") from error


def _instructions(function: Any) -> list[Word]:
    words = function["sass-instructions"]
    size = function["length"] // len(words)
    return [_word(function["start"] + n * size, each, function["length"]) for n, each in enumerate(words)]


def _word(offset: int, instruction: Any, length: int) -> Word:
    operands = str(instruction.get("operands", "")).split(",")
    target = None
    if instruction.get("other-attributes", {}).get("control-flow") and re.fullmatch("0x[0-9a-f]+", operands[-1]):
        target = int(operands[-1], 16)
    if target is not None and target < length:
        operands.pop()
    else:  # a mask of threads
        target = None
    predicate = instruction.get("predicate", "")
    if predicate and not predicate.startswith("@"):  # it takes an operand that is a predicate for one
        predicate, operands = "", [operands[0], predicate, *operands[1:]]
    text = " ".join(part for part in (predicate, instruction["opcode"], ", ".join(operands)) if part)
    return Word(offset, text + ("," if operands and target is not None else ""), target)
