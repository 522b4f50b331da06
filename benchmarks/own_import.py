"""An import in a process that has loaded its code: the first import is thrown away, the second is timed.

`python -m benchmarks.own_import FILE OUT` prints its seconds, and those of the processor.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path


def main() -> None:
    from alltrace.cli.startup import keep_pandas_out, load_lightly

    load_lightly()  # as the verb does
    keep_pandas_out()
    from alltrace.run.importer import import_reports

    source, output = sys.argv[1], Path(sys.argv[2])
    for last in (False, True):
        shutil.rmtree(output, ignore_errors=True)
        start, used = time.perf_counter(), time.process_time()
        import_reports([source], output, jobs=1)
        if last:
            print(time.perf_counter() - start, time.process_time() - used)


if __name__ == "__main__":
    main()
