"""What servers of language models say of an iteration in the name of its range: requests of each phase, and lengths.

vLLM (vllm/v1/worker/gpu_worker.py, `annotate_profile`) writes requests and tokens of context and generation, in later
versions sums of query and key-value lengths (`sq`, `sk`) instead of the tokens; SGLang
(sglang/srt/model_executor/model_runner.py, `_build_step_span_name`) the mode, the batch and, of an extension, its
tokens; TensorRT-LLM (tensorrt_llm/_torch/pyexecutor/py_executor.py) the requests of each phase; ATOM (ROCm/ATOM,
`run_model`) phase, batch and tokens.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MOST_DIGITS = 15
_PART = r"(?:\((?P<{0}>[^()]*)\))?"
_VLLM = re.compile(
    rf"execute_(?:\d+_)?context_(?P<context>\d+){_PART.format('context_sizes')}"
    rf"_generation_(?P<generation>\d+){_PART.format('generation_sizes')}"
)
_VLLM_OLD = re.compile(r"execute_new_(?P<context>\d+)_cached_(?P<generation>\d+)")
_SGLANG = re.compile(r"step\[(?P<mode>\w+)(?P<rest>[^\]]*)\]")
_TENSORRT = re.compile(r"\[Executor\] _forward_step(?: \d+)?: (?P<context>\d+) ctx reqs, (?P<generation>\d+) gen reqs")
_ATOM = re.compile(r"(?P<mode>prefill|decode)\[(?P<rest>bs=[^\]]*)\]")
_LENGTHS = re.compile(r"sq(\d+)sk(\d+)sqsq\d+sqsk\d+")
_TOKENS = re.compile(r"([0-9]+)(?:_[0-9]+)?")  # some versions write the sum of squares after it
_FIELD = re.compile(r"\b(bs|toks?)=(\d+)")

PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"
_MODES = {"EXTEND": PREFILL, "DECODE": DECODE, "MIXED": MIXED, "prefill": PREFILL, "decode": DECODE}


class Iteration(NamedTuple):
    """One iteration of a server; values that its name lacks are None."""

    phase: str | None  # `prefill`, `decode`, `mixed` or another mode in lower case, such as `target_verify`
    requests: int | None
    prefill_requests: int | None
    query_tokens: int | None  # tokens that are computed: the query lengths of all requests together
    kv_tokens: int | None  # the lengths of their keys and values together


def iteration_of(name: str) -> Iteration | None:
    """What the name of a range says of an iteration; None if it names none."""
    if found := _VLLM.fullmatch(name):
        context, generation = _number(found["context"]), _number(found["generation"])
        sizes = [_sizes(found[f"{part}_sizes"]) for part in ("context", "generation")]
        return _of_requests(context, generation)._replace(
            query_tokens=_sum(*(query for query, _ in sizes)), kv_tokens=_sum(*(keys for _, keys in sizes))
        )
    if found := _VLLM_OLD.fullmatch(name) or _TENSORRT.fullmatch(name):
        return _of_requests(_number(found["context"]), _number(found["generation"]))
    if found := _SGLANG.fullmatch(name) or _ATOM.fullmatch(name):
        phase = _MODES.get(found["mode"], found["mode"].lower())
        fields = {key.rstrip("s") if key != "bs" else key: _number(value) for key, value in _FIELD.findall(found["rest"])}
        requests = fields.get("bs")
        prefills = {PREFILL: requests, DECODE: 0}.get(phase)
        # a decoding request computes a token; those that check drafts are of another mode
        tokens = fields.get("tok", requests if phase == DECODE else None)
        return Iteration(phase, requests, prefills, tokens, None)
    return None


def _of_requests(context: int | None, generation: int | None) -> Iteration:
    requests = _sum(context, generation)
    phase = None if not requests else MIXED if context and generation else PREFILL if context else DECODE
    return Iteration(phase, requests, context, None, None)


def _sizes(text: str | None) -> tuple[int | None, int | None]:
    """Query and key-value lengths of the requests of a phase together."""
    if text is None:
        return None, None
    if found := _LENGTHS.fullmatch(text):
        return _number(found[1]), _number(found[2])
    if found := _TOKENS.fullmatch(text):
        return _number(found[1]), None
    return None, None


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MOST_DIGITS else None


def _sum(*values: int | None) -> int | None:
    """The sum; None if a part is not known."""
    known = [v for v in values if v is not None]
    return sum(known) if len(known) == len(values) else None
