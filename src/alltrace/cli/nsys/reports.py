"""The reports of `nsys stats` under NVIDIA's names, including those of earlier versions."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from alltrace.cli.nsys.forms import Shown
from alltrace.cli.nsys.stats import Skipped
from alltrace.cli.nsys.units import column_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from alltrace.api import OpenRun
    from alltrace.nvidia.report import Report
    from alltrace.recipes.base import Answer, OptionValue, Question

EARLIER_NAMES = {
    "apigpusum": "cuda_api_gpu_sum", "cudaapisum": "cuda_api_sum", "cudaapitrace": "cuda_api_trace",
    "gpukerngbsum": "cuda_gpu_kern_gb_sum", "gpukernsum": "cuda_gpu_kern_sum", "gpumemsizesum": "cuda_gpu_mem_size_sum",
    "gpumemtimesum": "cuda_gpu_mem_time_sum", "gpusum": "cuda_gpu_sum", "gputrace": "cuda_gpu_trace",
    "kernexecsum": "cuda_kern_exec_sum", "kernexectrace": "cuda_kern_exec_trace", "nvtxgpuproj": "nvtx_gpu_proj_trace",
    "nvtxkernsum": "nvtx_kern_sum", "nvtxppsum": "nvtx_pushpop_sum", "nvtxpptrace": "nvtx_pushpop_trace",
    "nvtxsesum": "nvtx_startend_sum", "nvtxsssum": "nvtx_startend_sum", "nvtxsum": "nvtx_sum",
    "openaccsum": "openacc_sum", "openmpevtsum": "openmp_sum", "osrtsum": "osrt_sum",
    "umcpupagefaults": "um_cpu_page_faults_sum", "unifiedmemory": "um_sum", "unifiedmemorytotals": "um_total_sum",
}  # fmt: skip
"""Names that reports had before 2023, and those that they have since."""
_WITHOUT_GREEN, _GREEN = "gputrace", "GreenCtx"  # a column that the report did not have under its earlier name
OTHER_APIS = (
    "dx11_pix_sum", "dx12_gpu_marker_sum", "dx12_pix_sum", "nvvideo_api_sum", "opengl_khr_gpu_range_sum",
    "opengl_khr_range_sum", "vulkan_api_sum", "vulkan_api_trace", "vulkan_gpu_marker_sum", "vulkan_marker_sum",
    "wddm_queue_sum", "dx11pixsum", "dx12gpumarkersum", "dx12pixsum", "khrdebuggpusum", "khrdebugsum", "vulkanapisum",
    "vulkanapitrace", "vulkangpumarkersum", "vulkanmarkerssum", "wddmqueuesdetails",
)  # fmt: skip
"""Reports on graphics and video, which are not part of a training job and are not imported."""


def ask_report(
    run: OpenRun,
    recipe: Question,
    options: Mapping[str, OptionValue] | None = None,
    *,
    ranks: Sequence[int] | None = None,
) -> Answer:
    """The answer of a report or rule, as a stream if it has many rows."""
    # `recipe`: The report or rule. `options`: Its options that do not have their defaults. `ranks`: The ranks to ask;
    # None for all. Raises `Skipped`: no rank of the run has what it needs.
    from alltrace.recipes.execution.ask import answer_of, checked
    from alltrace.recipes.execution.availability import able_ranks, notes_on_missing

    question = checked(recipe, options, ranks=ranks)
    if not able_ranks(recipe, run, run.ranks, question.options):
        raise Skipped("; ".join(notes_on_missing(recipe, run, run.ranks, question.options)) or "it has no such data")
    return answer_of(run, question, stream=True)


class Reports:
    command = "nsys stats"
    word = "report"
    defaults: ClassVar[tuple[str, ...]] = (
        "nvtx_sum", "osrt_sum", "cuda_api_sum", "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum",
        "openmp_sum", "opengl_khr_range_sum", "opengl_khr_gpu_range_sum", "vulkan_marker_sum", "vulkan_gpu_marker_sum",
        "dx11_pix_sum", "dx12_gpu_marker_sum", "dx12_pix_sum", "wddm_queue_sum", "um_sum", "um_total_sum",
        "um_cpu_page_faults_sum", "openacc_sum",
    )  # fmt: skip

    def names(self) -> dict[str, str]:
        from alltrace.recipes.reference import summary
        from alltrace.recipes.registry import REPORTS, find_report

        return {name: summary(find_report(name)) for name in REPORTS}

    def reference(self, name: str) -> str:
        from alltrace.recipes.reference import description, reference
        from alltrace.recipes.registry import find_report

        report = cast("Report", find_report(EARLIER_NAMES.get(name, name)))
        arguments = [
            (f":{option.name.replace('_', '-')}{'' if option.type is bool else '=VALUE'}", option.help)
            for option in report.options
        ]
        return reference(report.name, description(report), arguments, [(cell.title, cell.doc) for cell in report.cells])

    @contextmanager
    def ask(self, run: OpenRun, spec: str, filters: Mapping[str, OptionValue]) -> Iterator[Shown]:
        from alltrace.recipes.registry import find_report

        name, colon, arguments = spec.partition(":")
        if name in OTHER_APIS:
            raise Skipped(f"alltrace does not import graphics and video, which {name} is about")
        name = EARLIER_NAMES.get(name, name)
        report = cast("Report", find_report(f"{name}{colon}{arguments}")).in_bytes()
        ranks = None
        if "nvtx" in filters:
            rank, filters = find_range(run, str(filters["nvtx"]))
            ranks = (rank,)
        with closing(ask_report(run, _filtered(report, filters) if filters else report, ranks=ranks)) as answer:
            rows: Iterable[Any] = (answer.table,) if answer.stream is None else answer.stream.tables()
            cells = report.answer_cells({})
            if spec.startswith(_WITHOUT_GREEN):
                rows = (table.drop_columns([_GREEN]) for table in rows)
                cells = tuple(cell for cell in cells if cell.title != _GREEN)
            yield Shown(f"{report.title} ({name})", [column_of(cell) for cell in cells], rows)


def _filtered(report: Report, filters: Mapping[str, OptionValue]) -> Question:
    from alltrace.nvidia.filters import FilteredReport

    return FilteredReport(report, filters)


class FoundRange(NamedTuple):
    rank: int  # its rank
    filters: Mapping[str, OptionValue]  # what filters that rank by it


def find_range(run: OpenRun, text: str) -> FoundRange:
    """The NVTX range that a filter names, the first of all ranks if it has no index."""
    # As in nsys, a range of a program's main thread covers what any thread of the process did meanwhile; a range of
    # another thread covers what that thread did. Raises `Skipped`: there is none.
    from alltrace.trace.range_selector import parse_range

    wanted = parse_range("--filter-nvtx", text)
    domain = wanted.domain or "Default"
    row = None
    if any(rank.rows.get("ranges") for rank in run.ranks):
        with closing(run.connect(["ranges", "threads", "processes"])) as connection:
            row = connection.execute(_RANGE, [wanted.name, domain, domain, wanted.index or 0]).fetchone()
    if row is None:
        raise Skipped(f"it has no NVTX range {text!r}")
    rank, start, end, of_thread, index = row
    if not of_thread:
        # reports count from the start of the session, SQL from the run's first event
        return FoundRange(rank, {"filter_time": f"{start + run.origin_ns}/{end + run.origin_ns}"})
    name = text if wanted.index is None else text.rpartition("/")[0]
    return FoundRange(rank, {"nvtx": f"{name}/{index}"})


_RANGE = """
WITH named AS (
  SELECT *, row_number() OVER (PARTITION BY rank ORDER BY start) - 1 AS place
  FROM ranges WHERE name = ? AND (? = '*' OR coalesce(domain, 'Default') = ?)
)
SELECT named.rank, start, coalesce("end", (SELECT max("end") FROM ranges), start),
  kind = 'pushpop' AND coalesce(tid <> pid, false), place
FROM named
  LEFT JOIN threads ON threads.rank = named.rank AND threads.thread = named.thread
  LEFT JOIN processes ON processes.rank = named.rank AND processes.process = named.process
ORDER BY start LIMIT 1 OFFSET ?
"""
