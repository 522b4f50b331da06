"""Reports of Nsight Compute shown with a run: their roofline, advice, and what each launch represents in the run."""

from collections.abc import Sequence
from typing import Any

from alltrace.recipes.base import Answer
from alltrace.recipes.ncu.tables import Profiled
from alltrace.ui.json_values import plain, plain_answer


# `profiled`: the launches, each with the name of its report. `notes`: what a reader must know of the reports.
class KernelReports:
    """Launches that were measured."""

    def __init__(self, profiled: Sequence[Profiled], notes: Sequence[str] = ()) -> None:
        self._profiled = list(profiled)
        self._notes = list(notes)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(p.report for p in self._profiled))

    def roofline(self) -> dict[str, Any]:
        """`launches`, `points` and `advice`, answers of the views of `ncu`; `ceilings` of each device; `notes`."""
        from alltrace.recipes.ncu import advice, roofline, views

        points = roofline.answer(self._profiled, self._notes)
        return {
            "launches": plain_answer(views.LAUNCHES.answer(self._profiled, ())),
            "points": plain_answer(points),
            "advice": plain_answer(advice.answer(self._profiled, ())),
            "ceilings": plain(points.extra["ceilings"]),
            "notes": list(points.notes),
        }

    def weighed(self, configurations: Answer) -> dict[str, Any]:
        """What the launches represent in a run."""
        # `configurations`: the answer of the recipe `launch-configurations`. Returns the answer of `ncu --run`, and
        # `of`: for each launch the number of its row there, None if the run has no such launch.
        from alltrace.recipes.ncu import weigh
        from alltrace.recipes.ncu.tables import sizes
        from alltrace.trace.launches import plain_name

        answer = weigh.answer(self._profiled, configurations.table.to_pylist(), configurations.notes)
        columns = [answer.table.column(c).to_pylist() for c in ("name", "grid", "block")]
        row_of = {(plain_name(n), g, b): i for i, (n, g, b) in enumerate(zip(*columns, strict=True))}
        keys = [(plain_name(p.launch.name), sizes(p.launch.grid), sizes(p.launch.block)) for p in self._profiled]
        return plain_answer(answer) | {"of": [row_of.get(k) for k in keys]}
