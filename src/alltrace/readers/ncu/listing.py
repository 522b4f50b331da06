"""Lists the instructions of a launch with what was measured at each, from the code that its report holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from alltrace.readers.ncu.cubin import Cubin, line_at, read_cubin
from alltrace.readers.ncu.disassembly import Word
from alltrace.readers.wire import WireError
from alltrace.trace.kernel_code import Code, Instruction, Listing, Place
from alltrace.trace.launches import Launch

Disassembler = Callable[[bytes], dict[str, list[Word]]]

_MAJOR, _VOLTA = "device__attribute_compute_capability_major", 7
"""From Volta on an instruction has 16 bytes, before it had 8."""
_MOST = 2**62
_PCS = "launch__function_pcs"
_PER_ADDRESS = ("inst_executed", "thread_inst_executed", "thread_inst_executed_true", "memory_", "smsp__pcsamp_",
                "derived__memory_", "smsp__branch_targets", "smsp__inst_executed_memdesc", "smsp__sass_")  # fmt: skip


class Listings:
    """Makes listings; code that launches share is read once. `disassemble`: a binary's instructions; None for none."""

    def __init__(self, disassemble: Disassembler | None = None) -> None:
        self._disassemble = disassemble
        self._known: dict[int, tuple[Code, Cubin | None, dict[str, list[Word]], str]] = {}

    def of(self, launch: Launch, code: Code | None) -> Listing:
        """The instructions of a launch; without its code, those addresses at which something was measured."""
        measured = _measured(launch)
        if code is None or not code.binary:
            instructions = [Instruction(launch.mangled or launch.function, a, a, values=v) for a, v in sorted(measured.items())]
            return Listing(instructions, {}, {})
        _, cubin, words, problem = self._read(code)
        if cubin is None:
            instructions = [Instruction(launch.mangled or launch.function, a, a, values=v) for a, v in sorted(measured.items())]
            return Listing(instructions, {}, {}, problem)
        sources = {path: text.splitlines() for path, text in code.files.items()}
        step = 16 if (launch.number_of(_MAJOR) or _VOLTA) >= _VOLTA else 8
        return Listing(list(_instructions(launch, code, cubin, words, measured, step)), sources, cubin.ptx)

    def _read(self, code: Code) -> tuple[Code, Cubin | None, dict[str, list[Word]], str]:
        if id(code) not in self._known:
            cubin, problem = None, ""
            try:
                cubin = read_cubin(code.binary)
            except WireError as error:
                problem = str(error)
            words = self._disassemble(code.binary) if self._disassemble is not None and cubin is not None else {}
            self._known[id(code)] = (code, cubin, words, problem)
        return self._known[id(code)]


def _measured(launch: Launch) -> dict[int, dict[str, float]]:
    """Values by address and metric."""
    by_address: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for metric in launch.instances:
        if metric.startswith(_PER_ADDRESS):
            for address, value in launch.instances[metric]:
                if isinstance(address, int) and isinstance(value, (int, float)) and abs(value) < _MOST:  # false for NaN
                    by_address[address][metric] = value
    return by_address


def _instructions(
    launch: Launch,
    code: Code,
    cubin: Cubin,
    words: Mapping[str, list[Word]],
    measured: Mapping[int, dict[str, float]],
    step: int,
) -> Iterator[Instruction]:
    kernels = {value for _, value in launch.instances.get(_PCS, ())}
    functions = [n for n in cubin.functions if code.functions.get(n) in kernels or (not kernels and n == launch.mangled)]
    functions = functions or [n for n in cubin.functions if n == launch.mangled]
    for name, base in code.functions.items():  # those that it called
        if name in cubin.functions and name not in functions:
            size = cubin.functions[name].size
            if any(base <= address < base + size for address in measured):
                functions.append(name)
    only = next(iter(cubin.ptx)) if len(cubin.ptx) == 1 else ""  # older compilers leave its name out
    for name in functions:
        function = cubin.functions[name]
        start = code.functions.get(name)
        texts = {word.offset: word.shown(start) for word in words.get(name, ())}
        for offset in range(0, function.size, step):
            address = None if start is None else start + offset
            source, ptx = line_at(function.lines, offset), line_at(function.ptx_lines, offset)
            yield Instruction(
                name,
                offset,
                address,
                texts.get(offset),
                Place(source.file, source.line) if source and source.line else None,
                Place(ptx.file or only, ptx.line) if ptx and ptx.line else None,
                measured.get(address, {}) if address is not None else {},
            )
