"""Reports in the profiler's own formats, exported by an installed nsys.

The export goes to a temporary folder that exists as long as the reader; nothing is written next to the report.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from alltrace.trace.errors import InputError, printable
from alltrace.trace.nsys_payloads import EXPORT, payload_switches
from alltrace.trace.scratch import scratch_folder

TOOL_VARIABLE = "ALLTRACE_NSYS"
_PLACES = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems*/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/hpc_sdk/*/*/profilers/Nsight_Systems/bin/nsys",
    "/usr/lib/nsight-systems*/bin/nsys",
    "/usr/lib/nsight-systems*/target-linux-*/nsys",
)
_TABLES = (
    "StringIds", "ThreadNames", "PROCESSES", "META_DATA.*", "EXPORT_META_DATA.*", "ANALYSIS_DETAILS.*", "TARGET_INFO.*",
    "CUPTI.*", "CUDA_GPU_MEMORY_USAGE.*", "CUDA_UM.*", "NVTX.*", "MPI.*", "UCP.*", "OSRT_API.*", "OSRT_FILE_ACCESS.*",
    "ENUM_OSRT.*", "ENUM_NET.*", "SYSCALL.*", "OPENMP.*", "PROFILER_OVERHEAD.*", "SCHED_EVENTS.*", "COMPOSITE_EVENTS.*",
    "SAMPLING_CALLCHAINS.*", "GPU_METRICS.*", "GENERIC_EVENT.*", "NET_.*", "NIC_ID_MAP.*", "DIAGNOSTIC_EVENT.*",
)  # fmt: skip
"""What the reader reads, as patterns of `nsys export --tables`; call chains of calls and graphics are left out."""

_EXPORT = "export.sqlite"
_LIMIT_S = 4 * 3600
_VERSION = re.compile(r"(\d{4})[.@](\d+)[.@](\d+)(?:[.@](\d+))?")


def find_nsys() -> Path | None:
    """The nsys to use: the one that `ALLTRACE_NSYS` names, else the one on the path, else the newest one installed."""
    named = os.environ.get(TOOL_VARIABLE)
    if named:
        path = Path(named)
        return path / "nsys" if path.is_dir() else path
    on_path = shutil.which("nsys")
    if on_path:
        return Path(on_path)
    everywhere = [p for place in _PLACES for p in Path("/").glob(place[1:]) if os.access(p, os.X_OK)]
    return max(everywhere, key=lambda p: (_numbers(str(p)), str(p)), default=None)


def tool_version(nsys: Path) -> str | None:
    """The version of an nsys, such as `2023.4.4.54`, or None if it does not say."""
    try:
        answer = subprocess.run(
            [str(nsys), "--version"], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stdout)
    return match[0] if match else None


def report_version(path: Path) -> str | None:
    """The version of the profiler that wrote a `.nsys-rep`, from its first line, or None."""
    try:
        with path.open("rb") as file:
            head = file.read(256).decode("latin-1")
    except OSError:
        return None
    match = _VERSION.search(head)
    return ".".join(n for n in match.groups() if n is not None) if match else None


class Exported:
    """The SQLite export of a `.nsys-rep`, `.qdrep` or `.qdstrm`. Raises `InputError`: no nsys, or it cannot export it.

    `scratch`: a folder for it, which the caller removes and in which an export is used again; else a temporary one.
    """

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        self.path = path
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if scratch is not None and scratch.is_dir():
            self.sqlite: Path = scratch / _EXPORT
            if self.sqlite.is_file():
                return
        else:
            scratch = None
        if not path.is_file():
            raise InputError(path, found="there is no such file")
        if not path.stat().st_size:
            raise InputError(
                path, found="the file is empty", expected="a report of Nsight Systems", advice="capture it again"
            )
        nsys = _needed_nsys(path)
        self._folder = scratch_folder("alltrace-nsys-", scratch)
        try:
            self.sqlite = self._export(nsys, Path(self._folder.name))
            if scratch is not None:  # whole, or not there
                self.sqlite = self.sqlite.rename(scratch / _EXPORT)
                self.close()
        except BaseException:
            self.close()
            raise

    def _export(self, nsys: Path, folder: Path) -> Path:
        report = self.path
        if report.name.lower().endswith(".qdstrm"):
            report = self._import(nsys, folder)
        target = folder / _EXPORT
        command = [str(nsys), "export", "--type=sqlite", "--force-overwrite=true", "--quiet=true", f"--output={target}"]
        command += payload_switches(nsys)
        partial = [f"--tables={','.join(_TABLES)}"]
        code, output = _run([*command, *partial, str(report.resolve())])
        if code and re.search(r"tables|option|argument", output):  # an nsys that cannot export some tables alone
            target.unlink(missing_ok=True)
            code, output = _run([*command, str(report.resolve())])
        if code or not target.is_file():
            raise _failure(self.path, nsys, report, output)
        return target

    def _import(self, nsys: Path, folder: Path) -> Path:
        importer = next((p for p in _importers(nsys) if os.access(p, os.X_OK)), None)
        if importer is None:
            raise InputError(
                self.path,
                found="it is a raw capture, and QdstrmImporter was not found next to nsys",
                advice="install the full Nsight Systems, or convert it elsewhere with QdstrmImporter",
            )
        target = folder / "imported.nsys-rep"
        code, output = _run([str(importer), "--input-file", str(self.path.resolve()), "--output-file", str(target)])
        if code or not target.is_file():
            raise _failure(self.path, importer, self.path, output)
        return target

    def close(self) -> None:
        """Remove the export, unless it is in a folder of the caller's."""
        if self._folder is not None:
            self._folder.cleanup()


