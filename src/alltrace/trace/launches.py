"""Kernel launches as Nsight Compute measured them: what its reports and its printed pages are read into."""

from __future__ import annotations

from dataclasses import dataclass, field

Metric = int | float | str
Sizes = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        number: Its number in the report, from 0.
        name: The demangled name.
        function: The name without template arguments and parameters.
        grid: Blocks in x, y and z; None where it is not known.
        block: Threads in x, y and z; None where it is not known.
        context: CUDA context, or None.
        stream: CUDA stream, or None.
        process: Process id, or None.
        metrics: The metrics by name, in base units (ns, bytes, per second); those without a value of their own are left out.
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

    def number_of(self, *names: str) -> float | None:
        """The first metric of these names that is a finite number; None where there is none."""
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
    """

    version: int
    launches: tuple[Launch, ...]
    warnings: tuple[str, ...] = ()


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
