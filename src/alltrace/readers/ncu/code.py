"""Decodes the code of kernels that a report keeps: `SourceData` of `ProfilerReportCommon.proto`."""

from __future__ import annotations

from alltrace.readers.wire import fields, first, message, text, whole
from alltrace.trace.kernel_code import Code


def code_of(part: memoryview) -> tuple[int, Code]:
    """The reference of a code, and the code."""
    parts = list(fields(part))
    files: dict[str, str] = {}
    functions: dict[str, int] = {}
    for number, _, value in parts:
        if number == 8:
            for _, _, each in fields(message(value)):
                file = list(fields(message(each)))
                files[text(first(file, 1))] = text(first(file, 2))
        elif number == 9:
            for kind, _, each in fields(message(value)):
                if kind == 1:
                    symbol = list(fields(message(each)))
                    functions[text(first(symbol, 1))] = whole(first(symbol, 2))
    binary = first(parts, 4)
    return whole(first(parts, 1)), Code(b"" if binary is None else bytes(message(binary)), files, functions)


def merged(first_part: Code, second: Code) -> Code:
    """Two codes of one reference: a report adds functions when they are first measured, without the binary again."""
    return Code(
        first_part.binary or second.binary,
        {**first_part.files, **second.files},
        {**first_part.functions, **second.functions},
    )
