"""A step's line in the form of each framework.

Megatron-LM and its relatives (GPT-NeoX), nanotron, NeMo 1 and 2, TorchTitan, DeepSpeed, Lightning, Hugging Face,
Composer, verl, nanoGPT, and plain FSDP scripts; and lines of a user's own pattern.

Sources: megatron/training/training.py, nemo/lightning/pytorch/callbacks/progress_printer.py,
torchtitan/components/metrics.py, deepspeed/runtime/engine.py and utils/timer.py, lightning's TQDMProgressBar,
transformers/trainer_callback.py, gpt-neox' megatron/logging.py, composer/loggers/console_logger.py,
verl/utils/logger/aggregate_logger.py, nanoGPT's train.py.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite

from alltrace.trace.errors import UsageError
from alltrace.trace.user_pattern import UserPattern

_LONGEST = 20_000
_NUMBER = r"[-+]?(?:[0-9][0-9,]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_NOT_FINITE = r"[-+]?(?i:nan|inf(?:inity)?)\b"
_REAL = rf"(?:{_NUMBER}|{_NOT_FINITE})"
_IS_NOT_FINITE = re.compile(rf"\s*{_NOT_FINITE}")
_VALUE = re.compile(rf"\s*({_NUMBER})\s*([KMGT]i?B?\b|%)?")
_FLOPS = re.compile(rf"\s*({_NUMBER})\s*([KMGTP]?)FLOPS", re.IGNORECASE)
_ITERATION = re.compile(
    r"(?:\bTraining epoch (?P<epoch>[0-9]+),"
    r" )?\biteration:?\s+(?P<step>[0-9]{1,15})\s*/\s*(?P<total>[0-9]{1,15}|infinity)\s*\|"
)
_TITAN = re.compile(rf"\bstep:\s*(?P<step>[0-9]{{1,15}})\s+loss:\s*(?P<loss>{_REAL})(?P<words>.*)")
_NANO_GPT = re.compile(
    rf"\biter (?P<step>[0-9]{{1,15}}): loss (?P<loss>{_REAL}), time (?P<ms>{_NUMBER})ms(?:, mfu (?P<mfu>{_NUMBER})%)?"
)
_COMPOSER = re.compile(
    r"(?:\[epoch=(?P<epoch>[0-9]{1,9})(?:/[0-9]{1,9})?\])?\[batch=(?P<batch>[0-9]{1,15})"
    r"(?:/(?P<total>[0-9]{1,15}))?\]:\s*$"
)
_COMPOSER_VALUE = re.compile(rf"^\s+Train (?P<key>\S+/\S+): (?P<value>{_REAL})\s*$")
_VERL = re.compile(r"\bstep:(?P<step>[0-9]{1,15}) - (?P<pairs>\S+:.*)")
_NUMPY = re.compile(r"np\.\w+\((.*)\)")
_DEEPSPEED_TIMER = re.compile(r"\bglobal_step=(?P<step>[0-9]{1,15}), RunningAvgSamplesPerSec=(?P<pairs>.*)")
_DEEPSPEED_STEPS = re.compile(
    rf"\bsteps: (?P<step>[0-9]{{1,15}}) loss: (?P<loss>{_REAL}) iter time \(s\): (?P<step_time_s>{_NUMBER})(?:"
    rf" samples/sec: (?P<samples_per_s>{_NUMBER}))?"
)
_DEEPSPEED_STEP = re.compile(
    r"\bstep=(?P<step>[0-9]{1,15}), skipped=(?P<skipped>[0-9]{1,15}), lr=\[(?P<learning_rate>[^\],]*)"
)
_FSDP = re.compile(
    rf"\bBatch (?P<step>[0-9]{{1,15}}) Loss: (?P<loss>{_REAL}), Speed: (?P<samples_per_s>{_NUMBER}) samples/sec(?:,"
    rf" lr: (?P<learning_rate>{_NUMBER}))?"
)
_BAR = re.compile(
    rf"(?P<percent>[0-9]{{1,3}})%\|[^|]*\|"
    rf"\s*(?P<step>[0-9]{{1,15}})/(?P<total>[0-9]{{1,15}})\s*\[(?P<elapsed>[0-9:]+)<[^,\]]*(?:,"
    rf"\s*(?P<rate>{_NUMBER})\s?(?P<unit>it/s|s/it))?(?P<rest>[^\n]*"
    rf")"
)
_BAR_PAIR = re.compile(rf"([A-Za-z_][A-Za-z0-9_./ ]{{0,60}}?)=({_REAL})")
_HUGGING_FACE = re.compile(r"\{'(?:loss|train_loss|train_runtime|eval_loss)':[^{}]*\}")
_QUOTED_PAIR = re.compile(rf"'(\w+)': '?({_REAL})")
_NEMO_LIST = re.compile(r"train_step_timing in s: \[([0-9., eE+-]*)\]")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX_RANK = re.compile(
    r"^\s*(?:\[(?:rank|default)?(\d{1,9})\]:?|(\d{1,9}): |\[\d+,(\d{1,9})\]<std(?:out|err)>:?|\S+"
    r" \[default(\d{1,9})\]:)"
)
_STAMP = re.compile(r"(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?)(Z|[+-]\d{2}:?\d{2})?")
_FRACTION = re.compile(r"[.,](\d+)$")
_MOST_STEPS, _LARGEST = 1 << 53, 1e100
_SCALE = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


@dataclass
class Step:
    """A step's line: framework, step, values by metric (`_KEYS`), metrics that are nan or inf, its prefix's rank."""

    framework: str
    step: int | None
    values: dict[str, float] = field(default_factory=dict)
    not_finite: set[str] = field(default_factory=set)
    total: int | None = None
    rank: int | None = None
    stamp: str | None = None
    zone: str = ""
    smoothed: bool = False


_KEYS: tuple[tuple[str, re.Pattern[str], float], ...] = tuple(
    (metric, re.compile(pattern), scale)
    for metric, pattern, scale in (
        ("step_time_s", r"elapsed time per iteration \(ms\)", 1e-3),
        ("step_time_s", r"elapsed time per iteration \(s\)", 1.0),
        ("step_time_s", r"elapsed_time_per_iteration_ms", 1e-3),
        ("step_time_s", r"train_step_timing in s|iter time \(s\)|iteration time", 1.0),
        (
            "tflops_per_gpu",
            (
                r"approx flops per GPU|throughput per GPU"
                r" \(TFLOP/s/GPU\)|TFLOPS_per_GPU|TFLOPs|model_tflops_per_gpu|tflops"
            ),
            1.0,
        ),
        (
            "tokens_per_s_per_gpu",
            r"tokens per GPU \(tokens/s/GPU\)|tokens_per_sec_per_gpu|tokens-per-second-per-gpu|tps",
            1.0,
        ),
        ("tokens_per_s", r"tokens_per_sec|tokens per second|tokens/sec", 1.0),
        ("samples_per_s", r"samples/sec|samples per second|samples_per_sec|CurrSamplesPerSec", 1.0),
        (
            "memory_bytes",
            r"peak_memory_usage|memory|hip mem usage/free/total/usage_ratio|MaxMemAllocated|mem usages",
            1.0,
        ),
        ("loss_scale", r"loss scale|loss_scale", 1.0),
        ("loss", r"lm loss|lm_loss|reduced_train_loss|train_loss|loss", 1.0),
        ("grad_norm", r"grad norm|grad_norm", 1.0),
        ("learning_rate", r"learning rate|learning_rate|lr", 1.0),
        ("global_batch", r"global batch size|global_batch_size", 1.0),
        ("mfu_percent", r"mfu", 1.0),
        ("skipped", r"number of skipped iterations", 1.0),
    )
)


def parse(text: str, own: Sequence[Callable[[str], Step | None]] = ()) -> Step | None:
    """The step that a line describes, or None; with a user's `own` patterns (`own_pattern`) no others are searched."""
    if len(text) > _LONGEST:
        text = text[:_LONGEST]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    for words, read in [((), read) for read in own] or _FORMATS:
        if not words or any(word in text for word in words):
            step = read(text)
            if step is not None and (step.step or 0) < _MOST_STEPS:
                # larger values are not from a training, and their squares are not finite
                step.values = {metric: v for metric, v in step.values.items() if abs(v) < _LARGEST}
                prefix = _PREFIX_RANK.match(text)
                step.rank = None if prefix is None else int(next(g for g in prefix.groups() if g is not None))
                stamp = _STAMP.search(text)
                if stamp is not None:
                    step.stamp, step.zone = stamp[1], stamp[2] or ""
                return step
    return None


