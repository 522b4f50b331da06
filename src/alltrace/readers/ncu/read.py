"""Reads reports of Nsight Compute: kernel launches with all their metrics.

A report is a magic number, a header, and blocks. Each part is a message after its size in four bytes: a block's header
counts the sources (code of kernels) and results that follow it. Names of metrics and texts are in string tables. Field
numbers are from `ProfilerReport.proto`, which Nsight Compute has in `extras/FileFormat`.
"""

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alltrace.readers.wire import Value, WireError, fields, first, message, number_of, text, whole
from alltrace.trace.errors import InputError
from alltrace.trace.kernel_code import Code
from alltrace.trace.launches import Instance, Launch, Metric, NcuReport, Rule, RuleMessage, Section, SectionMetric

# Decodes the sections and the results of rules that a report has in addition to its metrics. Field numbers are from
# `ProfilerSection.proto` and `RuleResults.proto`, which Nsight Compute has in `extras/FileFormat`.

_KINDS = {0: "none", 1: "ok", 2: "warning", 3: "error", 4: "optimization"}
_SPEEDUPS = {1: "local", 2: "global"}
_METRICS_OF_ITEM = {1: 5, 2: 5, 3: 4, 4: 4, 7: 3}
"""Tables, bar charts, histograms, line charts and tables of source lines: the field that their metrics are in."""
_OPTION = 7
_LINES, _ROW, _ROOFLINE, _SUFFIXES = 4, 5, 6, 8
_GROUPS = {
    101: "group:memory__shared_table",
    102: "group:memory__first_level_cache_table",
    103: "group:memory__l2_cache_table",
    104: "group:memory__dram_table",
    105: "group:memory__chart",
    106: "group:memory__first_level_cache_table",
    107: "group:memory__l2_cache_table",
    111: "group:memory__l2_cache_evict_policy_table",
}
"""Tables of memory name no metrics: the report has the lists as texts of these names."""
_LINK = re.compile(r"@(?P<kind>[a-z]+):(?P<first>[^:@]*):(?P<second>[^@]*)@")
_DEEPEST = 8


def section_of(part: memoryview) -> Section:
    """A section: what the table above shows, then what is in its tables and charts."""
    parts = list(fields(part))
    metrics: list[SectionMetric] = []
    for number, _, value in parts:
        if number == 4:
            metrics += (m for n, _, v in fields(message(value)) if n == 2 for m in _metrics(v, "header"))
        elif number == 5:
            metrics += (m for n, _, v in fields(message(value)) if n == 1 for m in _item(message(v), 0))
    return Section(text(first(parts, 1)), text(first(parts, 2)), whole(first(parts, 3)), tuple(metrics))


def _metrics(value: Value, part: str = "body") -> Iterator[SectionMetric]:
    """The metric of a message: none if it only fills a cell."""
    parts = list(fields(message(value)))
    if name := text(first(parts, 1)):
        options = tuple(text(first(list(fields(message(v))), 1)) for n, _, v in parts if n == _OPTION)
        yield SectionMetric(name, text(first(parts, 2)), part, tuple(o for o in dict.fromkeys(options) if o != name))


def _item(part: memoryview, depth: int) -> Iterator[SectionMetric]:
    for number, _, value in fields(part):
        if number in _METRICS_OF_ITEM:
            for n, _, v in fields(message(value)):
                if n == _METRICS_OF_ITEM[number]:
                    yield from _metrics(v)
                elif number == _LINES and n == 5:  # the point of the line that is the launch's own
                    yield from (m for _, _, inner in fields(message(v)) for m in _metrics(inner))
        elif number == _ROW and depth < _DEEPEST:
            yield from (m for n, _, v in fields(message(value)) if n == 1 for m in _item(message(v), depth + 1))
        elif number == _ROOFLINE:
            yield from _roofline(message(value))
        elif number == _SUFFIXES:
            yield from _suffixes(message(value))
        elif number in _GROUPS:
            yield SectionMetric(_GROUPS[number], "", "body")


def _roofline(part: memoryview) -> Iterator[SectionMetric]:
    """Metrics of the roofs and then of the points: a metric, or several that are added and multiplied by a clock."""
    for number, _, value in fields(part):
        if number not in (4, 5):
            continue
        for n, _, side in fields(message(value)):
            if n not in (1, 2):
                continue
            for kind, _, v in fields(message(side)):
                if kind == 2:
                    yield from _metrics(v)
                elif kind == 3:
                    yield from (m for _, _, inner in fields(message(v)) for m in _metrics(inner))


def _suffixes(part: memoryview) -> Iterator[SectionMetric]:
    """A table with suffixes of metrics, such as `.avg`, as columns and their names as rows."""
    parts = list(fields(part))
    suffixes = [
        text(first(list(fields(message(v))), 1)) for n, _, w in parts if n == 2 for _, _, v in fields(message(w))
    ]
    for number, _, names in parts:
        if number == 3:
            for _, _, each in fields(message(names)):
                for base in _metrics(each):
                    yield from (SectionMetric(base.name + s, base.label, "body") for s in suffixes)


