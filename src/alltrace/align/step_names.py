"""How frameworks name the iterations of a program, and what LLM servers say of requests.

Every pattern has the place it is from. A name belongs to a whole step (`iteration 12`, `ProfilerStep#12`), an iteration
of an evaluation, or an optimizer's work, which is the end of a step. Names of parts of a step, such as a micro-batch,
are none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from alltrace.trace.name_stems import RECORDED

Role = Literal["step", "evaluation", "optimizer"]

LONGEST_NAME = 300
"""Longer names, such as those with shapes of arguments, name no step."""

_RECORDED = re.compile(RECORDED.pattern)

CHECKPOINT = re.compile(r"checkpoint|save[ _-]?(?:model|state)|state[ _-]?dict", re.IGNORECASE)
"""Ranges that write a checkpoint: Lightning's `save_checkpoint`, Megatron's `save-checkpoint`, PyTorch's
`state_dict`."""

_OF_FRAMEWORKS = tuple(
    re.compile(pattern)
    for pattern in (
        # torch.profiler.profile.step (torch/profiler/profiler.py): PyTorch, torchtitan, Hugging Face Trainer and
        # Accelerate, NeMo
        r"(?P<family>ProfilerStep)#(?P<number>\d+)",
        # TraceMe with a step number (tsl/profiler/lib/traceme_encode.h): jax.profiler.StepTraceAnnotation,
        # tf.profiler.experimental.Trace, and Keras' Model.fit through the latter
        r"(?P<family>[^#]*)#(?:[^#]*,)?step_num=(?P<number>\d+)(?:,[^#]*)?#?",
        # the same as XProf and Perfetto show it
        r"(?P<family>\$?[Tt]rain(?:ing)?) (?P<number>\d+)",
        # the run of a compiled module (xla/service/gpu/gpu_executable.cc), in NVTX's domain TSL
        r"(?:TSL:)?XlaModule:#(?:prefix=[^,#]*,)?hlo_module=(?P<family>[^,#]+)(?:,program_id=\d+)?#",
        # Lightning's loop (lightning/pytorch/loops/training_epoch_loop.py, by its PyTorchProfiler)
        r"\[pl\]\[profile\](?P<family>run_training_batch)",
    )
)

_SERVERS = tuple(
    re.compile(pattern)
    for pattern in (
        # TensorRT-LLM (tensorrt_llm/_torch/pyexecutor/py_executor.py): the requests of each phase
        r"(?P<family>\[Executor\] _forward_step)(?: (?P<number>\d+))?: "
        r"(?:(?P<context>\d+) ctx reqs, (?P<generation>\d+) gen reqs|.*)",
        # vLLM (vllm/v1/worker/gpu_worker.py, annotate_profile): requests, and in brackets tokens of context and
        # generation, in later versions sums of query and key-value lengths (`sq`, `sk`)
        r"(?P<family>execute)_(?:\d+_)?context_(?P<context>\d+)(?:\((?P<context_sizes>[^()]*)\))?"
        r"_generation_(?P<generation>\d+)(?:\((?P<generation_sizes>[^()]*)\))?",
        r"(?P<family>execute)_(?:\d+_)?new_(?P<context>\d+)_cached_(?P<generation>\d+)",
        # SGLang (sglang/srt/model_executor/model_runner.py, _build_step_span_name): mode, batch and, of an extension,
        # its tokens
        r"(?P<family>step)\[(?P<mode>\w*+)(?P<rest>[^\]]*)\]",
        # ATOM (ROCm/ATOM, run_model): phase, batch and tokens
        r"(?P<family>)(?P<mode>prefill|decode)\[(?P<rest>bs=[^\]]*)\]",
    )
)
_MOST_DIGITS = 15
_LENGTHS = re.compile(r"sq(\d+)sk(\d+)sqsq\d+sqsk\d+")
_TOKENS = re.compile(r"([0-9]+)(?:_[0-9]+)?")  # some versions write the sum of squares after it
_FIELD = re.compile(r"\b(bs|tok)s?=(\d+)")

PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"
_MODES = {"EXTEND": PREFILL, "DECODE": DECODE, "MIXED": MIXED}

_WORD = r"(?:step|iter(?:ation)?|batch)"
_KIND = r"(?:profiler|train(?:ing)?|global|outer|mini)?"
_NUMBERED = re.compile(
    rf"(?P<family>.*?(?:^|[^a-z]){_KIND}[ _-]?{_WORD}s?[ _#:=\[-]*)(?P<number>\d+)(?: ?(?:/|of) ?\d+|,\d+\)|\])?",
    re.IGNORECASE,
)
"""Common hand-written names: `step 12`, `iteration_12`, `Batch 12`, `step 12/100`, `iteration[12,16)`."""

_REPEATED = re.compile(rf"(?P<family>(?:.*[^a-z])?{_KIND}[ _-]?{_WORD})", re.IGNORECASE)
"""Without a number: `step`, `train_step`, DeepSpeed's `PipelineEngine.train_batch`, Lightning's `X.training_step`."""

_PART = re.compile(
    r"(?:micro|accum\w*|ga|sub|forward|backward|fwd|bwd|data\w*|load\w*|prefetch\w*|sched\w*|lr|optim\w*)["
    rf" _.-]*{_WORD}|\[DALI\]"
    r"|DeepSpeedEngine\.(?:forward|backward)",
    re.IGNORECASE,
)
"""Parts of a step, with any numbering: micro-batches, loading, Megatron's `forward_step`, DALI's pipeline."""

_EVALUATION = re.compile(
    rf"(?:^|[^a-z])(?:val(?:id(?:ation)?)?|eval(?:uation)?|test|predict(?:ion)?|sanity)[ _.-]*{_WORD}", re.IGNORECASE
)

_OPTIMIZER = re.compile(
    # torch.optim.Optimizer (torch/optim/optimizer.py, profile_hook_step)
    r"Optimizer\.step#.*"
    # DeepSpeed (deepspeed/runtime/zero/stage3.py and engine.py, instrument_w_nvtx)
    r"|DeepSpeed\w*\.step"
    # Lightning's optimizer_step, torchrec's `## optimizer ##`, and common hand-written names
    r"|(?:.*\W)?(?:optimi[sz]er|optim|(?-i:[A-Z]\w*Optimizer))(?:[ _.:-]?step)?(?:\(\)|[\W_]*)",
    re.IGNORECASE,
)


class StepName(NamedTuple):
    role: Role  # an optimizer works at the end of a step
    family: str  # the common part of the names of all these ranges
    number: int | None = None  # of the program
    alone: bool = False  # one such range is already a step; other names need repetition


@lru_cache(maxsize=4_096)  # ranks have the same names
def step_name(name: str) -> StepName | None:
    """What the name of a range states about iterations; None if it names neither a step nor an optimizer."""
    text = _RECORDED.sub("", name)
    if len(text) > LONGEST_NAME:
        return None
    for pattern in (*_OF_FRAMEWORKS, *_SERVERS):
        if match := pattern.fullmatch(text):
            return _named("step", match)._replace(alone=not text.partition("#")[0].endswith("XlaModule:"))
    if _OPTIMIZER.fullmatch(text):
        return StepName("optimizer", text)
    if _PART.search(text):
        return None
    match = _NUMBERED.fullmatch(text) or _REPEATED.fullmatch(text)
    return _named("evaluation" if _EVALUATION.search(text) else "step", match) if match else None


def _named(role: Role, match: re.Match[str]) -> StepName:
    number = match.groupdict().get("number")
    # an epoch's number before the step's makes no separate family
    family = re.sub(r"\d+", "#", match["family"])
    return StepName(role, family, int(number) if number and len(number) < 12 else None, alone=number is not None)


class Iteration(NamedTuple):
    """One iteration of a server; values that its name lacks are None."""

    phase: str | None  # `prefill`, `decode`, `mixed` or another mode in lower case, such as `target_verify`
    requests: int | None
    prefill_requests: int | None
    query_tokens: int | None  # tokens that are computed: the query lengths of all requests together
    kv_tokens: int | None  # the lengths of their keys and values together


def iteration_of(name: str) -> Iteration | None:
    """What the name of a range says of an iteration of a server; None if it names none."""
    match = next((m for pattern in _SERVERS if (m := pattern.fullmatch(name))), None)
    parts = match.groupdict() if match else {}
    if mode := parts.get("mode"):
        phase = _MODES.get(mode, mode.lower())
        fields = {key: _number(value) for key, value in _FIELD.findall(parts["rest"])}
        requests = fields.get("bs")
        prefills = {PREFILL: requests, DECODE: 0}.get(phase)
        # a decoding request computes a token; those that check drafts are of another mode
        return Iteration(phase, requests, prefills, fields.get("tok", requests if phase == DECODE else None), None)
    if not parts.get("context"):
        return None
    context, generation = _number(parts["context"]), _number(parts["generation"])
    requests = _sum((context, generation))
    phase = None if not requests else MIXED if context and generation else PREFILL if context else DECODE
    query, keys = zip(*(_sizes(parts.get(f"{part}_sizes") or "") for part in ("context", "generation")), strict=True)
    return Iteration(phase, requests, context, _sum(query), _sum(keys))


def _sizes(text: str) -> tuple[int | None, int | None]:
    """Query and key-value lengths of the requests of a phase together."""
    if match := _LENGTHS.fullmatch(text):
        return _number(match[1]), _number(match[2])
    match = _TOKENS.fullmatch(text)
    return _number(match[1]) if match else None, None


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MOST_DIGITS else None


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum; None if a part is not known."""
    numbers = [*values]
    return None if None in numbers else sum(n for n in numbers if n is not None)
