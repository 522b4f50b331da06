"""Ctrl-C while the command line is being loaded, and just before it takes over."""

import signal
import subprocess
import sys

import pytest

INTERRUPTS = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from alltrace.cli.start import command
sys.argv = ["alltrace", "info", "nothing"]
command()
"""


@pytest.mark.parametrize("module", ["alltrace.cli.main", "argparse", "alltrace.cli.command", "alltrace.run.resolve"])
def test_ctrl_c_leaves_no_traceback(module):
    done = subprocess.run([sys.executable, "-c", INTERRUPTS.format(module=module)], capture_output=True, text=True, check=False)
    assert done.returncode in (-signal.SIGINT, 130), done
    assert "Traceback" not in done.stderr


def test_an_ignored_interrupt_stays_ignored():
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);" + INTERRUPTS.format(module="alltrace.cli.main")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
