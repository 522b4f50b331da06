"""How often a diagnosis is right: `python -m benchmarks.accuracy --write docs/accuracy.md` simulates known faults.

Every kind of fault is planted alone in every layout and with every seed, at ranks and with a strength drawn from the
seed; pairs of faults likewise; and runs without any. A finding is right when it has the fault's kind and names its
culprits exactly: the ranks, of a slow host the host. The first finding is right when it is about what costs most: the
fault, or the run's own exposed communication, which follows from simulating the run without the fault, and again with
communication that takes no time. The seeds and the sizes of the runs for the table differ from those used for
developing (`--developing`).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alltrace.api import OpenRun
from alltrace.engine.tasks import run_tasks
from alltrace.run.importer import import_reports
from alltrace.synth import SCENARIOS, write_run
from alltrace.synth.simulate import simulate
from benchmarks.accuracy_page import write_table

_JOBS = 2

LAYOUTS = ("tensor-data", "pipeline", "sharded")


@dataclass(frozen=True)
class Plan:
    """Seeds and sizes of the runs.

    Attributes:
        seeds: Of each kind and layout.
        healthy: Seeds of runs without a fault.
        values: Values of the scenario.
    """

    seeds: tuple[int, ...]
    healthy: tuple[int, ...]
    values: dict[str, Any]


DEVELOPING = Plan((1, 2, 3, 4, 5), tuple(range(1, 21)), {"ranks": 8, "hosts": 2, "steps": 8})
TABLE = Plan(
    tuple(range(7101, 7106)),
    tuple(range(7201, 7221)),
    {"ranks": 8, "hosts": 2, "steps": 9, "kernel_ns": 75_000, "kernels_per_layer": 9, "host_call_ns": 4_000},
)

KINDS = (
    "slow-rank",
    "slow-host",
    "imbalance",
    "slow-communicator",
    "exposed-communication",
    "serialized-communication",
    "launch-bound",
    "sync",
    "host-pause",
    "data-stall",
    "idle-gap",
    "allocation",
    "pageable-copy",
    "sync-copy",
    "low-bandwidth",
    "missing-rank",
    "cut-short",
    "late-start",
    "dropped-events",
    "no-nvtx",
    "graphs",
)

FREE = {"within_host_gb_per_s": 1e9, "between_hosts_gb_per_s": 1e9, "latency_ns": 0}
"""Links under which communication takes no time."""

CLOSE = 0.9
"""Of two causes that cost so nearly the same, either may come first."""

COSTLY = {("serialized-communication", "tensor-data"): {"gradient_bytes": 1 << 30}}
"""Values of the scenario under which a fault costs time that it otherwise does not."""

PAIRS = (
    ("slow-rank", "data-stall"),
    ("slow-rank", "sync"),
    ("slow-host", "launch-bound"),
    ("imbalance", "pageable-copy"),
    ("host-pause", "idle-gap"),
    ("allocation", "data-stall"),
    ("sync-copy", "slow-rank"),
    ("cut-short", "slow-rank"),
)


def planted(kind: str, layout: str, ranks: int, draw: random.Random) -> str:
    """A fault as text, at ranks and with a strength from `draw`."""
    # in a pipeline only the first stage reads batches
    rank = draw.randrange(ranks // 4 if layout == "pipeline" and kind == "low-bandwidth" else ranks)
    extra = {
        "slow-rank": f":ranks={rank}:factor={draw.uniform(1.15, 1.4):.2f}",
        "slow-host": f":hosts={draw.randrange(2)}:factor={draw.uniform(1.15, 1.4):.2f}",
        "imbalance": f":ranks={rank}:extra={draw.uniform(0.3, 0.6):.2f}",
        "slow-communicator": f":factor={draw.uniform(3, 6):.2f}",
        "launch-bound": f":gap_ns={draw.randrange(30_000, 45_000)}",
        "sync": f":host_ns={draw.randrange(60_000, 120_000)}",
        "host-pause": f":pause_ns={draw.randrange(25_000_000, 60_000_000)}",
        "data-stall": f":stall_ns={draw.randrange(8_000_000, 20_000_000)}",
        "idle-gap": f":gap_ns={draw.randrange(3_000_000, 8_000_000)}",
        "low-bandwidth": f":ranks={rank}:factor={draw.uniform(8, 15):.1f}",
    }
    if kind in ("missing-rank", "cut-short", "late-start", "dropped-events"):
        return f"{kind}:ranks={rank}"
    return kind + extra.get(kind, "")


def diagnosed(
    layout: str, faults: list[str], seed: int, values: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The findings of a run and the faults that were planted in it."""
    folder = Path(tempfile.mkdtemp(prefix="alltrace-accuracy-"))
    try:
        scenario = SCENARIOS[layout].override(**{**values, "seed": seed}, faults=tuple(faults))
        truth = write_run(scenario, folder / "reports")
        import_reports([str(folder / "reports")], folder / "run", jobs=1)
        return OpenRun(folder / "run").recipe("diagnose").to_pylist(), truth.faults
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own_communication_ns(layout: str, seed: int, values: dict[str, Any]) -> int:
    """What the run loses to its communication without any fault: how much sooner it ends with free communication."""
    ends = [
        int(simulate(SCENARIOS[layout].override(**{**values, **links, "seed": seed})).steps[:, -1, 1].max())
        for links in ({}, FREE)
    ]
    return ends[0] - ends[1]


