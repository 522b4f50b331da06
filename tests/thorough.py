"""How much a test tries: a share by default, all of it with `ALLTRACE_THOROUGH=1`, as in CI, where more finds
little."""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("ALLTRACE_THOROUGH"))


def cases(usual: int, thorough: int) -> int:
    """The number of random cases of a test: `usual`, or `thorough` where that is asked for."""
    return thorough if THOROUGH else usual
