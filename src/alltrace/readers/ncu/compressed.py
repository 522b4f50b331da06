"""Compressed reports (`.ncu-repz`, from Nsight Compute 2025.4 on), which only Nsight Compute itself can open."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from alltrace.trace.errors import InputError

SUFFIX = ".ncu-repz"
_EXPECTED = "a report that an installed Nsight Compute can open"
_SECONDS = 600
_ADVICE = "install Nsight Compute 2025.4 or later, or set its path in ALLTRACE_NCU; or save the report as .ncu-rep"


def printed_by_ncu(path: Path) -> bytes:
    """The page raw of a compressed report in base units, as `ncu` prints it.

    Raises `InputError`: there is no `ncu`, or it cannot open the report.
    """
    named = os.environ.get("ALLTRACE_NCU", "ncu")
    program = shutil.which(str(Path(named) / "ncu") if Path(named).is_dir() else named)
    if program is None:
        raise InputError(path, found="it is compressed, and no ncu was found to open it", expected=_EXPECTED, advice=_ADVICE)
    command = [program, "--import", str(path.resolve()), "--csv", "--page", "raw", "--print-units", "base"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(path, found=f"{program} could not open it ({error})", expected=_EXPECTED, advice=_ADVICE) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        reason = f": {lines[-1]}" if lines else ""
        raise InputError(path, found=f"{program} could not open it{reason}", expected=_EXPECTED, advice=_ADVICE)
    return done.stdout