def right_first(found: list[dict[str, Any]], fault: dict[str, Any], own_ns: int) -> bool:
    """Whether the first finding is about what costs most, and the fault is named even where it is not the first.

    Args:
        found: The findings.
        fault: The fault, with its loss.
        own_ns: What the run loses to its own communication.
    """
    about = [f for f in found if f["opportunity_share"] is None]
    if not any(right(f, fault) for f in about):
        return False
    losses = [f for f in about if f["kind"] != "capture-fault"]  # which is listed with the causes that cost time
    if not losses:
        return bool(fault["finding"] == "capture-fault")
    kinds = {fault["finding"]} if fault["lost_ns"] >= CLOSE * own_ns else set()
    kinds |= {"exposed-communication"} if own_ns >= CLOSE * fault["lost_ns"] else set()
    return losses[0]["kind"] in kinds and (losses[0]["kind"] != fault["finding"] or right(losses[0], fault))


def right(finding: dict[str, Any], fault: dict[str, Any]) -> bool:
    """Whether a finding names the fault's kind and culprits."""
    if finding["kind"] != fault["finding"]:
        return False
    if finding["kind"] == "slow-host":
        return set(finding["hosts"]) == set(fault["hosts"])
    return set(finding["ranks"]) == set(fault["ranks"])


@dataclass(frozen=True)
class Case:
    """One run to simulate and diagnose.

    Attributes:
        purpose: `alone`, `pair` or `healthy`.
        kinds: The kinds of faults planted.
        layout: The layout.
        faults: The faults as text.
        seed: The seed.
    """

    purpose: str
    kinds: tuple[str, ...]
    layout: str
    faults: tuple[str, ...]
    seed: int

    @property
    def key(self) -> str:
        """What names it in the file of results."""
        return f"{self.purpose} {self.layout} {' + '.join(self.faults)} seed {self.seed}"


def cases(
    plan: Plan, kinds: tuple[str, ...], pairs: tuple[tuple[str, str], ...], layouts: tuple[str, ...]
) -> list[Case]:
    """Everything to be measured."""
    found = []
    for kind in kinds:
        for layout in layouts:
            for seed in plan.seeds:
                draw = random.Random(f"{kind} {layout} {seed}")
                found.append(Case("alone", (kind,), layout, (planted(kind, layout, plan.values["ranks"], draw),), seed))
    for pair in pairs:
        for layout in layouts:
            # the first seed is part of it, so that faults for development differ from those of the table
            draw = random.Random(f"{pair} {layout} {plan.seeds[0]}")
            seed = plan.seeds[draw.randrange(len(plan.seeds))]
            faults = tuple(planted(kind, layout, plan.values["ranks"], draw) for kind in pair)
            found.append(Case("pair", pair, layout, faults, seed))
    every = (*layouts, "healthy")
    found += [Case("healthy", (), every[n % len(every)], (), seed) for n, seed in enumerate(plan.healthy)]
    return found


def judged(case: Case, values: dict[str, Any]) -> dict[str, Any]:
    """What came out of one case."""
    steps = values["steps"]
    costly = COSTLY.get((case.kinds[0], case.layout), {}) if case.purpose == "alone" else {}
    found, truth = diagnosed(case.layout, list(case.faults), case.seed, {**values, **costly})
    result: dict[str, Any] = {"high": any(f["severity"] == "high" for f in found), "short": _short(found)}
    if case.purpose == "alone":
        result["good"] = right_first(
            found, truth[0], own_communication_ns(case.layout, case.seed, {**values, **costly})
        )
        result["true"] = truth[0]["ranks"]
        named = next((f for f in found if right(f, truth[0])), None)
        if named is not None and truth[0]["lost_ns"] > 0 and named["lost_ns_per_step"] is not None:
            result["ratio"] = named["lost_ns_per_step"] * steps / truth[0]["lost_ns"]
            result["basis"] = named["evidence"]["basis"]
    elif case.purpose == "pair":
        result["good"] = all(any(right(f, fault) for f in found[:3]) for fault in truth)
    return result


def _judged(task: tuple[Case, dict[str, Any]], _advance: Any) -> dict[str, Any]:
    return judged(*task)


def measure(todo: list[Case], values: dict[str, Any], results: Path | None) -> dict[str, dict[str, Any]]:
    """The result of every case by its key; those in the file `results` are not computed again."""
    known: dict[str, dict[str, Any]] = {}
    if results is not None and results.is_file():
        for line in results.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["values"] == values:
                known[entry["key"]] = entry["result"]
    left = [case for case in todo if case.key not in known]
    _say(f"{len(left)} of {len(todo)} runs to make")
    for number, outcome in enumerate(run_tasks(_judged, [(case, values) for case in left], jobs=_JOBS), 1):
        case, result = left[outcome.index], outcome.get()
        known[case.key] = result
        if results is not None:
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": case.key, "values": values, "result": result}) + "\n")
        if not result.get("good", not result["high"]):
            _say(f"{case.key}: {result['short']}; true: {result.get('true')}")
        if number % 25 == 0:
            _say(f"{number} of {len(left)}")
    return known


