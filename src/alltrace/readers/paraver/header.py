"""The first line of a .prv: how long the trace is, and how many nodes, tasks and threads it has."""

from __future__ import annotations

import re
from dataclasses import dataclass

from alltrace.readers.paraver.labels import LARGEST_LABELLED

_HEADER = re.compile(
    r"#Paraver \((?P<date>[^)]*)\):(?P<time>[0-9]+)(?P<unit>_ns|_us|_ms)?"
    r":(?P<nodes>0|[0-9]+\([0-9]+(?:,[0-9]+)*\)|[0-9]+):(?P<count>[0-9]+)(?P<appls>(?:[:,][0-9]+\([^)]*\))+)(?:,(?P<comms>[0-9]+))?"
)
_APPL = re.compile(r"[:,](?P<tasks>[0-9]+)\((?P<threads>[^)]*)\)")
_TASK = re.compile(r"([0-9]+):([0-9]+)")


@dataclass(frozen=True)
class Header:
    """The first line of a .prv."""

    end: int  # the length of the trace, in the trace's unit
    cpus: tuple[int, ...]  # CPUs of each node; empty without a resource model
    tasks: tuple[tuple[tuple[int, int], ...], ...]  # for each application and task its threads and its node (1-based)

    def sizes(self) -> dict[str, int]:
        """How many objects there are on each level of a .row."""
        tasks = [t for a in self.tasks for t in a]
        return {
            "WORKLOAD": 1,
            "APPL": len(self.tasks),
            "TASK": len(tasks),
            "THREAD": sum(n for n, _ in tasks),
            "SYSTEM": 1,
            "NODE": len(self.cpus),
            "CPU": sum(self.cpus),
        }


def parse_header(line: str) -> Header:
    """The header of a .prv. Raises `ValueError`: it is not a header; the message says what is wrong."""
    match = _HEADER.fullmatch(line)
    if match is None:
        raise ValueError("the first line is not a Paraver header")
    nodes = match["nodes"]
    if "(" in nodes:
        number, _, inner = nodes[:-1].partition("(")
        cpus = tuple(int(n) for n in inner.split(","))
        if len(cpus) != int(number):
            raise ValueError(f"the header has {number} nodes and CPUs for {len(cpus)}")
    else:
        cpus = (1,) * min(int(nodes), LARGEST_LABELLED >> 8)
    tasks = []
    for appl in _APPL.finditer(match["appls"]):
        own = [_TASK.fullmatch(t) for t in appl["threads"].split(",")]
        pairs = tuple((int(t[1]), int(t[2])) for t in own if t)
        if len(pairs) != len(own) or len(pairs) != int(appl["tasks"]):
            raise ValueError(f"the header has {appl['tasks']} tasks and threads for {len(pairs)}")
        if any(n == 0 or (cpus and not 0 < node <= len(cpus)) for n, node in pairs):
            raise ValueError("the header has a task without threads or on no node")
        tasks.append(pairs)
    if len(tasks) != int(match["count"]):
        raise ValueError(f"the header has {match['count']} applications and tasks for {len(tasks)}")
    return Header(int(match["time"]), cpus, tuple(tasks))