def rule_of(part: memoryview) -> Rule:
    """What a rule said."""
    parts = list(fields(part))
    body = first(parts, 3)
    messages: list[RuleMessage] = []
    if body is not None:
        for number, _, item in fields(message(body)):
            if number == 1:
                messages += _messages(message(item))
    return Rule(text(first(parts, 1)), text(first(parts, 2)), text(first(parts, 4)), tuple(messages))


def _messages(item: memoryview) -> Iterator[RuleMessage]:
    outer = list(fields(item))
    body = first(outer, 1)
    if body is None:
        return
    parts = list(fields(message(body)))
    speedup = first(outer, 10)
    gain: float | None = None
    of: str | None = None
    if speedup is not None:
        estimate = list(fields(message(speedup)))
        value = first(estimate, 2)
        gain = None if value is None else float(number_of(value, real=True))
        of = _SPEEDUPS.get(whole(first(estimate, 1)))
    kind = _KINDS.get(whole(first(parts, 2)), "none")
    yield RuleMessage(kind, text(first(parts, 4)), plain_text(text(first(parts, 1))), gain, of)


def plain_text(marked: str) -> str:
    """A message without marks for links: one to a page becomes `label (address)`, one within the report its label."""

    def shown(match: re.Match[str]) -> str:
        if match["kind"] == "url":
            return f"{match['first']} ({match['second']})"
        return match["second"]

    return _LINK.sub(shown, marked)


_EXPECTED = "a report of Nsight Compute (.ncu-rep)"
_LONG, _DOUBLE = 9, 3 << 3 | 1
_FLOAT64 = struct.Struct("<d").unpack_from
_INSTANCE = 3
_SUFFIX = ".ncu-repz"
_EXPECTED_BY_NCU = "a report that an installed Nsight Compute can open"
_SECONDS = 600
_ADVICE = "install Nsight Compute 2025.4 or later, or set its path in ALLTRACE_NCU; or save the report as .ncu-rep"

MAGIC = b"NVR\x00"  # how a report begins
_AGAIN = "copy it again, or profile again"
_MOST_BYTES = 4 << 30


@dataclass
class _Block:
    strings: list[str]
    sources: int = 0
    results: int = 0
    others: int = 0
    process: int | None = None