def stamp_ns(step: Step) -> int | None:
    """When a step's line was written, ns since 1970 as if its local time were UTC; None if the line does not say."""
    if step.stamp is None:
        return None
    try:
        time = datetime.fromisoformat(_FRACTION.sub(lambda f: f".{f[1][:6]:0<6}", step.stamp)).replace(tzinfo=UTC)
    except ValueError:
        return None
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000


def parse_list(text: str) -> list[float] | None:
    """The step times of NeMo's summary at the end, `train_step_timing in s: [11.85, 6.98]`, or None."""
    match = _NEMO_LIST.search(text)
    if match is None:
        return None
    try:
        return [float(part) for part in match[1].split(",") if part.strip()]
    except ValueError:
        return None


def number(text: str) -> tuple[float, bool] | None:
    """The number that begins `text`, and whether its unit was bytes: `11.5K`, `6,123`, `40.12GiB`, `1234.5/1230.1`."""
    match = _VALUE.match(text)
    if match is None:
        return None
    value = float(match[1].replace(",", ""))
    unit = (match[2] or "").upper()
    if not unit or unit == "%":
        return value, False
    stem = unit.removesuffix("B")
    factor = _BINARY.get(stem) or _SCALE[stem[0]]
    return value * factor, unit.endswith("B")


