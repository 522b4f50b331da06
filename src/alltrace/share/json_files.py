"""Traces of PyTorch's profiler, event by event, and dumps of its flight recorder: only known members stay."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from alltrace.readers.kineto.fields import KINETO
from alltrace.readers.plain_pickle import PickleRefusedError, decode
from alltrace.readers.text import Text
from alltrace.share.words import Words
from alltrace.trace.errors import InputError

_TOP = frozenset(
    "schemaVersion deviceProperties distributedInfo baseTimeNanoseconds displayTimeUnit trace_id host_name".split()
)
_TOP |= {"with_stack", "profile_memory", "record_shapes", "with_flops", "with_modules", "otherData"}
_EVENT = frozenset("ph cat name pid tid ts dur id s bp args".split())
_ARGUMENTS = frozenset(key.decode() for level, key, *_ in KINETO.keys if level) | {"labels", "sort_index"}
_VALUES = frozenset({"Concrete Inputs"})
_PLAIN = re.compile(r"(?:[\s\[\](),]|-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?![\d.]))*|True|False|None|true|false|[a-z]+:\d+")
_USERS = ("user_annotation", "gpu_user_annotation")
_OF_FORMAT = re.compile(r"ProfilerStep|(?:nccl|gloo|mpi|c10d)(?::|$)|nccl[A-Z]")
_FLOAT = re.compile(r'"\\u0000(-?[0-9][0-9.eE+-]*)"')

_DUMP = frozenset("version pg_config pg_status comm_lib_version entries rank".split())
_GROUP = frozenset("name desc ranks last_enqueued_collective last_started_collective last_completed_collective".split())
_ENTRY = frozenset(
    """
    record_id pg_id process_group collective_seq_id p2p_seq_id op_id profiling_name time_created_ns duration_ms
    input_sizes input_dtypes output_sizes output_dtypes state time_discovered_started_ns time_discovered_completed_ns
    retired timeout_ms is_p2p frames thread_id name filename line
    """.split()
)


def write_trace(source: Path, target: IO[bytes], words: Words, *, drop_texts: bool) -> Counter[str]:
    """Write a trace of PyTorch's profiler; which members were left out, and how often."""
    # Raises `InputError`: it is not whole.
    left_out: Counter[str] = Counter()
    with closing(Text(source)) as text:
        reading = _Reading(text, source)
        bare = reading.sign("{[") == "["
        target.write(b"[" if bare else b"{")
        if bare:
            _write_events(reading, target, words, left_out, drop_texts=drop_texts)
        first = True
        while not bare and reading.sign('"}') == '"':
            reading.back()
            key = reading.value()
            reading.sign(":")
            if key == "traceEvents":
                reading.sign("[")
                target.write(f"{'' if first else ','}{json.dumps(key)}:[".encode())
                _write_events(reading, target, words, left_out, drop_texts=drop_texts)
                target.write(b"]")
            elif (value := reading.value()) is not None and key in _TOP:
                target.write(f"{'' if first else ','}{json.dumps(key)}:{_text(words.inside(value))}".encode())
            else:
                left_out[str(key)] += 1
                continue
            first = False
        target.write(b"]" if bare else b"}")
    return left_out


def _write_events(
    reading: "_Reading", target: IO[bytes], words: Words, left_out: Counter[str], *, drop_texts: bool
) -> None:
    for number, event in enumerate(reading.items()):
        event = event if isinstance(event, dict) else {}
        left_out.update(event.keys() - _EVENT)
        members = {key: words.inside(value) for key, value in event.items() if key in _EVENT and key != "args"}
        if drop_texts and event.get("cat") in _USERS and not _OF_FORMAT.match(str(event.get("name"))):
            members["name"] = words.instead("range", str(event.get("name")))
        arguments = event.get("args")
        if isinstance(arguments, dict):
            whole = event.get("cat") == KINETO.whole.decode()  # the names of metrics are members
            shared = {
                k: v
                for k, v in arguments.items()
                if k in _ARGUMENTS or (whole and not isinstance(v, (str, list, dict)))
            }
            left_out.update(arguments.keys() - shared.keys())
            members["args"] = {k: _plain(v, words) if k in _VALUES else words.inside(v) for k, v in shared.items()}
        target.write(f"{',' if number else ''}\n{_text(members)}".encode())


