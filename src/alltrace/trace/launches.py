"""Kernel launches as Nsight Compute measured them: what its reports and its printed pages are read into."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alltrace.trace.kernel_code import Code

Metric = int | float | str
Sizes = tuple[int, int, int]
Instance = tuple[Metric | None, Metric | None]
"""A value of a metric, and what it is of before it: an address, an opcode, a number."""


@dataclass(frozen=True)
class RuleMessage:
    """The result of a rule of Nsight Compute, as in the report.

    Attributes:
        kind: `none`, `ok`, `warning`, `error` or `optimization`.
        title: Its title; empty if it has none.
        text: The text.
        speedup_percent: The speed-up that Nsight Compute expects; None if it states none.
        speedup_of: What would be faster: `local`, the part that the rule examines, or `global`, the whole launch.
    """

    kind: str
    title: str
    text: str
    speedup_percent: float | None = None
    speedup_of: str | None = None


@dataclass(frozen=True)
class Rule:
    """A rule of Nsight Compute that was applied to a launch.

    Attributes:
        identifier: Its name in Nsight Compute, such as `SOLBottleneck`.
        name: The name that is shown.
        section: Identifier of the section that it belongs to.
        messages: What it said; empty if it found nothing.
    """

    identifier: str
    name: str
    section: str
    messages: tuple[RuleMessage, ...]


@dataclass(frozen=True)
class SectionMetric:
    """A metric that a section shows.

    Attributes:
        name: The metric.
        label: How the section calls it; empty if it does not.
        part: `header`, the table that a section shows first, or `body`.
        others: Metrics that replace it on other GPUs.
    """

    name: str
    label: str
    part: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """A section of the page of details.

    Attributes:
        identifier: Its name in Nsight Compute, such as `SpeedOfLight`.
        name: The name that is shown.
        order: Sections are shown from the lowest to the highest.
        metrics: What it shows, in its order.
    """

    identifier: str
    name: str
    order: int
    metrics: tuple[SectionMetric, ...]


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        number: Its number in the report, from 0.
        name: The demangled name.
        function: The name without template arguments and parameters.
        grid: Blocks in x, y and z; None if it is not known.
        block: Threads in x, y and z; None if it is not known.
        context: CUDA context, or None.
        stream: CUDA stream, or None.
        process: Process id, or None.
        metrics: The metrics by name, in base units (ns, bytes, per second); those without their own value are left out.
        mangled: The mangled name; empty if unknown.
        instances: Values of metrics for each address, opcode or unit; only of a report that was read with `detail`.
        sections: Sections of the page of details; likewise.
        rules: What NVIDIA's rules said when the launch was measured; likewise.
        code: Reference of its code in the report; None if it has none.
    """

    number: int
    name: str
    function: str
    grid: Sizes | None
    block: Sizes | None
    context: int | None
    stream: int | None
    process: int | None
    metrics: dict[str, Metric] = field(default_factory=dict)
    mangled: str = ""
    instances: Mapping[str, Sequence[Instance]] = field(default_factory=dict, repr=False)
    sections: tuple[Section, ...] = ()
    rules: tuple[Rule, ...] = ()
    code: int | None = None

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
    """A report.

    Attributes:
        version: Version of the file's format; 0 for text.
        launches: The kernel launches.
        warnings: What a reader should know, each one sentence.
        codes: Code of kernels by its reference; only of a report that was read with `detail`.
    """

    version: int
    launches: tuple[Launch, ...]
    warnings: tuple[str, ...] = ()
    codes: Mapping[int, Code] = field(default_factory=dict, repr=False)


def plain_name(name: str) -> str:
    """A kernel's name without spaces, so that demanglers that set them differently agree."""
    return "".join(name.split())


def short_name(name: str) -> str:
    """A demangled name without return type, namespaces, template arguments and parameters: `void a::gemm<float>(int)` is `gemm`."""
    depth = 0
    kept: list[str] = []
    for letter in name.replace("(anonymous namespace)::", "").replace("operator()", "operator"):
        if letter in "<(":
            if letter == "(" and depth == 0 and kept:
                break
            depth += 1
        elif letter in ">)" and depth:
            depth -= 1
        elif depth == 0:
            kept.append(letter)
    words = "".join(kept).split()
    return words[-1].rsplit("::", 1)[-1] if words else name
