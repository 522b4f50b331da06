"""Which ranks are profiled, and how their reports are named."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from alltrace.capture.identity import Identity, safe
from alltrace.capture.variables import RAY_NUMBER
from alltrace.trace.errors import UsageError
from alltrace.trace.side_file_words import ROLE
from alltrace.trace.spans import rank_spans

FIRST_LOCAL = "first-local"
NAME = "{job}_rank{rank}_on_{host}"
_NAME_WITH_ROLE = "{job}_{role}_rank{rank}_on_{host}"
_FIELD = re.compile(r"%q\{([^}]*)\}|\{([^{}]*)\}|%(.?)")
_VARIABLE = re.compile(r"%q\{([^}]*)\}")
_ILLEGAL = re.compile(r"[\x00-\x1f\x7f/]")


class Selection(NamedTuple):
    """Which ranks are profiled: those that meet every condition."""

    spans: tuple[tuple[int, int], ...] | None = None  # first and last rank of each span; None for all
    first_local: bool = False  # only the first rank of each node
    per_node: int | None = None  # only this many ranks of each node
    cutoff: int | None = None  # only ranks below this one

    def holds(self, who: Identity) -> bool:
        self._check_world(who)
        if self.most is not None and who.local_rank is None:
            raise UsageError(
                f"--per-node and --ranks {FIRST_LOCAL} need the local rank, which {who.launcher} does not set; use"
                " --ranks 0,8"
            )
        return self.takes(who.rank, who.local_rank or 0)

    def takes(self, rank: int, local_rank: int) -> bool:
        """Whether a rank with this number on its node passes every condition."""
        return (
            (self.spans is None or any(first <= rank <= last for first, last in self.spans))
            and (self.cutoff is None or rank < self.cutoff)
            and (self.most is None or local_rank < self.most)
        )

    def is_first(self, who: Identity) -> bool:
        """Whether no lower rank is profiled, if a node's ranks follow each other."""
        size = who.local_size or 1
        return not any(self.takes(rank, rank % size) for rank in range(who.rank))

    def chosen(self, who: Identity) -> int | None:
        """How many ranks are chosen, if a node's ranks follow each other; None if it is unknown."""
        if who.world_size is None and self.spans is not None and self.most is None:
            count = end = 0
            for first, last in sorted(self.spans):
                below = min(last + 1, self.cutoff or last + 1)
                count += max(0, below - max(first, end))
                end = max(end, below)
            return count
        if who.world_size is None or (self.most is not None and not who.local_size):
            return None
        size = who.local_size or 1
        return sum(self.takes(rank, rank % size) for rank in range(who.world_size))

    @property
    def most(self) -> int | None:
        return min((n for n in (self.per_node, 1 if self.first_local else None) if n is not None), default=None)

    def outside(self, world_size: int | None) -> str | None:
        if self.spans is None or world_size is None:
            return None
        over = [(max(first, world_size), last) for first, last in self.spans if last >= world_size]
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in over) or None

    def _check_world(self, who: Identity) -> None:
        if self.spans is None or who.world_size is None or any(first < who.world_size for first, _ in self.spans):
            return
        raise UsageError(
            f"--ranks names only {self.outside(who.world_size)}, but the world has the ranks "
            f"0-{who.world_size - 1}; nothing would be profiled"
        )


def fill_in(switch: str, who: Identity, environment: Mapping[str, str]) -> str:
    """A switch for the profiler with `%q{VARIABLE}` filled in, as nsys does only for names; other percents stay."""

    def value(match: re.Match[str]) -> str:
        if not environment.get(match[1]):
            raise UsageError(
                f"--profiler-arg {switch!r} uses {match[0]}, and {match[1]} is not set for rank {who.rank}; export it"
            )
        return environment[match[1]]

    return _VARIABLE.sub(value, switch)


def parse_selection(ranks: str | None, per_node: int | None, cutoff: int | None) -> Selection:
    """The selection that the options say."""
    # `ranks`: `0-7,64`, `first-local`, `all`, or None for all.
    if ranks is None or ranks == "all":
        return Selection(None, False, per_node, cutoff)
    if ranks == FIRST_LOCAL:
        return Selection(None, True, per_node, cutoff)
    spans = rank_spans(ranks, f", or {FIRST_LOCAL}, or all")
    return Selection(tuple((s.first or 0, (s.end or 1) - 1) for s in spans), False, per_node, cutoff)


def report_name(template: str, who: Identity, environment: Mapping[str, str], job: str | None) -> str:
    """The name of a rank's report, from `--name`; by default with the rank's role, if it has one."""
    if template == NAME and environment.get(ROLE):
        template = _NAME_WITH_ROLE
    # the rank may become known later, and is another worker's number
    if RAY_NUMBER in environment and "RANK" not in environment:
        other = template.replace("rank{rank}", "worker{rank}")
        template = other if other != template else f"{template}_worker{{rank}}"
    return expand(template, "--name", who, environment, job)


def expand(
    template: str, option: str, who: Identity, environment: Mapping[str, str], job: str | None, *, folder: bool = False
) -> str:
    """`template` with its fields filled in."""
    # Fields are `{job} {rank} {local_rank} {world_size} {node} {host} {role}`, `%q{VARIABLE}`, `%h` for the host, `%p`
    # for a process of the rank, `%%` for a percent sign. `folder`: whether the template names a folder, which may have
    # slashes; a field's value may not.
    fields = {
        # else what is started again would find the reports of before, and stop
        "job": f"{job}{who.restart}" if job else who.job or "job",
        "rank": who.rank,
        "local_rank": who.local_rank,
        "world_size": who.world_size,
        "node": who.node,
        "host": who.host,
        "role": safe(environment.get(ROLE, "")) or None,
    }

    def value(match: re.Match[str]) -> str:
        variable, field, letter = match.groups()
        if variable is not None:
            if not environment.get(variable):
                raise UsageError(
                    f"{option} {template!r} uses %q{{{variable}}}, and {variable} is not set for rank {who.rank};"
                    " export it, or use {job}, {rank} or {host}"
                )
            return _ILLEGAL.sub("-", environment[variable])
        if field is not None:
            if field not in fields:
                raise UsageError.unknown(f"field in {option}", field, fields)
            if fields[field] is None:
                raise UsageError(
                    f"{option} {template!r} uses {{{field}}}, which {who.launcher} does not set; leave it out"
                )
            return str(fields[field])
        if letter in ("h", "p", "%"):
            return {"h": who.host, "p": str(os.getpid()), "%": "%"}[letter]
        raise UsageError(f"{option} {template!r} uses %{letter}; only %q{{VARIABLE}}, %h, %p and %% are filled in")

    name = _FIELD.sub(value, template)
    if not name.strip() or "\0" in name or (not folder and (_ILLEGAL.search(name) or name in (".", ".."))):
        raise UsageError(f"{option} gives {name!r}, which cannot be the name of a {'folder' if folder else 'report'}")
    return name
