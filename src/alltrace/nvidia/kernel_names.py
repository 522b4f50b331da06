"""What nsys calls kernels, copies and calls, and which call launched which kernel."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alltrace.recipes.analysis.lookups import as_text, column
from alltrace.recipes.analysis.nvtx_projection import innermost_ranges
from alltrace.recipes.base import Option
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.grouping import group

NVTX_NAME = Option(
    "nvtx_name", bool, default=False, help="Put the innermost NVTX range around the launch in front of a kernel's name."
)
BASE = Option("base", bool, default=False, help="Name kernels without template arguments and parameters.")
MANGLED = Option("mangled", bool, default=False, help="Use the mangled names of kernels, if recorded.")

KERNEL_NAME = "coalesce(text_of(launch_range) || '/', '') || text_of(kernel)"

COPY_LABELS = {
    "unknown": "Unknown", "HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "HtoA": "Host-to-Array",
    "AtoH": "Array-to-Host", "AtoA": "Array-to-Array", "AtoD": "Array-to-Device", "DtoA": "Device-to-Array",
    "DtoD": "Device-to-Device", "HtoH": "Host-to-Host", "PtoP": "Peer-to-Peer", "UvmHtoD": "Unified Host-to-Device",
    "UvmDtoH": "Unified Device-to-Host", "UvmDtoD": "Unified Device-to-Device",
}  # fmt: skip
MEMORY_LABELS = {
    "pageable": "Pageable", "pinned": "Pinned", "device": "Device", "array": "Array", "managed": "Managed",
    "device-static": "Device Static", "managed-static": "Managed Static", "unknown": "Unknown",
}  # fmt: skip


def name_column(options: Mapping[str, Any]) -> str:
    return "short_name" if options.get("base") else "mangled_name" if options.get("mangled") else "name"


def kernel_words(options: Mapping[str, Any]) -> dict[str, str]:
    """What replaces `{kernel}`, `{launch_range}` and `{kernel_name}` in a statement that names kernels."""
    name, ranged = name_column(options), options.get("nvtx_name")
    return {
        "kernel": "name" if name == "name" else f"coalesce({name}, name)",
        "kernel_name": KERNEL_NAME if ranged else "text_of(kernel)",
        "launch_range": "launch_range" if ranged else "NULL::BIGINT",
    }


def kernel_columns(options: Mapping[str, Any]) -> list[str]:
    return ["name", name_column(options), *(["process", "correlation"] if options.get("nvtx_name") else [])]


def kernel_texts(rank: Rank, kernels: Any, options: Mapping[str, Any]) -> Any:
    name = pc.coalesce(column(kernels, name_column(options)), column(kernels, "name"))
    ranges = launch_ranges(rank, kernels) if options.get("nvtx_name") else pa.nulls(kernels.num_rows, pa.int64())
    codes, first = group([ranges, name])
    text = rank.texts(name.take(pa.array(first)))
    prefixed = pc.binary_join_element_wise(
        rank.texts(ranges.take(pa.array(first))), text, "/", null_handling="emit_null"
    )
    labels = pc.cast(pc.coalesce(prefixed, text), pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), labels)


def copy_labels(kinds: Any) -> Any:
    """`[CUDA memcpy Host-to-Device]` or `[CUDA memset]` for kinds of `copies`, a string array."""
    labels = {kind: f"[CUDA memcpy {label}]" for kind, label in COPY_LABELS.items()} | {
        "memset": "[CUDA memset]",
        None: None,
    }
    return pa.array([labels.get(kind, f"[CUDA memcpy {kind}]") for kind in kinds.to_pylist()], pa.string())


def relabel(words: Any, labels: Mapping[str, str]) -> Any:
    """A dictionary array of words of the schema as a dictionary array of what nsys calls them."""
    array = pc.dictionary_encode(words) if not pa.types.is_dictionary(words.type) else words
    texts = pa.array([labels.get(w, w) for w in array.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(array.indices, texts)


def call_labels(texts: Any) -> Any:
    """Names of API calls without the `_vNNNN` that the profiler adds: exactly four digits at the end."""
    return pc.replace_substring_regex(texts, r"_v[0-9]{4}$", "")


def call_texts(ids: Any, texts: Rank) -> Any:
    encoded = as_text(ids, texts)
    return pa.DictionaryArray.from_arrays(encoded.indices, call_labels(encoded.dictionary))


def launch_dims(x: Any, y: Any, z: Any) -> Any:
    """`   4    1    1`: the dimensions of a grid or block as nsys prints them, each right-aligned to four places."""
    columns = [x, y, z]
    codes, first = group(columns)
    some = [pc.take(pc.cast(c, pa.int64()), pa.array(first)).to_pylist() for c in columns]
    texts = [None if None in dims else " ".join(f"{d:4d}" for d in dims) for dims in zip(*some, strict=True)]
    return pc.take(pa.array(texts, pa.string()), pa.array(codes))


def launches(kernels: Any, api: Any) -> tuple[Int64, Int64]:
    """Rows of `kernels` and of `api`, in pairs: which call launched which, by correlation id within the process."""
    # The pairs are in the order of the kernels. A kernel without a call has none.
    unknown = pc.is_null(column(kernels, "correlation")).to_numpy(zero_copy_only=False)
    ours, theirs = _call_codes(kernels, api)
    order = np.argsort(theirs, kind="stable")
    by_code = theirs[order]
    low = np.searchsorted(by_code, ours, side="left")
    high = np.searchsorted(by_code, ours, side="right")
    matches = np.where(unknown, 0, high - low)
    kernel = np.repeat(np.arange(len(ours)), matches)
    offset = np.arange(len(kernel)) - np.repeat(np.cumsum(matches) - matches, matches)
    return kernel, order[np.repeat(low, matches) + offset]


def _call_codes(kernels: Any, api: Any) -> tuple[Int64, Int64]:
    """A number for each row of both tables, the same where process and correlation id are."""
    process, correlation = (
        np.concatenate([integers(t.column(c), -1) for t in (kernels, api)]) for c in ("process", "correlation")
    )
    if not len(process):
        return process, correlation
    low = int(correlation.min())
    width = int(correlation.max()) - low + 1
    if (int(process.max()) + 2) * width < 2**63:
        codes = (process + 1) * width + (correlation - low)
    else:
        codes, _ = group([pa.array(process), pa.array(correlation)])
    return codes[: kernels.num_rows], codes[kernels.num_rows :]


def launch_ranges(rank: Rank, kernels: Any) -> Any:
    """The name id of the innermost NVTX range around the call that launched each kernel, null if there is none."""
    if not rank.has("ranges") or not rank.has("api"):
        return pa.nulls(kernels.num_rows, pa.int64())
    api = rank.table("api", ["start", "end", "process", "thread", "correlation"])
    api = pc.filter(api, pc.is_valid(api.column("thread")))
    kernel, call = launches(kernels, api)
    kernel, first = np.unique(kernel, return_index=True)
    called = pc.take(api, pa.array(call[first]))
    names = innermost_ranges(rank, *(integers(called.column(c), -1) for c in ("thread", "start", "end")))
    place = np.full(kernels.num_rows, -1, np.int64)
    place[kernel] = np.arange(len(kernel))
    return pc.take(names, pa.array(place, mask=place < 0))