def _pairs(step: Step, text: str, separator: str) -> Step:
    """Fill in `key: value` pairs that `separator` parts."""
    for part in text.split(separator):
        key, colon, value = part.partition(":" if ":" in part else "=")
        if colon:
            _put(step, key.strip(), value)
    return step


def _put(step: Step, key: str, text: str) -> None:
    for metric, pattern, scale in _KEYS:
        if metric not in step.values and pattern.fullmatch(key):
            flops = _FLOPS.match(text) if metric == "tflops_per_gpu" else None
            if flops is not None:
                step.values[metric] = float(flops[1].replace(",", "")) * _SCALE.get(flops[2].upper(), 1.0) / 1e12
                return
            value = _number_of(step, metric, text)
            if value is not None:
                step.values[metric] = value[0] * (
                    2**30 if metric == "memory_bytes" and not value[1] and value[0] < 1e5 else scale
                )
            return


def _number_of(step: Step, metric: str, text: str) -> tuple[float, bool] | None:
    """The value of a metric as `number` has it; one that is no finite number is noted in the step."""
    if _IS_NOT_FINITE.match(text) is not None:
        step.not_finite.add(metric)
    return number(text)


def _iteration(text: str) -> Step | None:
    match = _ITERATION.search(text)
    if match is None:
        return None
    nemo = "train_step_timing" in text or match["epoch"] is not None
    step = Step(
        "NeMo" if nemo else "nanotron" if "elapsed_time_per_iteration_ms" in text else "Megatron",
        int(match["step"]),
        total=None if match["total"] == "infinity" else int(match["total"]),
    )
    # `iteration time: 270.125 s samples/sec: 3.8` is one field of two
    return _pairs(step, re.sub(r" s (samples/sec:)", r" | \1", text[match.end() :]), "|")


