"""A recording as one small file: scrubbed, with the gain that was measured, so that tests can score it again."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.trace.errors import AlltraceError
from benchmarks.processes_truth.measuring import Gain

if TYPE_CHECKING:
    from collections.abc import Mapping

_GAIN = "gain.json"
_HOST = re.compile(r"_on_[^.]*")  # in the names that `capture exec` gives to reports


def pack(reports: Path, gain: Gain, target: Path) -> None:
    """Write the reports without hosts and paths, and the gain, to `target`, a `.tar.xz`.

    Raises:
        AlltraceError: The reports cannot be scrubbed.
    """
    with tempfile.TemporaryDirectory(prefix="alltrace-pack-") as folder:
        scrubbed = Path(folder) / "reports"
        command = [sys.executable, "-m", "alltrace.cli.main", "capture", "scrub", str(reports), "-o", str(scrubbed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AlltraceError(f"{reports} cannot be scrubbed: {done.stderr.strip()}")
        # what is compressed already would not become smaller
        read = {_HOST.sub("", f.name.removesuffix(".gz")): _plain(f) for f in sorted(scrubbed.iterdir()) if f.is_file()}
    target.parent.mkdir(parents=True, exist_ok=True)
    _write(target, {**read, _GAIN: json.dumps(asdict(gain)).encode()})


def unpack(packed: Path, folder: Path) -> Gain:
    """Write the reports of a packed recording into `folder`; the gain that was measured."""
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    gain = json.loads((folder / _GAIN).read_text(encoding="utf-8"))
    (folder / _GAIN).unlink()
    return Gain(tuple(gain["with_ns"]), tuple(gain["without_ns"]), gain["cpu_ns_per_step"])


def _plain(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


def _write(target: Path, contents: Mapping[str, bytes]) -> None:
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