def _plain(value: Any, words: Words) -> Any:
    """The values that an operator was called with: numbers and their lists; texts are a program's, and go."""
    if isinstance(value, list):
        return [_plain(v, words) for v in value]
    return value if type(value) is not str or _PLAIN.fullmatch(value) else words.instead("text", value)


def _text(value: Any) -> str:
    return _FLOAT.sub(r"\1", json.dumps(value))


class _Number(str):
    """A number with a point as it is written, after a NUL that marks it in what is written."""

    __slots__ = ()


class _Reading:
    def __init__(self, text: Text, path: Path) -> None:
        self._text, self._path = text, path
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._json = json.JSONDecoder(parse_float=lambda number: _Number(f"\0{number}"))
        self._data, self._at, self._more = "", 0, True

    def _fill(self) -> None:
        data = self._text.read(max(1 << 20, len(self._data) - self._at))
        self._more = bool(data)
        self._data = self._data[self._at :] + self._decoder.decode(data, final=not data)
        self._at = 0

    def sign(self, expected: str) -> str:
        """The next sign that is no blank or comma, which must be one of these."""
        while True:
            blanks = re.compile(r"[\s,]*").match(self._data, self._at)
            self._at = blanks.end() if blanks is not None else self._at
            if self._at < len(self._data) or not self._more:
                break
            self._fill()
        sign = self._data[self._at : self._at + 1]
        if not sign or sign not in expected:
            raise self._damaged()
        self._at += 1
        return sign

    def back(self) -> None:
        """Take the last sign back."""
        self._at -= 1

    def value(self) -> Any:
        while True:
            try:
                while self._data[self._at : self._at + 1].isspace():
                    self._at += 1
                value, end = self._json.raw_decode(self._data, self._at)
            except (ValueError, RecursionError) as error:
                if not self._more or isinstance(error, RecursionError):
                    raise self._damaged() from error
            else:
                if end < len(self._data) or not self._more:
                    self._at = end
                    return value
            self._fill()

    def items(self) -> Iterator[Any]:
        while self.sign('{["]0123456789-tfn') != "]":
            self.back()
            yield self.value()

    def _damaged(self) -> InputError:
        return InputError(
            self._path, found="its JSON is damaged or ends early", expected="a whole trace", advice="leave it out"
        )


def write_dump(source: Path, target: IO[bytes], words: Words) -> Counter[str]:
    """Write a dump of PyTorch's flight recorder as JSON, also of a pickle; which members it left out."""
    # Raises `InputError`: it holds anything but plain data, or is not whole.
    with closing(Text(source)) as text:
        data = b"".join(iter(text.read, b""))
    try:
        root = json.loads(data) if data.lstrip()[:1] == b"{" else decode(data)
        entries = root.get("entries") if isinstance(root, dict) else None
        if not isinstance(entries, list):
            raise ValueError("it has no list of entries")  # noqa: TRY004, TRY301  as of text that is not JSON
        left_out = Counter(root.keys() - _DUMP)
        groups = {
            key: _members(root.get(key), _GROUP, words, left_out, named=True)
            for key in ("pg_config", "pg_status")
            if key in root
        }
        written = [_members(entry, _ENTRY, words, left_out) for entry in entries]
        rest = {
            key: words.inside(value) for key, value in root.items() if key in _DUMP and key not in (*groups, "entries")
        }
        target.write(json.dumps({**rest, **groups, "entries": written}).encode())
    except (PickleRefusedError, ValueError, RecursionError) as error:
        expected = "a whole flight recorder dump"
        raise InputError.cannot_be("scrubbed", source, error, expected=expected, advice="leave it out") from error
    return left_out


def _members(value: Any, names: frozenset[str], words: Words, left_out: Counter[str], *, named: bool = False) -> Any:
    """A record of a dump with its known members; of `named` ones the outermost names are the program's."""
    if isinstance(value, dict):
        members = value if named else {key: v for key, v in value.items() if key in names}
        left_out.update(map(str, value.keys() - members.keys()))
        return {
            words(str(key)): (
                words.path(v) if key == "filename" and isinstance(v, str) else _members(v, names, words, left_out)
            )
            for key, v in members.items()
        }
    if isinstance(value, (list, tuple)):
        return [_members(v, names, words, left_out) for v in value]
    return words.inside(value)
