"""Communicators over time: a pointer is used again after its communicator is destroyed, so a pointer is not a communicator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alltrace.core.nccl_log import ABSENT, FIELDS
from alltrace.readers.nccl_log.records import CommunicatorEvent

_LINE, _COMM, _NRANKS = FIELDS.index("line"), FIELDS.index("communicator"), FIELDS.index("nranks")


@dataclass
class Instance:
    """One rank's end of one communicator, from its INIT to its end."""

    process: int  # number of its process in the log
    pointer: int  # the pointer that the process prints for it
    rank: int | None = None  # its rank in the communicator, from the INIT line; None if the log has none
    nranks: int | None = None  # the number of ranks, from the INIT line or the calls
    comm_id: str | None = None  # what is equal on all its ranks, as NCCL prints it from 2.18 on
    function: str | None = None  # the call that made it
    parent: str | None = None  # the pointer that it was split from
    device: int | None = None  # the CUDA ordinal
    bus_id: str | None = None  # the device's bus id, as printed
    nodes: int | None = None  # nodes, local_ranks, local_rank: where NCCL placed it
    local_ranks: int | None = None
    local_rank: int | None = None
    begin_line: int | None = None  # the line of its INIT
    complete: bool = False


class Instances:
    """Keeps the instance of each communicator pointer; `communicators`: process and pointer of each number so far."""

    def __init__(self, communicators: Sequence[tuple[int, int]]) -> None:
        self.all: list[Instance] = []
        self._communicators = communicators
        self._current = np.full(1024, -1, np.int64)

    def assign(self, rows: Any, events: Sequence[CommunicatorEvent]) -> Any:
        """The instance of each row of calls, which are in the order of lines, given the events among those lines."""
        while self._current.size < len(self._communicators):
            self._current = np.concatenate([self._current, np.full(self._current.size, -1, np.int64)])
        numbers = rows[:, _COMM]
        touched: dict[int, list[CommunicatorEvent]] = {}
        for event in events:
            if event.communicator >= 0 and event.what != "timings":
                touched.setdefault(event.communicator, []).append(event)
        out = self._current[numbers]
        for number, its in touched.items():
            mine = np.flatnonzero(numbers == number)
            lines = rows[mine, _LINE]
            done = 0
            for event in its:
                upto = int(np.searchsorted(lines, event.line))
                if upto > done:
                    out[mine[done:upto]] = self._implicit(number, rows[mine[done], _NRANKS])
                    done = upto
                self._apply(number, event)
            if done < mine.size:
                out[mine[done:]] = self._implicit(number, rows[mine[done], _NRANKS])
        if (out < 0).any():
            for number in np.unique(numbers[out < 0]):
                mine = (numbers == number) & (out < 0)
                out[mine] = self._implicit(int(number), rows[np.argmax(mine), _NRANKS])
        return out

    def _implicit(self, number: int, nranks: int) -> int:
        """The current instance of a pointer that is used, made if no INIT was seen."""
        index = int(self._current[number])
        if index < 0:
            index = self._new(number, Instance(*self._communicators[number]))
        instance = self.all[index]
        if instance.nranks is None and nranks != ABSENT:
            instance.nranks = int(nranks)
        return index

    def _new(self, number: int, instance: Instance) -> int:
        self.all.append(instance)
        self._current[number] = len(self.all) - 1
        return len(self.all) - 1

    def _apply(self, number: int, event: CommunicatorEvent) -> None:
        current = int(self._current[number])
        instance = self.all[current] if current >= 0 else None
        if event.what.startswith("Init"):
            rank = int(event.fields["rank"])
            goes_on = instance is not None and instance.begin_line is not None and not instance.complete and instance.rank == rank
            if event.what == "Init START" or instance is None or not goes_on:
                instance = Instance(*self._communicators[number], begin_line=event.line)
                self._new(number, instance)
            instance.complete = event.what == "Init COMPLETE"
            _fill(instance, event.fields)
        elif event.what == "placement":
            if instance is None or instance.complete:
                instance = Instance(*self._communicators[number], begin_line=event.line)
                self._new(number, instance)
            _fill(instance, event.fields)
        elif instance is not None and event.what in ("Destroy COMPLETE", "Abort COMPLETE"):
            self._current[number] = -1


def _fill(instance: Instance, fields: dict[str, str]) -> None:
    numbers = {
        "rank": "rank",
        "nranks": "nranks",
        "cuda": "device",
        "nodes": "nodes",
        "local_ranks": "local_ranks",
        "local_rank": "local_rank",
    }
    for key, name in numbers.items():
        if key in fields:
            setattr(instance, name, int(fields[key]))
    instance.comm_id = fields.get("id") or fields.get("id2") or instance.comm_id
    instance.function = fields.get("func") or instance.function
    instance.bus_id = fields.get("bus") or instance.bus_id
    if fields.get("parent", "(nil)") != "(nil)":
        instance.parent = fields["parent"]