def tabulated(todo: list[Case], known: dict[str, dict[str, Any]], layouts: tuple[str, ...]) -> list[str]:
    """The lines of the table."""
    alone: dict[tuple[str, str], list[bool]] = defaultdict(list)
    losses: dict[str, list[float]] = defaultdict(list)
    bases: dict[str, list[str]] = defaultdict(list)
    wrong, both, falsely, healthy = [], [], 0, 0
    for case in todo:
        result = known[case.key]
        if case.purpose == "healthy":
            healthy, falsely = healthy + 1, falsely + result["high"]
            continue
        if not result["good"]:
            label = f"{case.layout} {' + '.join(case.faults)} seed {case.seed}"
            wrong.append(f"{label}: {result['short']}" + (f"; true: {result['true']}" if "true" in result else ""))
        if case.purpose == "pair":
            both.append(result["good"])
            continue
        alone[case.kinds[0], case.layout].append(result["good"])
        if "ratio" in result:
            losses[case.kinds[0]].append(result["ratio"])
            bases[case.kinds[0]].append(result["basis"])
    kinds = tuple(dict.fromkeys(kind for kind, _ in alone))
    return _table(alone, losses, bases, both, falsely, healthy, kinds, layouts, wrong)


def _table(
    alone: dict[tuple[str, str], list[bool]],
    losses: dict[str, list[float]],
    bases: dict[str, list[str]],
    both: list[bool],
    falsely: int,
    healthy: int,
    kinds: tuple[str, ...],
    layouts: tuple[str, ...],
    wrong: list[str],
) -> list[str]:
    head = " | loss found / true: median | least to most | by replay |"
    lines = ["| fault | " + " | ".join(layouts) + head, "|---|" + "---|" * (len(layouts) + 3)]
    for kind in kinds:
        cells = [f"{sum(alone[kind, lay])} of {len(alone[kind, lay])}" for lay in layouts]
        known = sorted(losses[kind])
        middle, span, replays = "", "", ""
        if known:
            middle, span = f"{known[len(known) // 2]:.2f}", f"{known[0]:.2f} to {known[-1]:.2f}"
            replays = f"{sum(b == 'replay' for b in bases[kind])} of {len(known)}"
        lines.append(f"| `{kind}` | {' | '.join(cells)} | {middle} | {span} | {replays} |")
    every = [good for found in alone.values() for good in found]
    lines += [
        "",
        "| all | right |",
        "|---|---|",
        (
            f"| the costliest is first, the fault and its culprits are named | {sum(every)} of {len(every)}"
            f" ({_percent(every)} %) |"
        ),
        f"| both of a pair in the first three | {sum(both)} of {len(both)} ({_percent(both)} %) |",
        f"| healthy runs with a `high` finding | {falsely} of {healthy} |",
    ]
    if wrong:
        lines += ["", "What was wrong:", "", *(f"- {w}" for w in wrong)]
    return lines


def _percent(found: list[bool]) -> str:
    return f"{100 * sum(found) / max(len(found), 1):.1f}"


def _short(found: list[dict[str, Any]]) -> str:
    return "found " + (", ".join(f"{f['kind']} {f['ranks']} {_loss(f)}" for f in found[:3]) or "nothing")


def _loss(finding: dict[str, Any]) -> str:
    return "unknown loss" if finding["lost_ns"] is None else f"{finding['lost_ns'] / 1e6:.1f} ms"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measures and prints the table, or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--developing", action="store_true", help="the seeds and sizes used for developing")
    parser.add_argument("--write", type=Path, help="write the table into this page")
    parser.add_argument("--seeds", type=int, help="the first N seeds only")
    parser.add_argument("--kinds", help="these kinds only, separated by commas")
    parser.add_argument("--layouts", help="these layouts only")
    parser.add_argument("--no-pairs", action="store_true")
    parser.add_argument("--results", type=Path, help="keep the result of each run there, and go on where it stopped")
    given = parser.parse_args()
    plan = DEVELOPING if given.developing else TABLE
    if given.seeds:
        plan = Plan(plan.seeds[: given.seeds], plan.healthy[: 4 * given.seeds], plan.values)
    kinds = tuple(given.kinds.split(",")) if given.kinds else KINDS
    layouts = tuple(given.layouts.split(",")) if given.layouts else LAYOUTS
    began = time.perf_counter()
    todo = cases(plan, kinds, () if given.no_pairs else PAIRS, layouts)
    if given.results is not None:
        given.results.parent.mkdir(parents=True, exist_ok=True)
    lines = tabulated(todo, measure(todo, plan.values, given.results), layouts)
    if given.write:
        write_table(given.write, "simulated faults", lines)
    else:
        print("\n".join(lines))
    _say(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
