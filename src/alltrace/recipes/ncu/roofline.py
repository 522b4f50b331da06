"""Points of a roofline: work per second over work per byte, by precision and memory level, under the device's ceilings.

Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009; a level of memory each: Yang, Kurth and Williams,
"Hierarchical Roofline analysis for GPUs", CCPE 32(20), 2020.
"""

from collections.abc import Sequence
from typing import Any

from alltrace.recipes.base import Answer, Chart, View
from alltrace.recipes.ncu import tables
from alltrace.recipes.ncu.ceilings import LEVELS, PRECISIONS, Ceiling, ceilings
from alltrace.recipes.ncu.tables import IDENTITY, Profiled, identity
from alltrace.recipes.ncu.work import moved, operations
from alltrace.trace import columns as col

COLUMNS = (
    *IDENTITY,
    col.text("precision", "FP64, FP32, or a format of tensor cores; null if the report counts no operations"),
    col.text("level", "L1, L2 or DRAM"),
    col.text("point", "precision and level"),
    col.real("work_flop_per_s", "operations done", "FLOP/s"),
    col.real("moved_bytes_per_s", "bytes moved at this level", "bytes/s"),
    col.real("intensity_flop_per_byte", "operations per byte moved", "FLOP/byte"),
    col.real("peak_flop_per_s", "the precision's ceiling at the clock of the launch", "FLOP/s"),
    col.real("peak_bytes_per_s", "the level's ceiling", "bytes/s"),
    col.real("roof_flop_per_s", "the smaller of peak_flop_per_s and intensity times peak_bytes_per_s", "FLOP/s"),
    col.percent("roof_percent", "work_flop_per_s as a share of roof_flop_per_s", None),
    col.text("under", "the ceiling that the point is under: compute or memory"),
    col.text("basis", "how operations were counted: instructions, operations or pipe activity"),
)
_LACKS = {
    "counts": "have no count of floating-point operations in their report; `ncu --set roofline` collects them",
    "work": "did no operation that their report counts, so they have no point: they move bytes, or work on integers",
    "bytes": "have no bytes moved in their report; `ncu --set roofline` collects them",
    "roofs": (
        "have no roof of compute: no peaks and no device attributes in their report, nor a data sheet here of their GPU"
    ),
}
CHART = Chart("roofline", "intensity_flop_per_byte", ("work_flop_per_s",), "point", detail="name", title="Roofline")


def answer(profiled: Sequence[Profiled], notes: Sequence[str]) -> Answer:
    """One row per launch, precision and level; and the list `ceilings` of each device."""
    rows = []
    lacks = dict.fromkeys(_LACKS, 0)
    best: dict[tuple[str, str], Ceiling] = {}
    for each in profiled:
        roofs = ceilings(each.launch)
        for name, ceiling in roofs.items():
            before = best.get((ceiling.device, name))
            if before is None or before.value < ceiling.value:
                best[ceiling.device, name] = ceiling
        work = operations(each.launch)
        traffic = {level: moved(each.launch, level) for level in LEVELS}
        lacks["counts"] += not work
        lacks["work"] += bool(work) and not any(done for done, _ in work.values())
        lacks["bytes"] += not any(traffic.values())
        lacks["roofs"] += not any(c.kind == "compute" for c in roofs.values())
        counted: list[str | None] = [p for p in PRECISIONS if p in work]
        for precision in counted or [None]:
            rows += [_row(each, precision, level, work, traffic[level], roofs) for level in LEVELS]
    texts = [*notes, *(f"{n} of {len(profiled)} launches {_LACKS[what]}" for what, n in lacks.items() if n)]
    return Answer(tables.table(COLUMNS, rows), COLUMNS, tuple(texts), {"ceilings": _shown(list(best.values()))}, CHART)


def _row(
    each: Profiled,
    precision: str | None,
    level: str,
    work: dict[str, tuple[float, str]],
    rate: float | None,
    roofs: dict[str, Ceiling],
) -> tuple[Any, ...]:
    done, basis = work[precision] if precision else (None, None)
    peak = roofs[precision].value if precision in roofs else None
    bandwidth = roofs[level].value if level in roofs else None
    intensity = done / rate if done is not None and rate else None
    slope = intensity * bandwidth if intensity is not None and bandwidth is not None else None
    roof = min(peak, slope) if peak is not None and slope is not None else None
    return (
        *identity(each),
        precision,
        level,
        f"{precision}, {level}" if precision else None,
        done,
        rate,
        intensity,
        peak,
        bandwidth,
        roof,
        100 * done / roof if done is not None and roof else None,
        ("memory" if roof == slope else "compute") if roof else None,
        basis,
    )


def _shown(every: list[Ceiling]) -> list[dict[str, Any]]:
    devices = {c.device for c in every}
    return [
        {
            "name": f"{c.name}, {c.device}" if len(devices) > 1 else c.name,
            "kind": c.kind,
            "value": c.value,
            "unit": "FLOP/s" if c.kind == "compute" else "bytes/s",
            "at_highest_clock": c.greatest,
            "source": c.source,
            "device": c.device,
        }
        for c in every
    ]


VIEW = View(COLUMNS, answer, CHART)
