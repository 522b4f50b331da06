"""What a kernel does, by its name: ordered rules, the first that matches decides.

`communication_kernels` names the kernels that communicate; others are compute if `kernel_families` knows their name, or
a word of it indicates it. Rules from a user's file come first. A kernel that no rule names is `unclassified`: it counts
as compute, and answers report how much of the kernel time that is. If the ranks of a host wait for one another in it,
it is `meeting` (`alltrace.run.meeting_kernels`), and no answer counts it as compute.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path

from alltrace.trace.communication_kernels import COLLECTIVE, COMMUNICATION_KERNELS, EXCHANGE, P2P, KernelRule
from alltrace.trace.errors import InputError, UsageError
from alltrace.trace.kernel_families import FAMILIES
from alltrace.trace.user_pattern import UserPattern

_MOST_KNOWN = 10_000
_LONGEST_KNOWN = 1_000

COMPUTE = "compute"
UNCLASSIFIED = "unclassified"
MEETING = "meeting"
"""No rule names the kernel, and ranks of a host wait for one another in it."""
HOST = "host"
"""A piece of what a host's main thread computes, where nothing ran on a device (`alltrace.run.host_work`); it is
compute."""
COMMUNICATION = frozenset({COLLECTIVE, P2P, EXCHANGE})
NOT_COMPUTE = COMMUNICATION | {MEETING}
"""Kernels in which a rank exchanges data with other ranks or waits for them."""
LONGEST_NAME = 1 << 15
"""Looking through the rest of a longer name, as a damaged report may have one, would take minutes."""

_COMPUTE_WORDS = """
    gemm gemv gemvx cutlass cublas cublasLt cudnn cask xmma nvjet splitK conv wgrad dgrad fprop winograd
    implicit_convolve nchw nhwc volta_ turing_ ampere_ hopper sm[0-9]{2,3}_ maxwell_ at::native at_cuda_detail at::cuda
    triton_ triton__ flash fmha attention mha_ elementwise vectorized softmax layer_?norm rms_?norm batch_?norm bn_[fb]w
    group_?norm pool adam sgd lamb optimizer multi_tensor_apply embedding indexSelect index_ scatter gather sort radix
    scan reduce copy fill cast convert transpose permute dropout gelu relu silu swiglu rope rotary cross_entropy
    nll_loss loss topk top_k sampling argmax fft thrust:: cub:: curand philox spmm spmv cusparse cusolver magma
    transformer_engine apex quantize dequantize fp8 moe expert marlin awq gptq mamba selective_scan dali memset memcpy
    normal_ uniform distribution_ random nan_ isfinite amp_ unrolled pointwise stencil jacobi saxpy daxpy axpy
    dot_kernel nvfuser kernel_cuda __nv_static rocblas hipblaslt miopen tensile aiter ck_tile ck:: rocfft rocsparse
    rocprim hipcub gridwise im2d2?col col2im bwd_kernel routing bitmatrix triton_kernels moe::
"""

BUILT_IN: tuple[KernelRule, ...] = (
    *COMMUNICATION_KERNELS,
    KernelRule("(?i)" + "|".join(_COMPUTE_WORDS.split()), COMPUTE),
    *(KernelRule(pattern, COMPUTE) for _family, pattern in FAMILIES),
)


class KernelRules:
    """Ordered rules, a user's before the built-in ones. `extra`: rules that come first."""

    def __init__(self, extra: Iterable[KernelRule] = ()) -> None:
        own = tuple(extra)
        self.rules: tuple[KernelRule, ...] = (*own, *BUILT_IN)
        self._own = [(UserPattern("a kernel rule", r.pattern), r.kind) for r in own]
        self._known: dict[str, str] = {}  # the ranks of a job run the same kernels
        self._of_ids: dict[int | None, str | None] = {}

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the rules: equal for equal rules."""
        text = "\n".join(f"{r.pattern}\t{r.kind}" for r in self.rules)
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def kind(self, name: str | None) -> str | None:
        """The class of a kernel called `name`: that of the first matching rule, else `unclassified`; None without."""
        # Only the first `LONGEST_NAME` characters of a name are read.
        if not name:
            return None
        result = self._known.get(name)
        if result is None:
            looked_at = name[:LONGEST_NAME]
            result = next((kind for pattern, kind in self._own if pattern.matches([looked_at])[0]), None)
            # most kernels are known by an early rule, and to compile the others takes longer than to import a small
            # trace
            result = result or next((r.kind for r in BUILT_IN if re.search(r.pattern, looked_at)), UNCLASSIFIED)
            if len(name) <= _LONGEST_KNOWN and len(self._known) < _MOST_KNOWN:
                self._known[name] = result
        return result

    def kinds(self, ids: Sequence[int | None], texts: Callable[[], Mapping[int | None, str]]) -> list[str | None]:
        """The class of each of some names by their ids, the same in every report; `texts` has new names."""
        known = self._of_ids
        if any(i not in known for i in ids):
            if len(known) >= _MOST_KNOWN:
                known.clear()
            names = texts()
            known.update({i: self.kind(names.get(i)) for i in ids if i is None or i in names})
        return [known.get(i) for i in ids]


@lru_cache(maxsize=1)
def built_in_rules() -> KernelRules:
    return KernelRules()


def read_rules(path: Path) -> KernelRules:
    """Rules from a text file, before the built-in ones: on each line a class, white space, and a regular expression."""
    # Empty lines and lines that start with `#` are passed over.
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.cannot_be("read", path, error, expected="a text file of kernel rules") from error
    rules = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        kind, *rest = line.strip().split(None, 1)
        pattern = rest[0] if rest else ""
        try:
            UserPattern("it", pattern)
        except UsageError as error:
            raise InputError(
                path, found=f"line {number} does not contain a valid regular expression ({error})"
            ) from error
        if not pattern or not re.fullmatch(r"[a-z][a-z0-9_-]*", kind):
            raise InputError(path, found=f"line {number} is {line!r}", expected="a class and a regular expression")
        rules.append(KernelRule(pattern, kind))
    return KernelRules(rules)
