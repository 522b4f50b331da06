"""The strings of a trace as interned names, and the kinds of copies, waits and kernels that their names mean."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from alltrace.core.kineto import NOTHING
from alltrace.readers.kineto import categories
from alltrace.readers.kineto.events import decoded
from alltrace.trace.kernel_rules import COMMUNICATION, built_in_rules
from alltrace.trace.names import name_id

COPY_KINDS = ("memset", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "unknown")
MEMORY_KINDS = ("pageable", "pinned", "device", "array", "managed", "device-static", "managed-static", "unknown")
SYNC_KINDS = ("event", "stream-wait", "stream", "context", "unknown")

MEMORIES = (
    "cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga", "maia", "xla", "vulkan", "metal", "xpu", "mps",
    "meta", "hpu", "ve", "lazy", "ipu", "mtia", "privateuse1",
)  # fmt: skip
"""Kinds of devices by PyTorch's number (`c10/core/DeviceType.h`)."""

_DIRECTION = re.compile(r"\b([HDAP])to([HDAP])\b")
_LONG_DIRECTION = re.compile(r"(Host|Device|Array)To(Host|Device|Array)")
_ENDS = re.compile(r"\(([^()]*?)(?:\s*->\s*([^()]*?))?\)")


class Names:
    """What is known of each string of a trace, by the scanner's code; it grows with the trace."""

    def __init__(self, texts: list[bytes]) -> None:
        self._texts = texts
        self._ids = np.empty(0, np.int64)
        self._used = np.empty(0, np.bool_)
        self._words: dict[str, Any] = {}
        self._extra: dict[int, str] = {}
        self._short: dict[int, int] = {}

    def text(self, code: int) -> str:
        """The string with the code."""
        return decoded(self._texts[code])

    def ids(self, codes: Any) -> Any:
        """The interned ids of strings that rows refer to, as an Arrow array; null if there is none."""
        if len(self._ids) < len(self._texts):
            fresh = len(self._texts) - len(self._ids)
            self._ids = np.concatenate((self._ids, np.zeros(fresh, np.int64)))
            self._used = np.concatenate((self._used, np.zeros(fresh, np.bool_)))
        missing = codes == NOTHING
        known = codes[~missing] if missing.any() else codes
        before = self._used.copy()
        self._used[known] = True
        for code in np.flatnonzero(self._used & ~before).tolist():
            self._ids[code] = name_id(self.text(code))
        values = np.zeros(len(codes), np.int64)
        values[~missing] = self._ids[known]
        return pa.array(values, mask=missing if missing.any() else None)

    def add(self, text: str) -> int:
        """The id of a string that is not from the trace."""
        key = name_id(text)
        self._extra[key] = text
        return key

    def short_ids(self, codes: Any) -> Any:
        """The ids of kernels' short names."""
        kinds, places = np.unique(codes, return_inverse=True)
        for code in kinds.tolist():
            if code != NOTHING and code not in self._short:
                self._short[code] = self.add(short_name(self.text(code)))
        ids = np.array([self._short.get(c, 0) for c in kinds.tolist()], np.int64)
        missing = codes == NOTHING
        return pa.array(ids[places.ravel()], mask=missing if missing.any() else None)

    def classes(self, about: str, ask: Callable[[str], int], codes: Any, otherwise: int = 0) -> Any:
        """The result of `ask` for each string, called once per string and cached under `about`."""
        known = self._words.get(about, np.empty(0, np.int16))
        if len(known) < len(self._texts) + 1:
            # the last place is for a missing string, so it moves as the rest grows
            old = known[:-1] if len(known) else known
            unasked = np.full(len(self._texts) + 1 - len(old), -1, np.int16)
            known = self._words[about] = np.concatenate((old, unasked))
            known[-1] = otherwise
        places = np.where(codes == NOTHING, len(known) - 1, codes)
        wanted = np.zeros(len(known), np.bool_)
        wanted[places] = True
        for code in np.flatnonzero(wanted & (known == -1)).tolist():
            known[code] = ask(self.text(code))
        return known[places]

    def table(self) -> Any:
        """The dictionary `names` of the strings that were used."""
        texts = dict(self._extra)
        for code in np.flatnonzero(self._used).tolist():
            texts.setdefault(int(self._ids[code]), self.text(code))
        return pa.table({"id": pa.array(texts.keys(), pa.int64()), "value": pa.array(texts.values(), pa.string())})


def short_name(name: str) -> str:
    """A kernel's name without return type, scopes, template arguments and parameters."""
    depth = 0
    start = 0
    text = name.replace("(anonymous namespace)", "_anonymous_").replace("<unnamed>", "_anonymous_")
    for at, letter in enumerate(text):
        if letter == "(" and depth == 0 and at:
            text = text[:at]
            break
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif depth == 0 and letter == " ":
            start = at + 1
    text = text[start:]
    inner = text.find("<")
    # a method of a template: the arguments of the class come before its name
    while inner >= 0 and "::" in _after(text, inner):
        text = _after(text, inner).split("::", 1)[1]
        inner = text.find("<")
    text = (text if inner < 0 else text[:inner]).rsplit("::", 1)[-1]
    return text or name


def _after(text: str, inner: int) -> str:
    """The text after the angle brackets that open at `inner`."""
    depth = 0
    for at in range(inner, len(text)):
        depth += (text[at] == "<") - (text[at] == ">")
        if depth == 0:
            return text[at + 1 :]
    return ""


def role(category: str) -> int:
    """The role of a category; see `categories`."""
    return categories.role_of(category)


def communicates(kernel: str) -> int:
    """1 if the kernel rules classify a kernel as communication."""
    return int(built_in_rules().kind(kernel) in COMMUNICATION)


def copy_kind(name: str) -> int:
    """The place in `COPY_KINDS` of a copy called like `Memcpy HtoD (Pinned -> Device)`."""
    short = _DIRECTION.search(name)
    if short:
        kind = f"{short[1]}to{short[2]}"
    else:
        long = _LONG_DIRECTION.search(name)
        kind = f"{long[1][0]}to{long[2][0]}" if long else "memset" if "memset" in name.lower() else "unknown"
    return COPY_KINDS.index(kind) if kind in COPY_KINDS else COPY_KINDS.index("unknown")


def from_memory(name: str) -> int:
    """The place in `MEMORY_KINDS` of what a copy reads; -2 if the name does not say."""
    ends = _ENDS.search(name)
    return _memory(ends[1]) if ends and ends[2] is not None else -2


def to_memory(name: str) -> int:
    """The place in `MEMORY_KINDS` of what a copy or fill writes; -2 if the name does not say."""
    ends = _ENDS.search(name)
    return _memory(ends[1] if ends[2] is None else ends[2]) if ends else -2


def _memory(word: str) -> int:
    plain = word.strip().lower().replace(" ", "-")
    return MEMORY_KINDS.index(plain) if plain in MEMORY_KINDS else MEMORY_KINDS.index("unknown")


def sync_kind(name: str) -> int:
    """The place in `SYNC_KINDS` of a wait called like `Stream Wait Event`."""
    lower = name.lower()
    for word, kind in (("wait", "stream-wait"), ("event", "event"), ("stream", "stream"), ("context", "context")):
        if word in lower:
            return SYNC_KINDS.index(kind)
    return SYNC_KINDS.index("unknown")


def is_module(name: str) -> int:
    """1 for a Python function that represents a module of the model."""
    return int(name.startswith("nn.Module: "))
