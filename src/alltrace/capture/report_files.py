"""What a profiled rank leaves: is there a report, what is missing and why, and what is tidied up."""

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path

from alltrace.capture.check import find_reports
from alltrace.capture.identity import find_identity
from alltrace.capture.plan import Plan, Request
from alltrace.capture.program_shell import REVOKED
from alltrace.capture.ray_actors import claim_name
from alltrace.capture.selection import report_name
from alltrace.capture.variables import RANK_FILE, REPORT_FILE, WINDOWS_FILE
from alltrace.trace.errors import InputError, printable
from alltrace.trace.gpu_log_words import OFFSET_SUFFIX
from alltrace.trace.side_file_words import SIDE_FILE, VERSION_KEY

LOG = "profiler.log"
"""The file, in a rank's temporary folder, with what the profiler printed."""
_LEAVINGS = "nvidia"
_LEAST_BYTES = 1 << 20
_RAW = (".qdstrm", ".nsys-rep", ".ncu-rep")


def prepare(request: Request, report: Path, rank: int) -> Path:
    folder = report.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".alltrace-{os.urandom(8).hex()}"
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise InputError(
            folder, found=f"no report can be written there ({error.strerror})", advice="give another --output"
        ) from error
    base = request.tmp or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    private = Path(base).absolute() / f"alltrace-{rank}-{os.urandom(8).hex()}"
    try:
        private.mkdir(mode=0o700)
        with suppress(OSError):  # a full disk is reported later
            (private / REPORT_FILE).write_text(f"{report}\n", encoding="utf-8")
        return private
    except OSError as error:
        raise InputError(
            base,
            found=f"no temporary folder can be created there ({error.strerror})",
            advice="give a local, writable --tmp or TMPDIR",
        ) from error


def remove_older(report: Path) -> None:
    reports = find_reports(report)
    for path in (*reports.whole, *(p for p, _ in reports.faults)):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            advice = "give another --output or --job"
            raise InputError.cannot_be("removed", path, error, what="the older report", advice=advice) from error


def name_windows(report: Path, private: Path) -> None:
    """Name the reports of an armed rank, which nsys has numbered, by the windows that it has recorded."""
    try:
        lines = (private / WINDOWS_FILE).read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return
    ending = report.suffix
    stem = report.name[: -len(ending)]
    for number, line in enumerate(lines, 1):
        window, first, end = map(int, line.split())
        name = f"{stem}_window{window}_steps{first}-{end - 1}{ending}"
        for numbered in (f"{stem}.{number}{ending}", *([report.name] if len(lines) == 1 else [])):
            with suppress(OSError):
                report.with_name(numbered).rename(report.with_name(name))


def name_by_rank(
    request: Request, plan: Plan, report: Path, private: Path, variables: Mapping[str, str]
) -> tuple[Plan, Path]:
    """Name the reports of a worker of Ray by the rank that its program stated; the new plan and report."""
    try:
        rank, size = map(int, (private / RANK_FILE).read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return plan, report
    environment = {**variables, "RANK": str(rank), "WORLD_SIZE": str(size)}
    environment.update(claim_name(request, environment))
    who = find_identity(environment, os.uname().nodename)
    ending, name = report.suffix, report_name(request.name, who, environment, request.job)
    stem, becomes = report.name[: -len(ending)], name.removesuffix(ending)
    reports = find_reports(report)
    for path in (*reports.whole, *(p for p, _ in reports.faults)):
        with suppress(OSError):
            path.rename(path.with_name(becomes + path.name[len(stem) :]))
    return plan._replace(who=who), report.with_name(becomes + ending)


def account(
    request: Request, report: Path, private: Path, me: str, problems: list[str], say: Callable[[str], None]
) -> bool:
    """Say what there is and what is missing, tidy up; whether the report is missing."""
    reports = find_reports(report)
    problems += [f"{path.name}: {fault}" for path, fault in reports.faults]
    # not rglob, which fails if the profiler removes a folder meanwhile
    left = sorted(Path(at, n) for at, _, names in os.walk(private) for n in names if n.endswith(_RAW))
    # without its importer, nsys leaves what it recorded in place of the report
    left += sorted(
        p for p in report.parent.glob(f"{escape(report.name.removesuffix(report.suffix))}*.qdstrm") if p.is_file()
    )
    if request.nsys.armed and not (reports.whole or reports.faults or problems or (private / WINDOWS_FILE).exists()):
        if request.verbose:
            say(f"{me}: no window was requested, so there is no report")
        tidy(private)
        return False
    if not reports.whole:
        began = request.nsys.range_began_by if request.profiler == "nsys" else None
        if began and not reports.faults and not problems:
            advice = "; record programs without steps with --delay and --duration" if request.nsys.steps else ""
            problems.append(f"the recording never started, because the program did not reach {began}{advice}")
        problems += [why for folder in (report.parent, private) if (why := full(folder)) is not None]
        for path in left:
            command = shlex.join(
                ["alltrace", "capture", "recover", str(private if path.is_relative_to(private) else path.parent)]
            )
            problems.append(f"a raw capture was left at {path}; `{command}` may save it")
        say(f"{me}: no complete report {report}" + "".join(f"; {printable(p)}" for p in problems))
        if not any(path.is_relative_to(private) for path in left):
            tidy(private)
        return True
    for path in reports.whole:
        if request.verbose or problems:
            say(f"{me}: report {path}, {path.stat().st_size} bytes")
    if problems:
        say(f"{me}: {'; '.join(printable(p) for p in problems)}")
    tidy(private)
    return False


def full(folder: Path) -> str | None:
    with suppress(OSError):
        about = os.statvfs(folder)
        free = about.f_bavail * about.f_frsize
        if free < _LEAST_BYTES:
            return f"only {free} bytes are free in {folder}"
    return None


def tidy(private: Path) -> None:
    """Remove what the profiler left; what the program put there stays."""
    shutil.rmtree(private / _LEAVINGS, ignore_errors=True)
    with suppress(OSError):
        for path in private.iterdir():
            of_profiler = path.name in (REPORT_FILE, RANK_FILE) or path.name.startswith(
                ("injection_config_", "quadd_", "nsys-", LOG, WINDOWS_FILE)
            )
            if of_profiler or path.name.endswith(REVOKED):
                path.unlink()
        private.rmdir()


def files_beside(plan: Plan, report: Path, log: Path) -> list[Path]:
    """The files next to a rank's report: its side file, and the log of the node's GPUs if this rank recorded it."""
    paths = [report.with_name(f"{report.name}{SIDE_FILE}")]
    paths += [log, log.with_name(log.name + OFFSET_SUFFIX)] if plan.gpu_log is not None else []
    return [path for path in paths if path.is_file()]


def write_side_file(request: Request, plan: Plan, report: Path, role: str) -> None:
    """Write a file next to a report with what was left out, and its rank's role; without either, there is no file."""
    if not (plan.left_out or role):
        return
    content = {
        VERSION_KEY: 1,
        "rank": plan.who.rank,
        "host": plan.who.host,
        "profiler": request.profiler,
        "role": role or None,
        "left_out": [one._asdict() for one in plan.left_out],
    }
    side = report.with_name(f"{report.name}{SIDE_FILE}")
    part = side.with_name(f".{side.name}.{os.getpid()}")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.replace(side)
