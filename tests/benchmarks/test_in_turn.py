"""Versions that are compared are started each by its own entry point."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.in_turn import command_of

HERE = Path(__file__).resolve().parents[2]


def test_a_checkout_is_started_as_its_script_would(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nalltrace = "shutil:get_terminal_size"\n')
    assert command_of(tmp_path)[2] == "import sys; from shutil import get_terminal_size; sys.exit(get_terminal_size())"
    version = subprocess.run([*command_of(HERE), "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith("alltrace ")