def export_report(path: Path, target: Path, more: Sequence[str] = (), *, keeps_payloads: bool = False) -> None:
    """Export a whole report to an SQLite file, with `more` options. Raises `InputError`: no nsys, or it cannot.

    `keeps_payloads`: whether payloads of NVTX events are exported, which they are not by default, if this nsys can.
    """
    nsys = _needed_nsys(path)
    command = [str(nsys), "export", "--type=sqlite", "--quiet=true", f"--output={target}", *more]
    code, output = _run([*command, *(payload_switches(nsys) if keeps_payloads else ()), str(path.resolve())])
    if code or not target.is_file():
        target.unlink(missing_ok=True)
        raise _failure(path, nsys, path, output)


def _needed_nsys(path: Path) -> Path:
    nsys = find_nsys()
    if nsys is None or not os.access(nsys, os.X_OK):
        where = f"{TOOL_VARIABLE} is {nsys}, which cannot be run" if nsys else "nsys was not found on this machine"
        raise InputError(
            path,
            found=f"only Nsight Systems can read this format, and {where}",
            advice=f"install Nsight Systems, or set {TOOL_VARIABLE} to its nsys, or export the report where it is "
            f"installed: {EXPORT} {printable(path.name)}",
        )
    return nsys


def _failure(path: Path, tool: Path, report: Path, output: str) -> InputError:
    wrote = report_version(report)
    ours = tool_version(tool) or tool_version(find_nsys() or tool)
    reason = printable(output)[:300] or "without a word"
    if wrote and ours and _numbers(wrote)[:3] > _numbers(ours)[:3]:
        return InputError(
            path,
            found=f"it was written by Nsight Systems {wrote}, and the one installed here is {ours} ({tool})",
            expected=f"Nsight Systems {wrote} or newer",
            advice=f"set {TOOL_VARIABLE} to a newer nsys, or export the report with one: {EXPORT}",
        )
    return InputError(
        path,
        found=f"{tool.name} {ours or ''} could not read it: {reason}".replace("  ", " "),
        expected="a complete Nsight Systems report",
        advice=f"capture it again, or export it with the version that wrote it: {EXPORT}",
    )


def _importers(nsys: Path) -> Iterator[Path]:
    yield nsys.parent / "QdstrmImporter"
    real = nsys.resolve()
    for root in (real.parent, real.parent.parent):
        yield from sorted(root.glob("host-linux-*/QdstrmImporter"))
        yield root / "QdstrmImporter"


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Run a tool in a separate process group; returns its exit code and its last line. An interrupt ends it, too."""
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return 127, str(error)
    try:
        output, _ = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        return 124, f"it took longer than {_LIMIT_S // 3600} hours"
    except BaseException:
        _end(process)
        raise
    lines = [line.strip() for line in re.split(r"[\r\n]+", output.decode("utf-8", "replace")) if line.strip()]
    return process.returncode, lines[-1] if lines else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _numbers(version: str) -> tuple[int, ...]:
    match = _VERSION.search(version)
    return tuple(int(n) for n in match.groups() if n is not None) if match else ()
