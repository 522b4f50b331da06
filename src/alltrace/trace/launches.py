"""Kernel launches as Nsight Compute measured them: what its reports and its printed pages are read into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from alltrace.trace.kernel_code import Code

Metric = int | float | str
Sizes = tuple[int, int, int]
Instance = tuple[Metric | None, Metric | None]
"""A value of a metric, and what it is of before it: an address, an opcode, a number."""


@dataclass(frozen=True)
class RuleMessage:
    kind: str  # `none`, `ok`, `warning`, `error` or `optimization`
    title: str  # its title; empty if it has none
    text: str
    speedup_percent: float | None = None  # the speed-up that Nsight Compute expects; None if it states none
    # what would be faster: `local`, the part that the rule examines, or `global`, the whole launch
    speedup_of: str | None = None


@dataclass(frozen=True)
class Rule:
    identifier: str  # its name in Nsight Compute, such as `SOLBottleneck`
    name: str  # the name that is shown
    section: str  # identifier of the section that it belongs to
    messages: tuple[RuleMessage, ...]  # what it said; empty if it found nothing


@dataclass(frozen=True)
class SectionMetric:
    name: str
    label: str  # how the section calls it; empty if it does not
    part: str  # `header`, the table that a section shows first, or `body`
    others: tuple[str, ...] = ()  # metrics that replace it on other GPUs


@dataclass(frozen=True)
class Section:
    identifier: str  # its name in Nsight Compute, such as `SpeedOfLight`
    name: str  # the name that is shown
    order: int  # sections are shown from the lowest to the highest
    metrics: tuple[SectionMetric, ...]  # what it shows, in its order


@dataclass(frozen=True)
class Launch:
    number: int  # its number in the report, from 0
    name: str  # the demangled name
    function: str  # the name without template arguments and parameters
    grid: Sizes | None  # blocks in x, y and z; None if it is not known
    block: Sizes | None  # threads in x, y and z; None if it is not known
    context: int | None  # CUDA context, or None
    stream: int | None  # CUDA stream, or None
    process: int | None  # process id, or None
    # the metrics by name, in base units (ns, bytes, per second); those without their own value are left out
    metrics: dict[str, Metric] = field(default_factory=dict)
    mangled: str = ""  # the mangled name; empty if unknown
    # values of metrics for each address, opcode or unit; only of a report that was read with `detail`
    instances: Mapping[str, Sequence[Instance]] = field(default_factory=dict, repr=False)
    sections: tuple[Section, ...] = ()  # sections of the page of details; likewise
    rules: tuple[Rule, ...] = ()  # what NVIDIA's rules said when the launch was measured; likewise
    code: int | None = None  # reference of its code in the report; None if it has none

    def number_of(self, *names: str) -> float | None:
        """The first metric of these names that is a finite number; None if there is none."""
        for name in names:
            value = self.metrics.get(name)
            if isinstance(value, (int, float)) and abs(value) < float("inf"):  # false for NaN
                return float(value)
        return None

    @property
    def configuration(self) -> tuple[str, Sizes | None, Sizes | None]:
        """What makes two launches comparable: the name, blocks aside from spaces, the grid and the block."""
        return plain_name(self.name), self.grid, self.block


@dataclass(frozen=True)
class NcuReport:
    version: int  # version of the file's format; 0 for text
    launches: tuple[Launch, ...]  # the kernel launches
    warnings: tuple[str, ...] = ()  # what a reader should know, each one sentence
    # code of kernels by its reference; only of a report that was read with `detail`
    codes: Mapping[int, Code] = field(default_factory=dict, repr=False)


def plain_name(name: str) -> str:
    """A kernel's name without spaces, so that demanglers that set them differently agree."""
    return "".join(name.split())


def short_name(name: str) -> str:
    """A name without return type, namespaces, template arguments, parameters: `void a::gemm<float>(int)` is `gemm`."""
    depth = 0
    letters: list[str] = []
    for letter in name.replace("(anonymous namespace)::", "").replace("operator()", "operator"):
        if letter in "<(":
            if letter == "(" and depth == 0 and letters:
                break
            depth += 1
        elif letter in ">)" and depth:
            depth -= 1
        elif depth == 0:
            letters.append(letter)
    words = "".join(letters).split()
    return words[-1].rsplit("::", 1)[-1] if words else name
