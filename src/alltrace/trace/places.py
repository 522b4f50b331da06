"""Where files are kept that are nobody's but alltrace's; loads nothing, so that a command can look there first."""

from __future__ import annotations

import os
import sys

DIR_VARIABLE = "ALLTRACE_CACHE_DIR"
_SYSTEM: str = sys.platform


def cache_folder() -> str:
    """The user's cache folder: `ALLTRACE_CACHE_DIR`, or the system's place for caches."""
    given = os.environ.get(DIR_VARIABLE)
    if given:
        return given
    if _SYSTEM == "linux":  # as platformdirs has it, which takes longer to load than a kept answer to write
        base = os.environ.get("XDG_CACHE_HOME", "")
        return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "alltrace")
    import platformdirs

    return platformdirs.user_cache_dir("alltrace", appauthor=False)
