"""What is replaced in texts, and by what: hosts, users, paths, addresses, secrets; alike in all files.

Hosts and users are gathered from all files first, because any file may name those of another in passing. They are
numbered in natural order, so that what is ordered by host stays in its order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from alltrace.readers.nccl_log.grammar import HEADER
from alltrace.run.identity import natural_key
from alltrace.run.log_files import short_host
from alltrace.trace.names import text_of_bytes

_HOST = re.compile(rb'(?:\b(?:HOSTNAME|SLURMD_NODENAME)=|"host_?name"\s*:\s*")([A-Za-z0-9][A-Za-z0-9_.-]{0,252})')
_USER = re.compile(rb"(?:/home/|/Users/|\b(?:USER|LOGNAME|SLURM_JOB_USER)=)([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})")
# words of the formats themselves and of every machine, which say nothing of a user and without which nothing can be
# read
_COMMON = frozenset(
    "root user ubuntu python rank step loss comm nccl cuda device stream count iteration localhost".split()
)
_SHORTEST = 3
_PUBLIC = re.compile(
    r"/(?:usr/(?:lib(?:32|64)?|s?bin|include|share|local/cuda)|lib(?:32|64)?|s?bin|opt/nvidia|dev|proc|sys)\b.*"
)
_PACKAGE = re.compile(r"/(?:site|dist)-packages/.*")
_TELLING = (
    r"[\w-]*(?:token(?!s)|secret|passw(?:or)?d|passphrase|credential|(?:api|access|private|aws)_?key|auth_)[\w-]*"
)
_PATTERN = re.compile(
    rf"""
    (?P<url>[A-Za-z][A-Za-z0-9+.-]{{1,15}}://[^\s"'<>\\]+)
    | (?P<mail>[\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)
    | (?P<before>(?i:\b{_TELLING}["']?\s*[=:]\s*["']?|--{_TELLING}\s+|\bbearer\s+))
      (?![\d.,eE+-]+(?:[\s|,;)\]}}]|$))(?P<value>[^\s"',;|&]+)
    | (?P<secret>\b(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|eyJ)[\w./+=-]{{12,}})
    | (?<![^\x00-\x20"'=(,\[:<>;|@])(?P<path>~?(?:/[^\s/"'<>|:;,()\[\]=]+){{2,}}/?|[A-Za-z]:\\[^\s"'<>|]+)
    | (?P<address>(?<![\w.])(?:\d{{1,3}}\.){{3}}\d{{1,3}}(?!\w|\.\d)
      |(?<![\w:])(?:(?:[0-9a-f]{{2}}:){{5}}[0-9a-f]{{2}}|(?:[0-9a-f]{{1,4}}:){{7}}[0-9a-f]{{1,4}}
        |(?=[0-9a-f:]*\d)(?:[0-9a-f]{{1,4}}:){{1,6}}(?::[0-9a-f]{{1,4}}){{1,6}})(?![\w:]))
    """,
    re.VERBOSE,
)
_PIECE = re.compile(r"[A-Za-z0-9]+")


class Words:
    def __init__(self, hide: Iterable[str] = ()) -> None:
        self._gathered: dict[str, set[str]] = {"host": set(), "user": set(), "word": set(hide)}
        self._instead: dict[str, str] = {}
        self._by_piece: dict[str, list[str]] = {}
        self._numbers: Counter[str] = Counter()
        self._done: dict[str, str] = {}

    def gather(self, data: bytes) -> None:
        self._gathered["host"].update(map(text_of_bytes, _HOST.findall(data)))
        self._gathered["user"].update(map(text_of_bytes, _USER.findall(data)))
        if b" NCCL " in data:
            lines = (line for line in data.splitlines() if b" NCCL " in line)
            self.hosts(text_of_bytes(header["host"]) for line in lines if (header := HEADER.search(line)))

    def hosts(self, names: Iterable[str]) -> None:
        self._gathered["host"].update(name for name in names if name)

    def number(self) -> None:
        """Number what was gathered; from now on texts are replaced."""
        hosts = sorted(self._gathered["host"], key=natural_key)
        domains = {short: {h for h in hosts if short_host(h) == short} - {short} for short in map(short_host, hosts)}
        one_of_name = [h if len(domains[short_host(h)]) > 1 else short_host(h) for h in hosts]
        users, words = sorted(self._gathered["user"] - _COMMON), sorted(self._gathered["word"])
        for kind, texts in (("word", words), ("host", one_of_name), ("user", users)):
            distinct = list(dict.fromkeys(texts))
            digits = len(str(len(distinct)))
            self._instead.update(
                {word: f"{kind}{n:0{digits}}" for n, word in enumerate(distinct, 1) if word not in self._instead}
            )
            self._numbers[kind] = len(distinct)
        self._instead.update({h: self._instead[name] for h, name in zip(hosts, one_of_name, strict=True)})
        for domain in sorted({h.partition(".")[2] for h in hosts} - {""}):
            self._instead.setdefault(domain, self._next("domain"))
        for word in sorted(self._instead, key=len, reverse=True):
            piece = _PIECE.search(word)
            if piece is not None and len(word) >= _SHORTEST and word.lower() not in _COMMON:
                self._by_piece.setdefault(piece[0], []).append(word)

    def __call__(self, text: str) -> str:
        """The text with all that must not be shared replaced."""
        if (replaced := self._done.get(text)) is None:
            replaced = self._instead.get(text) or self._known(_PATTERN.sub(self._replaced, text))
            if len(self._done) < 1 << 18:
                self._done[text] = replaced
        return replaced

    def inside(self, value: Any) -> Any:
        """A value of JSON with all texts in it replaced, but for those of a type of their own."""
        if type(value) is str:
            return self(value)
        if isinstance(value, (list, tuple)):
            return [self.inside(v) for v in value]
        return (
            {self(k) if isinstance(k, str) else k: self.inside(v) for k, v in value.items()}
            if isinstance(value, dict)
            else value
        )

    def instead(self, kind: str, text: str) -> str:
        key = f"{kind} {text}"
        if key not in self._instead:
            self._instead[key] = self._next(kind)
        return self._instead[key]

    def counts(self) -> dict[str, int]:
        return {kind: number for kind, number in sorted(self._numbers.items()) if number}

    def _next(self, kind: str) -> str:
        self._numbers[kind] += 1
        return f"{kind}{self._numbers[kind]}"

    def _replaced(self, match: re.Match[str]) -> str:
        if match["before"] is not None:
            return match["before"] + self.instead("secret", match["value"])
        kind = match.lastgroup or ""
        return self.path(match[0]) if kind == "path" else self.instead(kind, match[0])

    def path(self, text: str) -> str:
        if _PUBLIC.fullmatch(text):
            return text
        package = _PACKAGE.search(text)  # what is in a package that anyone can install is no secret
        return (
            self.instead("path", text)
            if package is None
            else self.instead("path", text[: package.start()]) + package[0]
        )

    def _known(self, text: str) -> str:
        """A text with hosts, users and words replaced where no letter or digit is next to them."""
        parts, at = [], 0
        for piece in _PIECE.finditer(text):
            for word in self._by_piece.get(piece[0], ()) if piece.start() >= at else ():
                start = piece.start() - word.index(piece[0])
                end = start + len(word)
                if start >= at and text.startswith(word, start) and not text[end : end + 1].isalnum():
                    parts += [text[at:start], self._instead[word]]
                    at = end
                    break
        return "".join([*parts, text[at:]])
