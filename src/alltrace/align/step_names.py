"""How frameworks name the iterations of a program: every pattern with the place it is from.

A name belongs to a whole step (`iteration 12`, `ProfilerStep#12`), an iteration of an evaluation, or an optimizer's
work, which is the end of a step. Names of parts of a step, such as a micro-batch, are none of these.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from alltrace.trace.name_stems import RECORDED

Role = Literal["step", "evaluation", "optimizer"]

LONGEST_NAME = 300
"""Longer names, such as those with shapes of arguments, name no step."""

_RECORDED = re.compile(RECORDED.pattern)

CHECKPOINT = re.compile(r"checkpoint|save[ _-]?(?:model|state)|state[ _-]?dict", re.IGNORECASE)
"""Ranges that write a checkpoint: Lightning's `save_checkpoint`, Megatron's `save-checkpoint`, PyTorch's `state_dict`."""

_OF_FRAMEWORKS = tuple(
    re.compile(pattern)
    for pattern in (
        # torch.profiler.profile.step (torch/profiler/profiler.py): PyTorch, torchtitan, Hugging Face Trainer and Accelerate, NeMo
        r"(?P<family>ProfilerStep)#(?P<number>\d+)",
        # TraceMe with a step number (tsl/profiler/lib/traceme_encode.h): jax.profiler.StepTraceAnnotation,
        # tf.profiler.experimental.Trace, and Keras' Model.fit through the latter
        r"(?P<family>[^#]*)#(?:[^#]*,)?step_num=(?P<number>\d+)(?:,[^#]*)?#?",
        # the same as XProf and Perfetto show it
        r"(?P<family>\$?[Tt]rain(?:ing)?) (?P<number>\d+)",
        # the run of a compiled module (xla/service/gpu/gpu_executable.cc), in NVTX's domain TSL
        r"(?:TSL:)?XlaModule:#(?:prefix=[^,#]*,)?hlo_module=(?P<family>[^,#]+)(?:,program_id=\d+)?#",
        # an iteration of TensorRT-LLM (tensorrt_llm/_torch/pyexecutor/py_executor.py)
        r"(?P<family>\[Executor\] _forward_step)(?: (?P<number>\d+))?: .*",
        # one of vLLM (vllm/v1/worker/gpu_worker.py, annotate_profile): requests, and in brackets tokens or lengths
        r"(?P<family>execute)_(?:\d+_)?(?:context_\d+(?:\(.*\))?_generation_\d+(?:\(.*\))?|new_\d+_cached_\d+)",
        # one of SGLang (sglang/srt/model_executor/model_runner.py, _build_step_span_name): mode, batch size, tokens
        r"(?P<family>step)\[[^\]]*\]",
        # one of ATOM (ROCm/ATOM, run_model)
        r"(?P<family>)(?:prefill|decode)\[bs=[^\]]*\]",
        # Lightning's loop (lightning/pytorch/loops/training_epoch_loop.py, by its PyTorchProfiler)
        r"\[pl\]\[profile\](?P<family>run_training_batch)",
    )
)

_WORD = r"(?:step|iter(?:ation)?|batch)"
_KIND = r"(?:profiler|train(?:ing)?|global|outer|mini)?"
_NUMBERED = re.compile(
    rf"(?P<family>.*?(?:^|[^a-z]){_KIND}[ _-]?{_WORD}s?[ _#:=\[-]*)(?P<number>\d+)(?: ?(?:/|of) ?\d+|,\d+\)|\])?", re.IGNORECASE
)
"""Common hand-written names: `step 12`, `iteration_12`, `Batch 12`, `step 12/100`, `iteration[12,16)`."""

_REPEATED = re.compile(rf"(?P<family>(?:.*[^a-z])?{_KIND}[ _-]?{_WORD})", re.IGNORECASE)
"""Without a number: `step`, `train_step`, DeepSpeed's `PipelineEngine.train_batch`, Lightning's `X.training_step`."""

_PART = re.compile(
    rf"(?:micro|accum\w*|ga|sub|forward|backward|fwd|bwd|data\w*|load\w*|prefetch\w*|sched\w*|lr|optim\w*)[ _.-]*{_WORD}|\[DALI\]"
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
    """What a range's name says of iterations."""

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
    for pattern in _OF_FRAMEWORKS:
        found = pattern.fullmatch(text)
        if found:
            return _named("step", found)._replace(alone=not text.partition("#")[0].endswith("XlaModule:"))
    if _OPTIMIZER.fullmatch(text):
        return StepName("optimizer", text)
    if _PART.search(text):
        return None
    found = _NUMBERED.fullmatch(text) or _REPEATED.fullmatch(text)
    return _named("evaluation" if _EVALUATION.search(text) else "step", found) if found else None


def _named(role: Role, found: re.Match[str]) -> StepName:
    number = found.groupdict().get("number")
    # an epoch's number before the step's makes no separate family
    family = re.sub(r"\d+", "#", found["family"])
    return StepName(role, family, int(number) if number and len(number) < 12 else None, alone=number is not None)