def _line(framework: str, pattern: re.Pattern[str]) -> Callable[[str], Step | None]:
    """Reads a line with values in groups named like their metrics; `pairs` and `words` have further ones."""

    def read(text: str) -> Step | None:
        match = pattern.search(text)
        if match is None:
            return None
        step = Step(framework, int(match["step"]))
        groups = match.groupdict()
        pairs, words = groups.pop("pairs", None), groups.pop("words", None)
        del groups["step"]
        for metric, value in groups.items():
            if value and (read_value := _number_of(step, metric, value)) is not None:
                step.values[metric] = read_value[0]
        for part in re.finditer(rf"([A-Za-z_]+):\s*({_NUMBER}[A-Za-z%]*|{_NOT_FINITE})", words or ""):
            _put(step, part[1], part[2])
        return _pairs(step, pairs, ",") if pairs else step

    return read


def _bar(text: str) -> Step | None:
    match = None
    for match in _BAR.finditer(text):  # noqa: B007  a bar is redrawn after the old one; the last counts
        pass
    if match is None or "iteration" in text[: match.start()].lower():
        return None
    nemo = "train_step_timing" in match["rest"] or "global_step" in match["rest"]
    lightning = text[: match.start()].lstrip().startswith("Epoch")
    step = Step(
        "NeMo" if nemo else "Lightning" if lightning else "Hugging Face", int(match["step"]), total=int(match["total"])
    )
    for key, value in _BAR_PAIR.findall(match["rest"]):
        _put(step, key.strip(), value)
    if match["rate"] and "step_time_s" not in step.values:
        rate = float(match["rate"].replace(",", ""))
        if rate > 0:
            step.values["step_time_s"] = rate if match["unit"] == "s/it" else 1 / rate
            step.smoothed = True
    return step if step.values or step.not_finite else None


def _hugging_face(text: str) -> Step | None:
    match = _HUGGING_FACE.search(text)
    if match is None or "'eval_loss'" in match[0] or "'train_runtime'" in match[0]:
        return None
    step = Step("Hugging Face", None)
    for key, value in _QUOTED_PAIR.findall(match[0]):
        _put(step, key, value)
    return step


_COMPOSER_KEYS: tuple[tuple[str, str, float], ...] = (
    ("loss/train/total", "loss", 1.0),
    ("throughput/samples_per_sec", "samples_per_s", 1.0),
    ("throughput/tokens_per_sec", "tokens_per_s", 1.0),
    ("throughput/device/tokens_per_sec", "tokens_per_s_per_gpu", 1.0),
    ("throughput/device/flops_per_sec", "tflops_per_gpu", 1e-12),
    ("throughput/device/mfu", "mfu_percent", 100.0),
)
_VERL_KEYS: tuple[tuple[str, str, float], ...] = (
    ("perf/time_per_step", "step_time_s", 1.0), ("timing_s/step", "step_time_s", 1.0),
    ("perf/throughput", "tokens_per_s_per_gpu", 1.0), ("perf/mfu/actor", "mfu_percent", 100.0),
    ("mfu/actor", "mfu_percent", 100.0), ("perf/max_memory_allocated_gb", "memory_bytes", float(1 << 30)),
    ("actor/grad_norm", "grad_norm", 1.0), ("actor/lr", "learning_rate", 1.0), ("actor/pg_loss", "loss", 1.0),
    ("train/loss", "loss", 1.0),
)  # fmt: skip


def _nano_gpt(text: str) -> Step | None:
    match = _NANO_GPT.search(text)
    if match is None:
        return None
    step = Step("nanoGPT", int(match["step"]))
    for metric, group, scale in (("step_time_s", "ms", 1e-3), ("loss", "loss", 1.0), ("mfu_percent", "mfu", 1.0)):
        value = _number_of(step, metric, match[group] or "")
        if value is not None and not (metric == "mfu_percent" and value[0] < 0):  # as long as it is not known
            step.values[metric] = value[0] * scale
    return step


