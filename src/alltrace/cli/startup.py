"""Settings of the command-line process, made before the data libraries load."""

import gc
import os


def configure_process() -> None:
    """Start no idle threads, free memory early, and look for garbage less often."""
    # OpenBLAS would start a thread for each core, which only matrix products use. The system's allocator returns freed
    # memory sooner than Arrow's own. Most objects of a command live until its end, so scanning them again and again
    # finds nothing. What the user has set in the environment stays.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    gc.set_threshold(100_000, 10, 10)
