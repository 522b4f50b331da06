"""What the server offers, without the protocol: each tool returns a bounded answer, and tells how to get more."""

import glob
import json
import threading
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from alltrace.api import OpenRun
from alltrace.mcp.skill import cautions
from alltrace.recipes.base import Answer, OptionValue
from alltrace.trace.errors import UsageError, encodable, printable
from alltrace.ui.json_values import plain

MOST_ROWS = 500
MOST_BYTES = 60_000
_MOST_TEXT = 400
_SQL_SECONDS, _SQL_MEMORY_BYTES, _SQL_ROWS = 60.0, 2 << 30, 10_000

Reply = dict[str, object]
"""An answer: `columns`, `rows`, `notes`, `rows_total`, and `more` if rows are left."""


class Tools:
    """The tools.

    `roots`: the folders that runs are opened from; what is outside of them is refused. `cache_dir`: where imported
    reports are kept; None for the user's cache folder.
    """

    def __init__(self, roots: Sequence[Path], cache_dir: Path | None = None) -> None:
        self._roots = [root.resolve() for root in roots]
        self._cache = cache_dir
        self._runs: dict[str, OpenRun] = {}
        self._lock = threading.Lock()

    def open(self, path: str) -> Reply:
        """Open a run directory, a report, or a folder of reports of one job; returns its ranks and its name `run`.

        It stays open for all later calls; open it again if its files have changed.
        """
        with self._lock:
            self._runs.pop(str(self._place(path)), None)
            reply = self._reply(self._run(path).recipe("info").answer, 50, 0)
        return {"run": path, **reply}

    def diagnose(self, run: str, limit: int = 20, offset: int = 0, skip_warmup: bool = False) -> Reply:
        """What costs the run time, who is responsible and what to do: ranked findings. Start with this after `open`.

        Of a folder without a profile, the answer of `hang`.
        """
        from alltrace.run.discover import NoReportError

        try:
            with self._lock:
                return self._reply(
                    self._run(run).recipe("diagnose", skip_warmup=skip_warmup).answer, limit, offset, "diagnose"
                )
        except NoReportError:
            return self.hang(run, limit=limit, offset=offset)

    def hang(self, folder: str, at: float | None = None, limit: int = 20, offset: int = 0) -> Reply:
        """Which rank a hanging or dead job waits for, and why, from what it left in a folder: dumps, logs, stacks.

        `verdict` says it in a sentence. `at` is when the dumps were written, in seconds since 1970, if the files' times
        do not say.
        """
        from alltrace.hang.verdict import verdict_of

        place = self._place(folder)
        for file in place.rglob("*"):
            if file.is_symlink():
                self._place(str(file))
        answer = verdict_of(place, None if at is None else int(at * 1e9))
        return self._reply(answer, limit, offset)

    def recipe(
        self,
        run: str,
        name: str,
        options: dict[str, OptionValue] | None = None,
        ranks: list[int] | None = None,
        steps: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Reply:
        """Ask any recipe by name, such as `breakdown`, `kernels`, `stragglers` or `stats:cuda_gpu_kern_sum`.

        `explain` says what each answers. `steps` is `10:50` for steps 10 to 49.
        """
        from alltrace.recipes.execution.ask import ask

        with self._lock:
            answer = ask(self._run(run), name, self._within_roots(name, options or {}), ranks=ranks, steps=steps)
        return self._reply(answer, limit, offset, name)

    def sql(self, run: str, query: str, limit: int = 100, offset: int = 0) -> Reply:
        """Answer one reading query in DuckDB's SQL over the tables of all ranks.

        The resource alltrace://tables lists them. Times are ns on the run's clock.
        """
        from alltrace.recipes.questions.sql import Limits
        from alltrace.recipes.questions.sql_process import limited_query

        with self._lock:
            answer = limited_query(self._run(run), query, Limits(_SQL_SECONDS, _SQL_MEMORY_BYTES, _SQL_ROWS))
        return self._reply(answer, limit, offset, "sql")

    def compare(self, run_a: str, run_b: str, what: str | None = None, limit: int = 30, offset: int = 0) -> Reply:
        """What became slower or faster from run A to run B, or chance. `what` is `kernel,step` or the like."""
        from alltrace.recipes.questions.diff import compare

        with self._lock:
            answer = compare(self._run(run_a), self._run(run_b), what=what)
        return self._reply(answer, limit, offset, "compare")

    def explain(self, term: str) -> Reply:
        """What a kind of finding, a recipe, a table, a column or a piece of evidence means."""
        from alltrace.recipes.terms import explain

        return self._reply(explain(term), MOST_ROWS, 0)

    def _run(self, path: str) -> OpenRun:
        """The run at a path, opened once.

        Raises `UsageError`: the path is outside of the roots. Raises `InputError`: there is no run.
        """
        from alltrace.api import open_run

        full = self._place(path)
        run = self._runs.get(str(full))
        if run is None:
            run = self._runs[str(full)] = open_run(full, cache_dir=self._cache)
        return run

    def _place(self, path: str) -> Path:
        """The file or folder that a text names, or the pattern that it is.

        Raises `UsageError`: it, or something that matches the pattern, is outside of the roots, or the text is no path.
        """
        if not encodable(path):
            raise UsageError(f"{printable(path)} has a NUL or halves of characters; expected a path")
        full = (self._roots[0] / path).resolve()
        # absolute patterns
        matching = (Path(match).resolve() for match in glob.iglob(str(full), recursive=True))  # noqa: PTH207
        if not all(any(place.is_relative_to(root) for root in self._roots) for place in chain([full], matching)):
            folders = ", ".join(map(str, self._roots))
            raise UsageError(f"{printable(path)} is outside the folders that this server reads: {printable(folders)}")
        return full

    def _within_roots(self, name: str, options: dict[str, OptionValue]) -> dict[str, OptionValue]:
        """The options, with those that name files leading into the roots."""
        from alltrace.recipes.registry import find
        from alltrace.run.log_files import expand

        within = dict(options)
        for option in find(name).options:
            value = options.get(option.name)
            if option.reads == "run" and isinstance(value, str):
                within[option.name] = str(self._place(value))
            elif option.reads is not None and isinstance(value, str):
                files = expand([str(self._place(part)) for part in value.split(",")])  # which may be links
                within[option.name] = ",".join(str(self._place(str(file))) for file in files)
        return within

    @staticmethod
    def _reply(answer: Answer, limit: int, offset: int, asked: str = "") -> Reply:
        """The rows from `offset` on, as `limit` and the bound on bytes allow, and limits of `asked`."""
        if limit < 1 or offset < 0:
            raise UsageError(
                f"limit is {limit} and offset {offset}; expected a limit of 1 or more and an offset of 0 or more"
            )
        total = answer.table.num_rows
        rows: list[dict[str, object]] = []
        size = 0
        for row in answer.table.slice(offset, min(limit, MOST_ROWS)).to_pylist():
            short = {name: _short(plain(value)) for name, value in row.items()}
            size += len(json.dumps(short))
            if rows and size > MOST_BYTES:
                break
            rows.append(short)
        reply: Reply = {
            "columns": [{"name": c.name, "unit": c.unit} for c in answer.columns],
            "rows": rows,
            "rows_total": total,
            "notes": [
                *(_cut(printable(note)) for note in answer.notes),
                *([cautions()[asked]] if asked in cautions() else []),
            ],
        }
        if answer.verdict is not None:
            reply["verdict"] = printable(answer.verdict)
        following = offset + len(rows)
        if following < total:
            reply["more"] = f"{total - following} more rows; call again with offset={following}"
        return reply


def _short(value: object) -> object:
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, list):
        return [_short(each) for each in value]
    return {name: _short(each) for name, each in value.items()} if isinstance(value, dict) else value


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
