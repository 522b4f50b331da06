"""The reports of `nsys stats` with a row of statistics per name: a statement over a rank's events, and names for its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from alltrace.nvidia.stats.base import Cell, SumReport
from alltrace.nvidia.stats.cuda import CATEGORY, COPY_LABELS, NamedKernels
from alltrace.nvidia.stats.nvtx import STYLE

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIMS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_COPY = (
    "CASE kind WHEN 'memset' THEN '[CUDA memset]' ELSE '[CUDA memcpy ' || CASE kind "
    + " ".join(f"WHEN '{kind}' THEN '{label}'" for kind, label in COPY_LABELS.items())
    + " ELSE kind END || ']' END"
)
_RANGE = "coalesce(text_of(domain) || ':', '') || text_of(name)"
_STYLE = "CASE kind WHEN 'pushpop' THEN 'PushPop' WHEN 'startend' THEN 'StartEnd' ELSE kind END"
_FUNCTION = Cell("Name", "text", "Function.")
_OPERATION = Cell("Operation", "text", "Copy, with its direction, or fill.")


class KernelSum(NamedKernels, SumReport):
    """A report that counts kernels; their names depend on its options."""

    def distinct(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The keys; without the range if it is not requested, as it is null then."""
        return tuple(key for key in self.keys if key != "launch_range" or options.get("nvtx_name"))

    def reads(self, options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The tables and columns that `map` reads under `options`: launches only if ranges around them are requested."""
        reads = super().reads(options)
        if not options.get("nvtx_name"):
            reads["kernels"] = tuple(c for c in reads["kernels"] if c not in ("process", "correlation"))
        return reads


class CudaGpuKernSum(KernelSum):
    """The time that kernels ran on GPUs, by name."""

    name = "cuda_gpu_kern_sum"
    title = "CUDA GPU Kernel Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "kernels": ("start", "end", "name", "short_name", "mangled_name", "process", "correlation")
    }
    keys: ClassVar[tuple[str, ...]] = ("launch_range", "kernel")
    named: ClassVar[tuple[Cell, ...]] = (Cell("Name", "text", "Kernel."),)
    events = """SELECT rank, {launch_range} AS launch_range, {kernel} AS kernel, "end" - start AS value FROM kernels"""
    labels: ClassVar[Mapping[str, str]] = {"Name": "{kernel_name}"}


class CudaGpuKernGbSum(KernelSum):
    """The time that kernels ran on GPUs, by name, grid and block."""

    name = "cuda_gpu_kern_gb_sum"
    title = "CUDA GPU Kernel/Grid/Block Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"kernels": (*CudaGpuKernSum.tables["kernels"], *_DIMS)}
    keys: ClassVar[tuple[str, ...]] = (*CudaGpuKernSum.keys, *_DIMS)
    named: ClassVar[tuple[Cell, ...]] = (
        Cell("GridXYZ", "text", "Blocks of the grid in x, y and z."),
        Cell("BlockXYZ", "text", "Threads of a block in x, y and z."),
        Cell("Name", "text", "Kernel."),
    )
    events = """SELECT rank, {launch_range} AS launch_range, {kernel} AS kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z,
  "end" - start AS value FROM kernels"""
    labels: ClassVar[Mapping[str, str]] = {
        "GridXYZ": "printf('%4d %4d %4d', grid_x, grid_y, grid_z)",
        "BlockXYZ": "printf('%4d %4d %4d', block_x, block_y, block_z)",
        "Name": "{kernel_name}",
    }


class CudaGpuSum(KernelSum):
    """The time of kernels, copies and fills on GPUs, by name."""

    name = "cuda_gpu_sum"
    title = "CUDA GPU Summary (Kernels/MemOps)"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {**CudaGpuKernSum.tables, "copies": ("start", "end", "kind")}
    keys: ClassVar[tuple[str, ...]] = ("category", *CudaGpuKernSum.keys, "kind")
    named: ClassVar[tuple[Cell, ...]] = (CATEGORY, Cell("Operation", "text", "Kernel, copy or fill."))
    ties: ClassVar[tuple[str, ...]] = ("Operation", "Category")
    events = """SELECT rank, 'CUDA_KERNEL' AS category, {launch_range} AS launch_range, {kernel} AS kernel, NULL::VARCHAR AS kind,
  "end" - start AS value FROM kernels
UNION ALL SELECT rank, 'MEMORY_OPER', NULL, NULL, kind, "end" - start FROM copies"""
    labels: ClassVar[Mapping[str, str]] = {"Category": "category", "Operation": f"coalesce({_COPY}, {{kernel_name}})"}


class CudaApiGpuSum(CudaGpuSum):
    """The time of CUDA calls on the CPU, and of kernels, copies and fills on GPUs, by name."""

    name = "cuda_api_gpu_sum"
    title = "CUDA Summary (API/Kernels/MemOps)"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {**CudaGpuSum.tables, "api": ("start", "end", "name")}
    events: ClassVar[str] = f"""{CudaGpuSum.events}
UNION ALL SELECT rank, 'CUDA_API', NULL, name, NULL, "end" - start FROM api"""
    labels: ClassVar[Mapping[str, str]] = {
        "Category": "category",
        "Operation": f"coalesce({_COPY}, if(category = 'CUDA_API', call_name(text_of(kernel)), {{kernel_name}}))",
    }


class CudaApiSum(SumReport):
    """The time that calls of the CUDA runtime and driver took, by function."""

    name = "cuda_api_sum"
    title = "CUDA API Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"api": ("start", "end", "name")}
    keys: ClassVar[tuple[str, ...]] = ("name",)
    counted = "Num Calls"
    named: ClassVar[tuple[Cell, ...]] = (_FUNCTION,)
    # versions of one function that are recorded apart stay apart, as in nsys, for a call may be recorded in both
    hidden: ClassVar[tuple[str, ...]] = ("recorded",)
    events = """SELECT rank, name, "end" - start AS value FROM api"""
    labels: ClassVar[Mapping[str, str]] = {"Name": "call_name(text_of(name))", "recorded": "text_of(name)"}


class CudaGpuMemTimeSum(SumReport):
    """The time of copies and fills on GPUs, by direction."""

    name = "cuda_gpu_mem_time_sum"
    title = "CUDA GPU MemOps Summary (by Time)"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"copies": ("start", "end", "kind")}
    keys: ClassVar[tuple[str, ...]] = ("kind",)
    counted = "Count"
    named: ClassVar[tuple[Cell, ...]] = (_OPERATION,)
    events = """SELECT rank, kind, "end" - start AS value FROM copies"""
    labels: ClassVar[Mapping[str, str]] = {"Operation": _COPY}


class CudaGpuMemSizeSum(SumReport):
    """The bytes of copies and fills on GPUs, by direction."""

    name = "cuda_gpu_mem_size_sum"
    title = "CUDA GPU MemOps Summary (by Size)"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"copies": ("kind", "bytes")}
    keys: ClassVar[tuple[str, ...]] = ("kind",)
    counted = "Count"
    named: ClassVar[tuple[Cell, ...]] = (_OPERATION,)
    sizes = True
    events = "SELECT rank, kind, bytes AS value FROM copies"
    labels: ClassVar[Mapping[str, str]] = {"Operation": _COPY}


class RangeSum(SumReport):
    """A report with a row of statistics per name of a range.

    A range that was still open ends at the latest time of any range or mark of the rank.

    Attributes:
        where: A condition on the ranges that count.
    """

    where: ClassVar[str] = "true"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"ranges": ("start", "end", "name", "domain", "kind"), "marks": ("time",)}
    requires: ClassVar[tuple[str | tuple[str, ...], ...]] = ("ranges",)
    keys: ClassVar[tuple[str, ...]] = ("kind", "domain", "name")
    named: ClassVar[tuple[Cell, ...]] = (Cell("Range", "text", "Range."),)
    # ranges without a text are apart from those with an empty one
    hidden: ClassVar[tuple[str, ...]] = ("unnamed",)
    ties: ClassVar[tuple[str, ...]] = ("Range", "unnamed")
    events = """SELECT rank, kind, domain, name, coalesce("end", latest) - start AS value
FROM ranges JOIN (
  SELECT rank, max(time) AS latest
  FROM (SELECT rank, greatest(start, "end") AS time FROM ranges UNION ALL SELECT rank, time FROM marks) GROUP BY rank
) USING (rank)
WHERE {where}"""
    labels: ClassVar[Mapping[str, str]] = {"Range": _RANGE, "unnamed": "if(text_of(name) IS NULL, '', 'named')"}

    def words(self, options: Mapping[str, Any]) -> dict[str, str]:
        """Which ranges count."""
        return {"where": self.where}


class NvtxSum(RangeSum):
    """The time that ranges took, by name and style."""

    name = "nvtx_sum"
    title = "NVTX Range Summary"
    named: ClassVar[tuple[Cell, ...]] = (STYLE, *RangeSum.named)
    ties: ClassVar[tuple[str, ...]] = ("Range", "unnamed", "Style")
    labels: ClassVar[Mapping[str, str]] = {"Style": _STYLE, **RangeSum.labels}


class NvtxPushpopSum(RangeSum):
    """The time that push/pop ranges took, by name."""

    name = "nvtx_pushpop_sum"
    title = "NVTX Push/Pop Range Summary"
    where = "kind = 'pushpop'"


class NvtxStartendSum(RangeSum):
    """The time that start/end ranges took, by name."""

    name = "nvtx_startend_sum"
    title = "NVTX Start/End Range Summary"
    where = "kind = 'startend'"


class OsrtSum(SumReport):
    """The time that calls of the operating system's runtime took, by function."""

    name = "osrt_sum"
    title = "OS Runtime Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"osrt": ("start", "end", "name")}
    keys: ClassVar[tuple[str, ...]] = ("name",)
    counted = "Num Calls"
    named: ClassVar[tuple[Cell, ...]] = (_FUNCTION,)
    events = """SELECT rank, name, "end" - start AS value FROM osrt"""
    labels: ClassVar[Mapping[str, str]] = {"Name": "text_of(name)"}


class SyscallSum(OsrtSum):
    """The time that system calls took, by name."""

    name = "syscall_sum"
    title = "System Call Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"syscalls": ("start", "end", "name")}
    named: ClassVar[tuple[Cell, ...]] = (Cell("Name", "text", "System call."),)
    events = """SELECT rank, name, "end" - start AS value FROM syscalls"""


class OpenmpSum(OsrtSum):
    """The time that OpenMP events took, by name."""

    name = "openmp_sum"
    title = "OpenMP Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"openmp": ("start", "end", "name")}
    named: ClassVar[tuple[Cell, ...]] = (Cell("Name", "text", "Event."),)
    events = """SELECT rank, name, "end" - start AS value FROM openmp"""


class OpenaccSum(SumReport):
    """The time that OpenACC constructs took, by construct and line."""

    name = "openacc_sum"
    title = "OpenACC Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"openacc": ("start", "end", "name", "file", "line")}
    keys: ClassVar[tuple[str, ...]] = ("name", "file", "line")
    ties: ClassVar[tuple[str, ...]] = ("Name",)
    counted = "Num Calls"
    named: ClassVar[tuple[Cell, ...]] = (Cell("Name", "text", "Construct, and its file and line: `Wait@main.f90:12`."),)
    events = """SELECT rank, name, file, line, "end" - start AS value FROM openacc"""
    labels: ClassVar[Mapping[str, str]] = {
        "Name": "text_of(name) || coalesce('@' || text_of(file) || coalesce(':' || line, ''), '')"
    }


class MpiEventSum(SumReport):
    """The time that MPI calls took, by function.

    A call counts once: of the rows that a wait for many requests and a send-receive leave, one is taken, the longest.
    """

    name = "mpi_event_sum"
    title = "MPI Event Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"mpi": ("start", "end", "thread", "name", "kind")}
    keys: ClassVar[tuple[str, ...]] = ("kind", "name")
    named: ClassVar[tuple[Cell, ...]] = (
        Cell("Source", "text", "Class of the event: p2p, collectives, start_wait or other."),
        _FUNCTION,
    )
    events = """SELECT rank, kind, name, max("end") - start AS value FROM mpi GROUP BY rank, thread, start, name, kind"""
    labels: ClassVar[Mapping[str, str]] = {
        "Source": "CASE kind WHEN 'collective' THEN 'collectives' WHEN 'start-wait' THEN 'start_wait' ELSE kind END",
        "Name": "text_of(name)",
    }


class MpiMsgSizeSum(SumReport):
    """The sizes of MPI messages, by function: of point-to-point calls, and what collectives sent and received."""

    name = "mpi_msg_size_sum"
    title = "MPI Message Size Summary"
    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {"mpi": ("name", "kind", "bytes", "recv_bytes")}
    keys: ClassVar[tuple[str, ...]] = ("source", "name")
    sizes = True
    totaled: ClassVar[str | None] = "Total Message Volume"
    named: ClassVar[tuple[Cell, ...]] = (Cell("Source", "text", "p2p, coll_send or coll_recv."), _FUNCTION)
    events = """SELECT rank, 'p2p' AS source, name, bytes AS value FROM mpi WHERE kind = 'p2p'
UNION ALL SELECT rank, 'coll_send', name, bytes FROM mpi WHERE kind = 'collective'
UNION ALL SELECT rank, 'coll_recv', name, recv_bytes FROM mpi WHERE kind = 'collective'"""
    labels: ClassVar[Mapping[str, str]] = {"Source": "source", "Name": "text_of(name)"}
