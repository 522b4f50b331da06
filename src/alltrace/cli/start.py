"""The command's beginning: until the command line is loaded, Ctrl-C ends the process without a traceback."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def command() -> NoReturn:
    taken = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if taken:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from alltrace.cli.main import main

    try:
        if taken:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
    except KeyboardInterrupt:  # before the command line takes it, or after
        code = 128 + signal.SIGINT
    sys.exit(code)
