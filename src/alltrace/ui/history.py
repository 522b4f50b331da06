"""The history of many runs, shown with one run: their step times, breakdowns, findings and slow hosts."""

from pathlib import Path
from typing import Any

from alltrace.recipes.base import Answer, Chart
from alltrace.run.manifest import Manifest
from alltrace.ui.json_values import plain, plain_answer


class HistoryFile:
    """A file that `alltrace history` keeps; it is opened for each question, so that others can update it."""

    def __init__(self, path: Path) -> None:
        from alltrace.history.store import open_history

        self._path = path
        self.name: str = path.name
        with open_history(path):
            pass

    def told(self, manifest: Manifest, job: str | None, tag: str | None) -> dict[str, Any]:
        """What the history has to say, and the place of a run in it."""
        # `manifest`: the facts of the run. `job`: only runs of this job; None for all. `tag`: only runs with this tag;
        # None for all. Returns `run`, `host` and `finding`, answers to its questions with their `figure`; `breakdown`,
        # the figure of the runs' time by class; `jobs` and `tags`, those that can be chosen; and `place`, the row of
        # the run in `run`, None without one. Raises `UsageError`: no run has the job or the tag.
        from alltrace.history.questions import BREAKDOWN_CHART, QUESTIONS, ask_history, choices, place_of
        from alltrace.history.run_rows import run_id
        from alltrace.history.store import open_history

        with open_history(self._path) as history:
            answers = {by: ask_history(history, by, job=job, tag=tag) for by in QUESTIONS}
            jobs, tags = choices(history)
            place = place_of(history, run_id(manifest), job=job, tag=tag)
        rows: dict[str, Any] = {
            by: plain_answer(answer) | _figure(answer, answer.chart) for by, answer in answers.items()
        }
        return rows | {
            "breakdown": _figure(answers["run"], BREAKDOWN_CHART),
            "jobs": jobs,
            "tags": tags,
            "place": place,
        }


def _figure(answer: Answer, chart: Chart | None) -> dict[str, Any]:
    from alltrace.charts import draw, figure

    if chart is None or not answer.table.num_rows:
        return {}
    return {"figure": plain(figure(draw(answer._replace(chart=chart))))}
