"""What HTA (PyPI HolisticTraceAnalysis) answers, as JSON, in a Python that has it.

`python hta_answers.py TRACE` for one trace, `python hta_answers.py diff TRACE_A TRACE_B` for its comparison of two, and
`python hta_answers.py stragglers TRACE...` for the rank that it names; the first trace is of rank 0.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def answers(trace: str) -> dict[str, Any]:
    """HTA's numbers for the whole trace, its last step included; an answer that HTA fails at is its error as text."""
    TraceAnalysis = import_module("hta.trace_analysis").TraceAnalysis  # noqa: N806  as HTA calls it

    with tempfile.TemporaryDirectory() as folder:
        analysis = TraceAnalysis(trace_files={0: trace}, trace_dir=folder, include_last_profiler_step=True)
        found: dict[str, Any] = {}
        for name, ask in QUESTIONS.items():
            try:
                found[name] = ask(analysis, folder)
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"[:200]
        return found


def _temporal(analysis: Any, _folder: str) -> dict[str, float]:
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    return {c: float(row[f"{c}_time(us)"]) for c in ("idle", "compute", "non_compute", "kernel")}


def _overlap(analysis: Any, _folder: str) -> float:
    return float(analysis.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"])


def _kinds(analysis: Any, _folder: str) -> dict[str, float]:
    kinds, _ = analysis.get_gpu_kernel_breakdown(visualize=False)
    return {row["kernel_type"]: float(row["sum"]) for _, row in kinds.iterrows()}


def _idle(analysis: Any, _folder: str) -> dict[str, float]:
    found, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    return {f"{int(row['stream'])} {row['idle_category']}": float(row["idle_time"]) for _, row in found.iterrows()}


def _launches(analysis: Any, _folder: str) -> dict[str, float]:
    found = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    call, gpu, delay = (found[c] for c in ("cpu_duration", "gpu_duration", "launch_delay"))
    return {
        "launches": len(found),
        "call_mean": float(call.mean()),
        "gpu_mean": float(gpu.mean()),
        "delay_mean": float(delay.mean()),
        "short": int((gpu < call).sum()),
        "slow": int((call > 50).sum()),
        "late": int((delay > 100).sum()),
    }


def _queue(analysis: Any, _folder: str) -> dict[str, list[float]]:
    series = analysis.get_queue_length_time_series(ranks=[0])[0]
    found = {}
    for stream, rows in series.groupby("stream"):
        rows = rows.sort_values("ts")
        span = rows["ts"].iloc[-1] - rows["ts"].iloc[0]
        weighted = (rows["queue_length"].iloc[:-1].to_numpy() * rows["ts"].diff().iloc[1:].to_numpy()).sum()
        found[str(int(stream))] = [
            float(rows["queue_length"].mean()),
            float(weighted / span),
            float(rows["queue_length"].max()),
        ]
    return found


def _bandwidth(analysis: Any, _folder: str) -> dict[str, list[float]]:
    found = analysis.get_memory_bw_summary(ranks=[0])
    return {
        name: [float(row["memory_bw_gbps"]["mean"]), float(row["memory_bw_gbps"]["max"])]
        for (_, name), row in found.iterrows()
    }


def _sequences(analysis: Any, folder: str) -> list[dict[str, Any]]:
    found = analysis.get_frequent_cuda_kernel_sequences(operator_name="aten::", output_dir=folder, rank=0, top_k=5)
    return [{c: v.item() if hasattr(v, "item") else v for c, v in row.items()} for _, row in found.iterrows()]


QUESTIONS: dict[str, Callable[[Any, str], Any]] = {
    "temporal": _temporal,
    "overlap": _overlap,
    "kinds": _kinds,
    "idle": _idle,
    "launches": _launches,
    "queue": _queue,
    "bandwidth": _bandwidth,
    "sequences": _sequences,
}


def diff(before: str, after: str) -> dict[str, list[float]]:
    """Of each name, how often and how long (us) in either trace, in all of its steps: `TraceDiff.compare_traces`."""
    trace_diff = import_module("hta.trace_diff")
    Trace = import_module("hta.common.trace").Trace  # noqa: N806  as HTA calls it
    sides = [
        trace_diff.LabeledTrace(label=label, t=Trace(trace_files={0: path}))
        for label, path in (("control", before), ("test", after))
    ]
    found = trace_diff.TraceDiff.compare_traces(
        *sides, control_iteration=sides[0].iterations(), test_iteration=sides[1].iterations()
    )
    kept = ("control_counts", "test_counts", "control_total_duration", "test_total_duration")
    return {name: [float(row[c]) for c in kept] for name, row in found.iterrows()}


def stragglers(*traces: str) -> list[int]:
    """The two ranks that HTA calls stragglers."""
    TraceAnalysis = import_module("hta.trace_analysis").TraceAnalysis  # noqa: N806  as HTA calls it

    with tempfile.TemporaryDirectory() as folder:
        analysis = TraceAnalysis(trace_files=dict(enumerate(traces)), trace_dir=folder, include_last_profiler_step=True)
        return [int(r) for r in analysis.get_potential_stragglers(num_candidates=1)]


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    questions: dict[str, Callable[..., Any]] = {"diff": diff, "stragglers": stragglers}
    asked = questions.get(sys.argv[1])
    print(json.dumps(asked(*sys.argv[2:]) if asked else answers(sys.argv[1])))
