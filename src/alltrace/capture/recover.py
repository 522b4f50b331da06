"""Raw captures that were never made into reports, made into reports."""

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from alltrace.capture.check import report_fault
from alltrace.capture.variables import REPORT_FILE
from alltrace.trace.errors import InputError, UsageError

_LIMIT_S = 3600
_PLACES = (
    "../host-linux-*/QdstrmImporter",
    "../Host-*/QdstrmImporter",
    "../../host-linux-*/QdstrmImporter",
    "QdstrmImporter",
)


@dataclass(frozen=True)
class Recovered:
    """What became of one raw capture: its report, or what is wrong with it."""

    raw: Path
    report: Path | None
    fault: str | None


def find_importer(nsys: Path) -> Path:
    beside = nsys.resolve().parent
    importer = next((p for place in _PLACES for p in sorted(beside.glob(place)) if os.access(p, os.X_OK)), None)
    if importer is None:
        raise UsageError(
            f"QdstrmImporter was not found next to {nsys}; install the full Nsight Systems, not only its command line"
        )
    return importer


def recover(folder: Path, nsys: Path, output: Path | None = None) -> list[Recovered]:
    """Make a report of every `.qdstrm` in `folder` and below that has none; the raw captures stay."""
    # A raw capture that `capture exec` has left becomes the intended report, in its place or in `output`; one from nsys
    # itself becomes a report next to it. `output`: the folder for reports, created if missing; None for their own
    # place.
    if not folder.is_dir():
        raise InputError(folder, found="there is no such folder", expected="a folder with .qdstrm files")
    importer = find_importer(nsys)
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError.cannot_be("created", output, error, advice="give another --output") from error
    return [
        _recover(path, _target(path, output), importer) for path in sorted(folder.rglob("*.qdstrm")) if path.is_file()
    ]


def _target(raw: Path, output: Path | None) -> Path:
    beside = raw.with_suffix(".nsys-rep")
    named = None
    with suppress(OSError, ValueError):
        named = Path((raw.parent / REPORT_FILE).read_text(encoding="utf-8").rstrip("\n"))
    if named is not None and len(list(raw.parent.glob("*.qdstrm"))) > 1:  # of several windows
        named = named.with_name(f"{named.stem}_{raw.stem}.nsys-rep")
    if output is not None:
        return output / (beside if named is None else named).name
    return named if named is not None and named.parent.is_dir() else beside


def _recover(raw: Path, report: Path, importer: Path) -> Recovered:
    if report.exists():
        fault = report_fault(report)
        if fault is None:
            return Recovered(raw, report, None)
        return Recovered(raw, None, f"{report.name} already exists, and {fault}; move it away")
    if not raw.stat().st_size:
        return Recovered(raw, None, "it is empty; nothing was recorded")
    part = report.with_name(f".{report.stem}.{os.getpid()}.nsys-rep")
    try:
        done = subprocess.run(
            [str(importer), "-i", str(raw), "-o", str(part)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
        fault = (
            report_fault(part) if done.returncode == 0 else "it is incomplete: the recording was killed before it ended"
        )
        if fault is None:
            part.rename(report)
            return Recovered(raw, report, None)
        return Recovered(raw, None, fault)
    except subprocess.TimeoutExpired:
        return Recovered(raw, None, f"the importer did not finish within {_LIMIT_S} s")
    finally:
        part.unlink(missing_ok=True)