def read_report(path: Path, *, detail: bool = False) -> NcuReport:
    """Read a report, or what Nsight Compute printed of one; of one that is cut short, the launches that are whole.

    `detail`: also sections, results of rules, values of instances (decoded on demand; until then the bytes stay in
    memory) and code. Raises `InputError`: it is neither, damaged, or cut short before its first launch.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(path, found="it is larger than 4 GiB", expected=_EXPECTED)
        content = path.read_bytes()
    except OSError as error:
        raise InputError.cannot_be("read", path, error, expected=_EXPECTED) from error
    if path.name.lower().endswith(_SUFFIX):
        from alltrace.readers.ncu.text import read_text

        page = read_text(path, _printed_by_ncu(path))
        return replace(
            page, warnings=("it was read with ncu: sections, rules and source lines are left out", *page.warnings)
        )
    if not content.startswith(MAGIC):
        from alltrace.readers.ncu.text import read_text

        return read_text(path, content)
    data = memoryview(content)
    launches: list[Launch] = []
    warnings: list[str] = []
    strings: list[str] = []  # a block's numbers count on from the blocks before
    codes: dict[int, Code] = {}
    version = 0
    try:
        header, at = _part(data, len(MAGIC))
        version = next((int(number_of(v, real=False)) for n, _, v in fields(header) if n == 1), 0)
        while at < len(data):
            part, at = _part(data, at)
            block = _block(part, strings)
            for _ in range(block.sources):
                part, at = _part(data, at)
                if detail:
                    reference, code = _code_of(part)
                    codes[reference] = _merged(codes[reference], code) if reference in codes else code
            for _ in range(block.results):
                part, at = _part(data, at)
                launches.append(_launch(part, block, len(launches), _Instances(path) if detail else None))
            for _ in range(block.others):
                _, at = _part(data, at)
            if block.others:
                warnings.append(f"{block.others} results of ranges, graphs or command lists are left out")
    except WireError as error:
        if not launches:
            raise InputError(
                path, found=f"it is damaged or cut short: {error}", expected=_EXPECTED, advice=_AGAIN
            ) from error
        warnings.append(
            f"the report is damaged or cut short after launch {len(launches) - 1}: the launches before were read"
        )
    return NcuReport(version, tuple(launches), tuple(warnings), codes)


def _part(data: memoryview, at: int) -> tuple[memoryview, int]:
    """The part with its size at `at`, and the position after it."""
    if len(data) - at < 4:
        raise WireError("a part's size is missing")
    size = int(number_of(data[at : at + 4], real=False))
    if size > len(data) - at - 4:
        raise WireError("a part is longer than the file")
    return data[at + 4 : at + 4 + size], at + 4 + size


def _block(part: memoryview, strings: list[str]) -> _Block:
    block = _Block(strings)
    for number, _, value in fields(part):
        if number == 1:
            block.sources = whole(value)
        elif number == 2:
            block.results = whole(value)
        elif number in (7, 8, 9):
            block.others += whole(value)
        elif number == 4:
            strings += [text(v) for n, _, v in fields(message(value)) if n == 1]
        elif number == 6:
            block.process = next((whole(v) for n, _, v in fields(message(value)) if n == 1), None)
    return block


def _launch(part: memoryview, block: _Block, number: int, instances: "_Instances | None") -> Launch:
    texts = {5: "", 6: "", 7: ""}
    sizes = {10: (0, 0, 0), 11: (0, 0, 0)}
    places: dict[int, int] = {}
    metrics: dict[str, Metric] = {}
    sections: list[Section] = []
    rules: list[Rule] = []
    code: int | None = None
    for key, _, value in fields(part):
        if key in texts:
            texts[key] = text(value)
        elif key in sizes:
            size = {n: whole(v) for n, _, v in fields(message(value))}
            sizes[key] = (size.get(1, 0), size.get(2, 0), size.get(3, 0))
        elif key in (22, 23):
            places[key] = whole(value)
        elif key == 13:
            name, own = _metric(message(value), block.strings)
            if own is not None:
                metrics[name] = own
            if instances is not None:
                instances.add(name, message(value))
        elif key == 15:
            code = next((whole(v) for n, _, v in fields(message(value)) if n == 1), None)
        elif instances is not None and key == 17:
            sections.append(section_of(message(value)))
        elif instances is not None and key == 19:
            rules.append(rule_of(message(value)))
    return Launch(
        number,
        texts[7] or texts[6],
        texts[6],
        sizes[10],
        sizes[11],
        places.get(22),
        places.get(23),
        block.process,
        metrics,
        texts[5],
        instances or {},
        tuple(sorted(sections, key=lambda s: s.order)),
        tuple(rules),
        code,
    )


def _metric(part: memoryview, strings: list[str]) -> tuple[str, Metric | None]:
    """Name and value of a metric; the values of its instances, perhaps a hundred thousand, are passed over."""
    name = ""
    own: Metric | None = None
    for key, _, value in fields(part):
        if key == 1:
            place = whole(value)
            name = strings[place] if place < len(strings) else f"metric {place}"
        elif key == 2:
            own = _value_of(message(value))
        elif own is not None and name:
            break
    return name, own


def _code_of(part: memoryview) -> tuple[int, Code]:
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


def _merged(first_part: Code, second: Code) -> Code:
    """Two codes of one reference: a report adds functions when they are first measured, without the binary again."""
    return Code(
        first_part.binary or second.binary,
        {**first_part.files, **second.files},
        {**first_part.functions, **second.functions},
    )


def _printed_by_ncu(path: Path) -> bytes:
    """Page raw of a compressed report, as `ncu` prints it. Raises `InputError`: there is no `ncu`, or it fails."""
    named = os.environ.get("ALLTRACE_NCU", "ncu")
    program = shutil.which(str(Path(named) / "ncu") if Path(named).is_dir() else named)
    if program is None:
        raise InputError(
            path, found="it is compressed, and no ncu was found to open it", expected=_EXPECTED_BY_NCU, advice=_ADVICE
        )
    command = [program, "--import", str(path.resolve()), "--csv", "--page", "raw", "--print-units", "base"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            path, found=f"{program} could not open it ({error})", expected=_EXPECTED_BY_NCU, advice=_ADVICE
        ) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        reason = f": {lines[-1]}" if lines else ""
        raise InputError(path, found=f"{program} could not open it{reason}", expected=_EXPECTED_BY_NCU, advice=_ADVICE)
    return done.stdout


def _value_of(part: memoryview) -> Metric | None:
    """A metric's value: text, a float of either width, or a whole number."""
    if len(part) == _LONG and part[0] == _DOUBLE:  # what most are
        return float(_FLOAT64(part, 1)[0])
    for key, _, value in fields(part):
        if key == 1:
            return text(value)
        if key in (2, 3):
            return number_of(value, real=True)
        if key in (4, 5):
            return whole(value)
    return None


class _Instances(Mapping[str, Sequence["Instance"]]):
    """Values of instances by metric, in the report's order, decoded on demand; not of metrics without any."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, memoryview] = {}

    def add(self, name: str, part: memoryview) -> None:
        if any(key == _INSTANCE for key, _, _ in fields(part)):
            self._parts[name] = part

    def __getitem__(self, name: str) -> Sequence[Instance]:
        part = self._parts[name]
        try:
            return [_instance(message(value)) for key, _, value in fields(part) if key == _INSTANCE]
        except WireError as error:
            raise InputError(
                self._path,
                found=f"values of {name!r} are damaged: {error}",
                expected=_EXPECTED,
                advice="copy it again, or profile again",
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def _instance(part: memoryview) -> Instance:
    values = {key: _value_of(message(value)) for key, _, value in fields(part)}
    return values.get(1), values.get(2)