def _composer(text: str) -> Step | None:
    """The line that begins a batch, or one of the lines of values after it, which have no step."""
    begun = _COMPOSER.search(text)
    if begun is not None:
        total = None if begun["total"] is None else int(begun["total"])
        before = (max(int(begun["epoch"]), 1) - 1) * total if begun["epoch"] and total else 0
        return Step("Composer", before + int(begun["batch"]), total=total)
    match = _COMPOSER_VALUE.match(text)
    if match is None:
        return None
    step, key, value = Step("Composer", None), match["key"], float(match["value"].replace(",", ""))
    if not isfinite(value):
        step.not_finite = {metric for name, metric, _scale in _COMPOSER_KEYS if name == key}
        return step if step.not_finite else None
    if key == "throughput/batches_per_sec" and value > 0:
        step.values["step_time_s"] = 1 / value
    if key.startswith("lr-"):
        step.values["learning_rate"] = value
    step.values.update({metric: value * scale for name, metric, scale in _COMPOSER_KEYS if name == key})
    return step if step.values else None


def _verl(text: str) -> Step | None:
    match = _VERL.search(text)
    if match is None:
        return None
    step = Step("verl", int(match["step"]))
    pairs = dict(part.rpartition(":")[::2] for part in match["pairs"].split(" - "))
    for key, metric, scale in _VERL_KEYS:
        value = _number_of(step, metric, _NUMPY.sub(r"\1", pairs.get(key, "")))
        if value is not None:
            step.values.setdefault(metric, value[0] * scale)
    return step if step.values or step.not_finite else None  # a step that only validates has none


OWN_METRICS = ("step_time_ms", *dict.fromkeys(metric for metric, _, _ in _KEYS))
"""The names that groups of a user's pattern may have, in addition to `step`."""


def own_pattern(text: str) -> Callable[[str], Step | None]:
    """Reads lines by an expression with groups `step` and of `OWN_METRICS`. Raises `UsageError`: it is another one."""
    pattern = UserPattern("--pattern", text)
    groups = pattern.names
    odd = sorted(groups - {"step", *OWN_METRICS})
    if odd or "step" not in groups or len(groups) < 2:
        problem = (
            f"has a group {odd[0]!r}"
            if odd
            else "has no group 'step'"
            if "step" not in groups
            else "only has the group 'step'"
        )
        raise UsageError(
            f"--pattern {problem}; expected (?P<step>...) and groups called as metrics: {', '.join(OWN_METRICS)}"
        )

    def read(line: str) -> Step | None:
        match = pattern.groups([line])[0]
        number_ = None if match is None else number(match["step"] or "")
        if match is None or number_ is None or number_[0] != int(number_[0]) or number_[0] < 0:
            return None
        step = Step("own pattern", int(number_[0]))
        for metric in sorted(groups - {"step"}):
            name, scale = ("step_time_s", 1e-3) if metric == "step_time_ms" else (metric, 1.0)
            value = _number_of(step, name, match[metric] or "")
            if value is not None:
                step.values[name] = value[0] * scale
        return step if step.values or step.not_finite else None

    return read


_FORMATS = (
    (("iteration",), _iteration), (("step:",), _line("TorchTitan", _TITAN)), (("step:",), _verl),
    (("iter ",), _nano_gpt), (("batch=", "Train "), _composer),
    (("global_step=",), _line("DeepSpeed", _DEEPSPEED_TIMER)),
    (("iter time (s):",), _line("DeepSpeed", _DEEPSPEED_STEPS)), (("skipped=",), _line("DeepSpeed", _DEEPSPEED_STEP)),
    (("samples/sec",), _line("FSDP", _FSDP)), (("%|",), _bar), (("{'",), _hugging_face),
)  # fmt: skip
