"""Instructions in words, by NVIDIA's `nvdisasm`: a report holds the code only in binary."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from alltrace.trace.errors import UsageError

_SECONDS = 120
_ADVICE = "`pip install nvidia-cuda-nvdisasm`, or name the one of CUDA 12.8 or later with --nvdisasm PATH"


def find_nvdisasm(named: str | None) -> str:
    """The program: the one that is named, else the one on the path.

    Raises:
        UsageError: There is none.
    """
    found = shutil.which(named or "nvdisasm")
    if found is None:
        raise UsageError(f"--sass: there is no {named or 'nvdisasm on the path'}; {_ADVICE}")
    return found


def disassembled(binary: bytes, program: str) -> dict[str, list[tuple[int, str]]]:
    """Offset and text of each instruction, by the mangled name of the function.

    Raises:
        UsageError: The program fails, or prints what this version does not know.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(binary)
        try:
            done = subprocess.run([program, "-json", str(path)], capture_output=True, timeout=_SECONDS, check=False)
            functions = json.loads(done.stdout)[1]
            return {each["function-name"]: _instructions(each) for each in functions}
        except (OSError, subprocess.TimeoutExpired, ValueError, LookupError, TypeError, AttributeError, ZeroDivisionError) as error:
            found = f"{program} -json does not print code as nvdisasm of CUDA 12.8 does ({error})"
            raise UsageError(f"--sass: {found}; {_ADVICE}") from error


def _instructions(function: Any) -> list[tuple[int, str]]:
    found = function["sass-instructions"]
    size = function["length"] // len(found)
    return [(function["start"] + n * size, _text(each)) for n, each in enumerate(found)]


def _text(instruction: Any) -> str:
    operands = ", ".join(str(instruction.get("operands", "")).split(","))
    return " ".join(part for part in (instruction.get("predicate", ""), instruction["opcode"], operands) if part)
