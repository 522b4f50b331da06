"""A report of `stats` in a process that has loaded its code: the first answer is thrown away, the second is timed.

`python -m benchmarks.own_answer NAME RUN` prints its seconds, and those of the processor. The run is opened anew and the answer is
worked out and made CSV both times; no answer is kept.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main() -> None:
    from alltrace.cli.startup import keep_pandas_out, load_lightly
    from alltrace.run.memory import keep_freed_memory

    load_lightly()  # as the verb does
    keep_freed_memory()
    keep_pandas_out()
    from alltrace.api import OpenRun
    from alltrace.cli.csv_text import to_csv
    from alltrace.recipes.ask import ask
    from alltrace.recipes.stats import find_report

    for last in (False, True):
        start, used = time.perf_counter(), time.process_time()
        text = to_csv(ask(OpenRun(Path(sys.argv[2])), find_report(sys.argv[1]), {}).table)
        if last:
            print(time.perf_counter() - start, time.process_time() - used)
        assert text.count("\n") > 1


if __name__ == "__main__":
    main()
