"""Reports of Nsight Compute and code of kernels, made by hand."""

from __future__ import annotations

import struct


def number(value):
    parts = []
    while True:
        parts.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(parts)


def whole(key, value):
    return number(key << 3) + number(value)


def inner(key, data):
    data = data.encode() if isinstance(data, str) else data
    return number(key << 3 | 2) + number(len(data)) + data


def double(key, value):
    return number(key << 3 | 1) + struct.pack("<d", value)


def single(key, value):
    return number(key << 3 | 5) + struct.pack("<f", value)


def metric(name, value):
    return inner(13, whole(1, name) + inner(2, value))


def launch(*metrics, name="void gemm<float>(float*)"):
    sizes = inner(10, whole(1, 7) + whole(2, 8) + whole(3, 1)) + inner(11, whole(1, 128) + whole(2, 1) + whole(3, 1))
    return (
        inner(6, "gemm")
        + inner(7, name)
        + sizes
        + whole(22, 1)
        + whole(23, 7)
        + inner(99, b"unknown")
        + b"".join(metrics)
    )


def part(data):
    return struct.pack("<I", len(data)) + data


def block(strings, launches, sources=()):
    header = whole(1, len(sources)) + whole(2, len(launches)) + inner(4, b"".join(inner(1, s) for s in strings))
    return part(header + inner(6, whole(1, 4000))) + b"".join(map(part, (*sources, *launches)))


def instance(of, value):
    """A value of an instance, within a metric."""
    key = inner(1, whole(5, of) if isinstance(of, int) else inner(1, of))
    return inner(3, key + inner(2, whole(5, value) if isinstance(value, int) else inner(1, value)))


def code(reference, binary=b"", functions=(), files=()):
    """Code of kernels: functions are (name, address), files (path, text)."""
    symbols = b"".join(inner(1, inner(1, name) + whole(2, address)) for name, address in functions)
    texts = b"".join(inner(1, inner(1, path) + inner(2, text)) for path, text in files)
    return whole(1, reference) + inner(4, binary) + (inner(8, texts) if files else b"") + inner(9, symbols)


def cubin(sections, relocated=()):
    """An ELF file of (name, bytes), whose symbols are those of the sections of code.

    Args:
        sections: Sections; the first is number 1.
        relocated: (number of the section, place in it, number of the section of code, addend or None).
    """
    texts = [n for n, (name, _) in enumerate(sections, 1) if name.startswith(".text.")]
    symbols = b"\0" * 24 + b"".join(struct.pack("<IBBHQQ", 0, 2, 0, n, 0, 0) for n in texts)
    every = [("", b"", 0, 0, 0), *((name, data, 1, 0, 0) for name, data in sections), (".symtab", symbols, 2, 0, 0)]
    table = len(sections) + 1
    for section, place, text, addend in relocated:
        entry = struct.pack("<2Q", place, (texts.index(text) + 1) << 32) + (
            b"" if addend is None else struct.pack("<q", addend)
        )
        every.append((".rel", entry, 9 if addend is None else 4, table, section))
    names = b"\0".join(e[0].encode() for e in every) + b"\0.shstrtab\0"
    every.append((".shstrtab", names, 3, 0, 0))
    at, name_at, body, heads = 64, 0, b"", b""
    for name, data, kind, link, info in every:
        heads += struct.pack("<2I4Q2I2Q", name_at, kind, 0, 0, at + len(body), len(data), link, info, 1, 0)
        body += data
        name_at += len(name) + 1
    counts = (64, 0, 0, 64, len(every), len(every) - 1)
    return struct.pack("<16s2HI3QI6H", b"\x7fELF\x02\x01", 2, 190, 1, 0, 0, at + len(body), 0, *counts) + body + heads


def line_table(program, files=("a.cu",), folders=(), version=2, after_version=b""):
    """A unit of a line table: an address at the program's third byte is what a relocation fills in."""
    names = b"".join(f.encode() + b"\0" for f in folders) + b"\0"
    names += b"".join(f.encode() + bytes((0, 1 if folders else 0, 0, 0)) for f in files) + b"\0"
    lengths = bytes((0, 1, 1, 1, 1, 0, 0, 0, 1))
    head = bytes((1,)) + after_version + bytes((1, 0xFB, 14, 10)) + lengths + names
    unit = struct.pack("<HI", version, len(head)) + head + program
    return struct.pack("<I", len(unit)) + unit


SET_ADDRESS = bytes((0, 9, 2)) + b"\0" * 8
END = bytes((0, 1, 1))
