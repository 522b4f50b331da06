"""The questions that are asked about the recorded runs, and their answers as plain values."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from alltrace.api import OpenRun
from alltrace.cli.output import to_json
from alltrace.recipes.base import Option
from alltrace.recipes.base import Question as AnyQuestion
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import FORMER, REPORTS, find, names
from alltrace.trace.errors import AlltraceError
from tests.recorded.making import HERE, RUNS

DIGITS = 12
DERIVED = shutil.ignore_patterns("align", "operations", "findings", "devices", "tiles", ".*")
"""What questions keep in a run: a copy is made without it, because the code that made it may be another one."""
BUILT_IN = [*(n for n in names() if not n.startswith("example")), *(f"stats:{n}" for n in REPORTS)]
MARK = "@recorded/"
"""How a value begins that names a file below this folder."""

MODEL = {"parameters": 1e8, "layers": 3, "hidden": 1024, "sequence": 2048, "batch": 8.0, "peak_tflops": 989.0}
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize1x1x1_execute_kernel__5x_cublas"
REQUIRED: dict[str, dict[str, Any]] = {
    "cuda_gpu_kern_pace": {"name": GEMM},
    "nvtx_pace": {"name": "forward"},
    "nvtx_gpu_proj_pace": {"name": "forward"},
    "mfu": MODEL,
}
"""The options that a recipe cannot do without."""

BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("per", "range"): {"range": "forward"},
    ("range", "forward"): {"per": "range"},
    ("scaling", "weak"): {"reference": MARK + "runs/ddp/run"},
}
"""The options that another one needs beside it."""

VALUES: dict[str, Any] = {
    "alpha": 0.2, "base": True, "bins": 7, "call_cutoff_ns": 3_000, "chunks": 10, "communicator": "0",
    "delay_cutoff_ns": 5_000, "divisor": 10, "filter_nvtx": "forward", "filter_projected_nvtx": "forward", "full": 2,
    "gap": 20_000, "gpus": 3, "ignore": "lib", "kernel": "gemm", "kernel_delay_ns": 5_000, "kind": "compute",
    "link_gb_per_s": 50.0, "longest_n": 3, "match_ranges": "gemm", "max_error": 1e9, "min_length": 2, "min_ns": 20_000,
    "name": "vectorized_elementwise_kernel", "nccl_tests": MARK + "nccl_tests.txt", "nvtx": "forward",
    "op": "AllReduce", "operator": "layer", "range": "forward", "rank": "1",
    "reference": MARK + "runs/ddp/run", "rows": 4, "scale": 0.5, "threshold": 30, "ticks_threshold": 100, "top": 3,
    "what": "kernel,step",
}  # fmt: skip
"""A value of each option that has no choices, by name."""

ALONE: dict[str, dict[str, dict[str, Any]]] = {
    "whatif": {"scale": {"rank": "1"}, "max_error": {"rank": "1"}, "per_step": {"rank": "1"}},
    "launches": {"bins": {"by": "stream"}, "full": {"by": "stream"}},
}
"""Options of a recipe that say something only beside another one."""


class Question(NamedTuple):
    """A recipe with options, and what of the run it is about; `options` as JSON, so that a question can be a key."""

    recipe: str
    options: str = "{}"
    steps: str | None = None
    ranks: str | None = None

    def __str__(self) -> str:
        """As a person would write it."""
        words = [f"{k}={v}" for k, v in json.loads(self.options).items()]
        words += [f"{k}={v}" for k, v in (("steps", self.steps), ("ranks", self.ranks)) if v is not None]
        return " ".join((self.recipe, *words))

    def drawn(self, run: str) -> int:
        """A number from 0 to 4 that depends on nothing else."""
        return zlib.crc32(f"{run} {self}".encode()) % 5


def question(recipe: str, options: Mapping[str, Any], **about: str) -> Question:
    """The question, its options beside those that the recipe cannot do without."""
    return Question(recipe, json.dumps({**REQUIRED.get(recipe, {}), **options}, sort_keys=True), **about)


def default_questions() -> list[Question]:
    """Each recipe with its defaults."""
    return [question(recipe, {}) for recipe in BUILT_IN]


def option_questions(run: OpenRun, recipes: Iterable[str] = BUILT_IN) -> Iterator[Question]:
    """Each option of each recipe once, each choice of those that have them; and steps and ranks; times are those of
    `run`."""
    for name in recipes:
        recipe = find(name)
        for option in recipe.options:
            for value in _values(recipe, option, run):
                beside = BESIDE.get((option.name, value), {}) | ALONE.get(name, {}).get(option.name, {})
                yield question(name, {option.name: value, **beside})
        if recipe.windowed:
            yield question(name, {}, steps="1:3")
        yield question(name, {}, ranks="1")


def _values(recipe: AnyQuestion, option: Option, run: OpenRun) -> list[Any]:
    if option.name in REQUIRED.get(recipe.name, {}):
        return []
    if option.choices:
        return [c for c in option.choices if c != option.default]
    if option.type is bool:
        return [True]
    run.aligned(jobs=1)
    first, last = run.in_session_time().span_ns
    span = last - first
    times = {
        "start": first + span // 3,
        "end": first + span // 2,
        "filter_time": f"{first + span // 3}/{first + 2 * span // 3}",
    }
    values = VALUES | times
    assert option.name in values, (
        f"option {option.name} of {recipe.name}: add a value to VALUES in tests/recorded/asking.py"
    )
    return [values[option.name]]


def shape(asked: Question) -> tuple[str, tuple[tuple[str, Any], ...], bool, bool]:
    """What makes two questions the same for a list of all options: values of times depend on the run, the rest is
    compared."""
    name, former = FORMER.get(asked.recipe, (asked.recipe, {}))
    options = {**json.loads(asked.options), **former}
    known = tuple((k, None if k in ("start", "end", "filter_time") else v) for k, v in sorted(options.items()))
    return name, known, asked.steps is not None, asked.ranks is not None


def opened(name: str, folder: Path) -> OpenRun:
    """A copy of a recorded run below `folder`, because what is derived is kept beside a run."""
    shutil.copytree(RUNS / name / "run", folder / name, ignore=DERIVED)
    return OpenRun(folder / name)


def answer(run: OpenRun, asked: Question) -> dict[str, Any]:
    """The answer as plain values, or the words of the refusal."""
    options = {
        k: str(_marked(v.removeprefix(MARK), run.path.parent)) if isinstance(v, str) and v.startswith(MARK) else v
        for k, v in json.loads(asked.options).items()
    }
    ranks = None if asked.ranks is None else [int(r) for r in asked.ranks.split(",")]
    try:
        found = ask(run, asked.recipe, options, steps=asked.steps, ranks=ranks)
        envelope = json.loads(to_json(asked.recipe, found, found.table, run.facts()))
    except AlltraceError as error:
        return {"refused": clean(str(error), run.path)}
    del envelope["alltrace"], envelope["verb"], envelope["run"]
    return {key: _plain(value, run.path) for key, value in envelope.items()}


def _marked(name: str, folder: Path) -> Path:
    """A file below this folder; a copy of a run, because what is derived is kept beside it."""
    place = folder / "marked" / name
    if (HERE / name).is_dir() and not place.exists():
        shutil.copytree(HERE / name, place)
    return place if place.exists() else HERE / name


def _plain(value: Any, path: Path) -> Any:
    """Numbers of 12 significant digits, text without the place of the run; rows as lists."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        return clean(value, path)
    if isinstance(value, list):
        return [_plain(v, path) for v in value]
    return {k: _plain(v, path) for k, v in value.items()} if isinstance(value, dict) else value


def clean(text: str, path: Path) -> str:
    """Text without the places of the run and of this folder."""
    return (
        text.replace(str(path), "RUN").replace(str(path.parent / "marked"), "@recorded").replace(str(HERE), "@recorded")
    )
