"""Log files read in parallel, a file a task, in the given order. A file that cannot be read is left out and named."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Generic, TypeVar

from alltrace.trace.errors import InputError
from alltrace.trace.nccl_words import standard_datatype
from alltrace.trace.number_text import counted


def expand(arguments: Sequence[str]) -> list[Path]:
    """The files that files, folders (all in them) and patterns name. Raises `InputError`: one names nothing."""
    import glob

    files: dict[Path, None] = {}
    for text in arguments:
        path = Path(text)
        try:
            folder, there, why = path.is_dir(), path.exists(), "there is no such file"
        except OSError as error:  # a name that is too long, or below what may not be entered
            folder, there, why = False, False, f"it cannot be accessed ({error.strerror})"
        paths = [path] if there else []
        if folder:
            paths = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        elif not there and any(c in text for c in "*?["):
            # patterns may be absolute
            paths = sorted(Path(p) for p in glob.glob(text, recursive=True) if Path(p).is_file())  # noqa: PTH207
        if not paths:
            raise InputError(path, found=why, expected="a log, a folder of logs or a pattern")
        files.update(dict.fromkeys(paths))
    return list(files)


# The output of nccl-tests as a table, for questions that hold a run against it.

_OPS = {
    "allreduce": "AllReduce", "allgather": "AllGather", "reducescatter": "ReduceScatter", "alltoall": "AllToAll",
    "broadcast": "Broadcast", "bcast": "Broadcast", "reduce": "Reduce", "gather": "Gather", "scatter": "Scatter",
    "sendrecv": "SendRecv",
}  # fmt: skip


def read_tests_table(names: str) -> Any:
    """The rows of all runs in some files of nccl-tests.

    `names`: files, folders and patterns, with commas between them. Returns a `pyarrow.Table` with `run`, `op` (null
    for a program that is not known), `ranks` (of a group), `size_bytes` (as nccl-tests counts it), `datatype`,
    `time_ns` and `busbw_gb_per_s` (out of place, or in place where only that was measured). Raises `InputError`: a
    file cannot be read, or none has a table.
    """
    import pyarrow as pa

    from alltrace.readers.nccl_tests.read import read_tests

    files = read_files(read_tests, expand([n.strip() for n in names.split(",") if n.strip()])).require_any().results
    rows = []
    for file in files:
        for run in file.runs:
            groups = [group for _rank, group, *_rest in run.ranks]
            ranks = max((groups.count(g) for g in set(groups)), default=None)
            plain = (run.program or "").lower().removesuffix("_perf").replace("_", "").replace("-", "")
            for row in run.rows:
                half = row.out_of_place or row.in_place
                if half is None or half.time_us <= 0:
                    continue
                rows.append(
                    {
                        "run": PurePath(file.path).name
                        if len(file.runs) == 1
                        else f"{PurePath(file.path).name}#{run.number}",
                        "op": _OPS.get(plain),
                        "ranks": ranks,
                        "size_bytes": row.size,
                        "datatype": standard_datatype(row.datatype or ""),
                        "time_ns": half.time_us * 1e3,
                        "busbw_gb_per_s": half.busbw,
                    }
                )
    if not rows:
        expected = "the output of all_reduce_perf or another program of nccl-tests"
        raise nothing_in(files, "no table of nccl-tests in it", expected=expected)
    fields = [
        ("run", pa.string()),
        ("op", pa.string()),
        ("ranks", pa.int64()),
        ("size_bytes", pa.int64()),
        ("datatype", pa.string()),
    ]
    return pa.Table.from_pylist(rows, pa.schema([*fields, ("time_ns", pa.float64()), ("busbw_gb_per_s", pa.float64())]))


_Result = TypeVar("_Result")
_WORTH_A_PROCESS = 64 << 20
_NAMED = 8


@dataclass(frozen=True)
class FilesRead(Generic[_Result]):
    """What was read of some files: a result for each file that can be read, in order, and the errors of the others."""

    results: list[_Result]
    errors: list[InputError]

    def require_any(self) -> "FilesRead[_Result]":
        """Itself; raises the first error if no file could be read."""
        if self.errors and not self.results:
            raise self.errors[0]
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each file that was left out."""
        rest = len(self.errors) - _NAMED
        more = (f"{counted(rest, 'more file')} left out, which cannot be read",) if rest > 0 else ()
        return (*(f"left out: {error}" for error in self.errors[:_NAMED]), *more)


def read_files(
    read: Callable[[str, Callable[[int], None]], _Result], paths: Sequence[Path], jobs: int | None = None
) -> FilesRead[_Result]:
    """`read(path, advance)`, a function of a module, of each file. Errors not of a file's content are raised."""
    from alltrace.engine.tasks import remote, run_tasks

    named = [str(p.absolute() if remote() else p) for p in paths]
    outcomes = sorted(run_tasks(read, named, jobs=jobs_for(paths, jobs)), key=lambda o: o.index)
    errors = [o.error for o in outcomes if isinstance(o.error, InputError)]
    return FilesRead([o.get() for o in outcomes if not isinstance(o.error, InputError)], errors)


def nothing_in(logs: Sequence[Any], problem: str, *, expected: str, advice: str | None = None) -> InputError:
    """The error for logs, of which none has what is wanted; it says whether the data of one end early."""
    others = f" and {len(logs) - 1} more" if len(logs) > 1 else ""
    cut = next((log for log in logs if log.damage), None)
    damage = "" if cut is None else f": {cut.damage}" if cut is logs[0] else f"; {cut.path}: {cut.damage}"
    return InputError(f"{logs[0].path}{others}", found=f"{problem}{damage}", expected=expected, advice=advice)


def no_steps(logs: Sequence[Any], patterns: Sequence[str]) -> InputError:
    """The error for training logs without a step."""
    return nothing_in(
        logs,
        f"no step lines in {counted(sum(log.lines for log in logs), 'line')}",
        expected="lines that match --pattern" if patterns else "step lines of a supported training framework",
        advice=None if patterns else "describe its lines with --pattern (`alltrace logs training --help`)",
    )


def short_host(host: str) -> str:
    """A host's name without its domain, which logs often lack."""
    return host.partition(".")[0]


def jobs_for(paths: Sequence[Path], jobs: int | None) -> int | None:
    """One process for little text: starting another one takes longer than reading it."""
    small = sum(p.stat().st_size for p in paths if p.is_file()) < _WORTH_A_PROCESS
    return 1 if small and jobs is None else jobs
