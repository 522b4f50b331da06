"""What holds for every Paraver trace that tests make: our checker and the independent pertalde find no fault."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from alltrace.export.paraver.checker import Report, check
from alltrace.readers.paraver.labels import read_pcf
from alltrace.readers.paraver.parsing import read_lines


def pertalde() -> str | None:
    """The command of pertalde, which has wheels for some versions of Python only."""
    beside = Path(sys.executable).with_name("ptd")
    return str(beside) if beside.is_file() else shutil.which("ptd")


def well_formed(path: Path) -> Report:
    """What our checker says of a trace; fails if it or pertalde finds a fault.

    pertalde knows less than Paraver does: of the .pcf it takes ASCII and no PRECISION, and negative values are faults
    to it. So it gets the .pcf without those, and no trace with negative values.
    """
    report = check(path)
    assert report.faults == []
    tool = pertalde()
    if tool is None or _has_negative_values(path):
        return report
    stem = path.name.removesuffix(".gz").removesuffix(".prv")
    text = path.with_name(f"{stem}.pcf").read_text(encoding="utf-8")
    plain = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("PRECISION"))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{stem}.pcf").write_bytes(plain.encode("ascii", "replace"))
        (Path(folder) / path.name).symlink_to(path)
        done = subprocess.run(
            [tool, "comprovar", "-e", path.name], cwd=folder, capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (0, "", "")
    return report


def _has_negative_values(path: Path) -> bool:
    return any(bool(np.any(lines.values < 0)) for lines in read_lines(path)[1])


def labels_of(path: Path) -> dict[int, dict[int, str]]:
    """For each event type of a .pcf the labels of its values."""
    return {number: event.values for event in read_pcf(path) for number in event.types}
