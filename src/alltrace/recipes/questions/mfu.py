"""How much of the GPUs' peak the model's own arithmetic took in each step: model FLOPs utilisation (MFU).

The work of a step is that of its tokens, by the model's description; the time is that from the step's start to the next
one's on the host, or to its end where none follows, as the exact median over ranks. Activations that are computed again
are not the model's work; with `--recompute` they are in `hfu_percent`, the utilization of the hardware. The peak is
that of dense arithmetic in the precision used.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.recipes.base import Answer, Chart, Option, Options, Part, Question, RunFacts
from alltrace.run.overlay import STEPS
from alltrace.run.rank import Rank
from alltrace.trace import columns as col
from alltrace.trace.errors import UsageError

_PASSES = {"training": 3, "forward": 1}
_TERA = 1e12


@dataclass(frozen=True)
class Model:
    """A dense decoder, and what is done with it."""

    parameters: float  # its parameters besides embeddings
    layers: int  # its layers
    hidden: int  # its width
    sequence: int  # tokens of a sequence
    causal: bool = False  # whether attention to later tokens is not counted, which halves its part
    # forward passes that the work is worth: 3 for training, 1 for the forward pass, 4 with all computed again
    passes: int = 3

    @property
    def operations_per_token(self) -> float:
        """Floating-point operations of a token."""
        attention = 4.0 * self.layers * self.hidden * self.sequence / (2 if self.causal else 1)
        return self.passes * (2 * self.parameters + attention)


# Source of the formulas: A. Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022), appendix B. For a
# dense decoder with N parameters besides embeddings, L layers, width h (heads times their size) and sequences of s
# tokens, training takes 6 N + 12 L h s operations a token, of which attention is the second part; the forward pass
# alone takes 2 N + 4 L h s. With all activations computed again, as by checkpointing of whole layers, the hardware does
# 8 N + 16 L h s; that is not counted in MFU.
COLUMNS: col.Columns = (
    col.whole("step", "number of the step"),
    col.text("kind", "step, warm-up or checkpoint"),
    col.rank("ranks", "ranks that have the step"),
    col.ns("step_ns", "its time"),
    col.real("tokens", "tokens of the step", decimals=0),
    col.real("tokens_per_s", "tokens per second on all GPUs", decimals=0),
    col.real("tflops_per_gpu", "10^12 operations of the model per second on each GPU", decimals=1),
    col.percent("mfu_percent", "tflops_per_gpu as a share of the peak", 2),
    col.percent("hfu_percent", "the same, including recomputed activations", 2),
)


def _prepared(options: Options, _run: RunFacts) -> Mapping[str, Any]:
    """The options. Raises `UsageError`: a number is not above 0, or what is computed again has no backward pass."""
    for name in ("parameters", "batch", "peak_tflops"):
        if not 0 < options[name] < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} of mfu is {options[name]}; expected a number above 0")
    if options["recompute"] and options["work"] != "training":
        raise UsageError("--recompute of mfu is about training, but --work is forward; leave one out")
    return options


def _map(rank: Rank, _options: Options) -> Any:
    """Nothing: the alignment has the steps of all ranks."""
    return pa.table({"rank": pa.array([rank.rank], pa.int32())})


def _merge(parts: Sequence[Part], run: RunFacts, options: Options) -> Answer:
    steps = run.alignment.steps if run.alignment is not None else STEPS.arrow_schema().empty_table()
    numbers = np.array([p.rank for p in parts], np.int64)
    steps = steps.filter(pa.array(np.isin(steps.column("rank").to_numpy(), numbers)))
    devices = len({d.identity for r in run.ranks for d in r.devices}) or len(run.ranks)
    gpus = options["gpus"] or max(devices, 1)
    passes = _PASSES[options["work"]]
    dimensions = (options["parameters"], options["layers"], options["hidden"], options["sequence"], options["causal"])
    model, hardware = (Model(*dimensions, passes=n) for n in (passes, passes + options["recompute"]))
    tokens = options["batch"] * options["sequence"]
    peak = gpus * options["peak_tflops"] * _TERA
    rows = []
    for row in _times(steps):
        per_s = tokens * 1e9 / row["step_ns"] if row["step_ns"] else None
        rates = {"tokens": tokens, "tokens_per_s": per_s}
        if per_s is not None:
            rates["tflops_per_gpu"] = model.operations_per_token * per_s / gpus / _TERA
            rates["mfu_percent"] = 100 * model.operations_per_token * per_s / peak
            rates["hfu_percent"] = 100 * hardware.operations_per_token * per_s / peak
        rows.append({**row, **rates})
    notes = []
    if rows:
        notes.append(
            f"{model.operations_per_token:.6g} operations a token, {gpus} GPUs of {options['peak_tflops']:g} TFLOP/s"
            + ("; attention to later tokens is not counted" if options["causal"] else "")
        )
        over = sum((r.get("mfu_percent") or 0) > 100 for r in rows)
        if over:
            notes.append(
                f"{over} of {len(rows)} steps are above the peak: see whether the model, batch, GPUs and peak are right"
            )
    elif parts:
        notes.append("no steps were found in the run")
    return Answer.of(rows, COLUMNS, tuple(notes))


def _times(steps: Any) -> list[dict[str, Any]]:
    """The time of each step, the exact median over ranks: from its start to the next step's, or to the end."""
    starts = {(r["rank"], r["step"]): r["start"] for r in steps.to_pylist()}
    by_step: dict[int, tuple[list[int], set[str]]] = {}
    for row in steps.to_pylist():
        after = starts.get((row["rank"], row["step"] + 1), row["end"])
        times, kinds = by_step.setdefault(row["step"], ([], set()))
        times.append(max(after - row["start"], 0))
        kinds.add(row["kind"])
    # a step is a checkpoint or a warm-up where it is one on any rank
    kind = ("checkpoint", "warm-up", "step")
    return [
        {
            "step": step,
            "kind": next(k for k in (*kind, *sorted(kinds)) if k in kinds),
            "ranks": len(times),
            "step_ns": int(np.median(times)),
        }
        for step, (times, kinds) in sorted(by_step.items())
    ]


QUESTION = Question(
    "mfu",
    __doc__,
    COLUMNS,
    _map,
    _merge,
    tables={"ranges": ("start", "end", "name"), "kernels": ("start", "end", "name")},
    options=(
        Option("parameters", float, None, "the model's parameters without embeddings, such as 7e9", required=True),
        Option("layers", int, None, "its layers", required=True, least=1),
        Option("hidden", int, None, "its width: heads times the size of a head", required=True, least=1),
        Option("sequence", int, None, "tokens of a sequence", required=True, least=1),
        Option("batch", float, None, "sequences of a step, on all GPUs together", required=True),
        Option(
            "peak_tflops",
            float,
            None,
            "peak of one GPU in the precision used, dense, in 10^12 operations/s",
            required=True,
        ),
        Option("gpus", int, None, "GPUs of the job; by default the GPUs of the run", least=1),
        Option("work", str, "training", "what a step does", tuple(_PASSES)),
        Option("causal", bool, False, "do not count attention to later tokens: half of it"),
        Option("recompute", bool, False, "all activations are computed again in the backward pass"),
    ),
    chart=Chart("lines", "step", ("mfu_percent", "hfu_percent")),
    clock="aligned",
    prepare=_prepared,
    important=("step", "mfu_percent", "tflops_per_gpu", "step_ns"),
)
