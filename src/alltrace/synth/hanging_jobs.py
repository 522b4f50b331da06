"""Simulated jobs that hang, die, or go on: the flight records and logs that they leave, with the known culprits.

Ranks issue operations ahead of their devices, as with NCCL; an operation completes when all its ranks have it at the
head of their queues. A fault stops some rank, and what follows from it is not planted but happens.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_START_NS = 1_767_225_600_000_000_000
_OPERATION_NS = 2_000_000
_STEP_NS = 80_000_000
_PROGRAM = "train.py"


class Call(NamedTuple):
    group: str
    op: str
    size: int
    line: int
    peer: int | None = None  # of a message


@dataclass(frozen=True)
class Layout:
    ranks: int = 16
    tensor: int = 2
    stages: int = 2
    experts: bool = False  # whether data-parallel ranks exchange tokens
    batched: bool = False  # whether messages are sent in batches
    described: bool = True  # whether dumps state the groups' members
    ahead: int = 8  # operations that a rank issues before it waits; 1 for gloo
    steps: int = 6

    @property
    def data(self) -> int:
        return self.ranks // (self.tensor * self.stages)


@dataclass(frozen=True)
class HangFault:
    kind: str = "none"  # a key of `FAULTS`
    ranks: tuple[int, ...] = ()
    step: int = 4
    call: int = 0  # the number of the call in the step from which on it happens


FAULTS = {
    "none": "no-hang", "ended": "no-hang", "skip": "missing-call", "stuck": "missing-call", "gpu": "dead-rank",
    "size": "mismatch", "order": "mismatch", "operation": "mismatch", "no-send": "missing-peer",
    "no-receive": "missing-peer", "killed": "dead-rank", "exception": "dead-rank", "host": "dead-rank",
    "network": "network",
}  # fmt: skip
"""What can be planted, and the kind of cause that it is."""


@dataclass
class _Operation:
    call: Call
    record: int
    sequence: int
    p2p: int
    created_ns: int
    step: int
    completed_ns: int | None = None


@dataclass
class _Rank:
    calls: list[tuple[int, Call]]
    at: int = 0
    operations: list[_Operation] = field(default_factory=list)
    completed: int = 0
    sequences: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    messages: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def groups_of(layout: Layout) -> dict[str, tuple[str, list[int]]]:
    """The process groups: name to description and members. Tensor ranks are neighbours, then data, then stages."""
    tensor, data, stages = layout.tensor, layout.data, layout.stages
    per_stage = tensor * data
    groups = {"0": ("default_pg", list(range(layout.ranks)))}
    number = 1
    for first in range(0, layout.ranks, tensor) if tensor > 1 else ():
        groups[str(number)] = ("TENSOR_MODEL_PARALLEL_GROUP", list(range(first, first + tensor)))
        number += 1
    for stage in range(stages) if data > 1 else ():
        for place in range(tensor):
            members = [stage * per_stage + d * tensor + place for d in range(data)]
            groups[str(number)] = ("DATA_PARALLEL_GROUP", members)
            number += 1
    for place in range(per_stage) if stages > 1 else ():
        groups[str(number)] = ("PIPELINE_MODEL_PARALLEL_GROUP", [place + s * per_stage for s in range(stages)])
        number += 1
    return groups


def calls_of(layout: Layout, rank: int, groups: dict[str, tuple[str, list[int]]]) -> list[Call]:
    mine = {text: name for name, (text, members) in groups.items() if rank in members}
    tensor, data, pipe = (mine.get(f"{t}_PARALLEL_GROUP") for t in ("TENSOR_MODEL", "DATA", "PIPELINE_MODEL"))
    calls: list[Call] = []
    stages = groups[pipe][1] if pipe else [rank]
    stage = stages.index(rank)

    def layer(line: int) -> None:
        if tensor:
            calls.append(Call(tensor, "_all_gather_base", 4096, line))
            calls.append(Call(tensor, "_reduce_scatter_base", 4096, line + 1))
        if data and layout.experts:
            calls.append(Call(data, "all_to_all", 2048 + 16 * rank, line + 2))

    for _micro in range(2):
        if pipe and stage:
            calls.append(Call(pipe, "recv", 8192, 20, stages[stage - 1]))
        layer(22)
        if pipe and stage + 1 < len(stages):
            calls.append(Call(pipe, "send", 8192, 28, stages[stage + 1]))
    for _micro in range(2):
        if pipe and stage + 1 < len(stages):
            calls.append(Call(pipe, "recv", 8192, 40, stages[stage + 1]))
        layer(42)
        if pipe and stage:
            calls.append(Call(pipe, "send", 8192, 48, stages[stage - 1]))
    if data:
        calls.append(Call(data, "allreduce_coalesced" if layout.experts else "all_reduce", 1 << 20, 60))
    calls.append(Call("0", "all_reduce", 1, 64))
    return calls


def _with_fault(fault: HangFault, rank: int, step: int, calls: list[Call]) -> list[Call]:
    """The calls of a step in which the program of a rank goes another way."""
    if rank not in fault.ranks or step != fault.step:
        return calls
    at = min(fault.call, len(calls) - 1)
    if fault.kind in ("no-send", "no-receive"):
        op = "send" if fault.kind == "no-send" else "recv"
        at = next((n for n, c in enumerate(calls) if c.op == op), at)
    if fault.kind in ("skip", "no-send", "no-receive"):
        return calls[:at] + calls[at + 1 :]
    if fault.kind == "size":
        at = next((n for n in range(at, len(calls)) if calls[n].op != "all_to_all" and calls[n].peer is None), at)
        return [*calls[:at], calls[at]._replace(size=calls[at].size + 8), *calls[at + 1 :]]
    if fault.kind == "operation":
        at = next((n for n in range(at, len(calls)) if calls[n].peer is None), at)
        other = "broadcast" if calls[at].op != "broadcast" else "all_reduce"
        return [*calls[:at], calls[at]._replace(op=other, line=70), *calls[at + 1 :]]
    if fault.kind == "order":
        at = next((n for n in range(at, len(calls) - 1) if calls[n].peer is None and calls[n + 1].peer is None
                   and calls[n] != calls[n + 1]), 0)  # fmt: skip
        first, second = calls[at : at + 2]
        return [*calls[:at], second._replace(line=71), first._replace(line=72), *calls[at + 2 :]]
    return calls


class Job:
    def __init__(self, layout: Layout, fault: HangFault, seed: int = 0) -> None:
        self.layout, self.fault = layout, fault
        self.groups = groups_of(layout)
        self._random = random.Random(seed)  # noqa: S311
        self.ranks: list[_Rank] = []
        for rank in range(layout.ranks):
            usual = calls_of(layout, rank, self.groups)
            steps = [(s, c) for s in range(layout.steps) for c in _with_fault(fault, rank, s, usual)]
            self.ranks.append(_Rank(steps))
        self._stops = {r: self._stop_of(r) for r in fault.ranks}
        while self._issue() | self._complete():
            pass

    def _stop_of(self, rank: int) -> int | None:
        """The number of the call that a rank does not come to, or whose completion it does not see."""
        if self.fault.kind not in ("stuck", "gpu", "killed", "exception", "host", "network"):
            return None
        its = [n for n, (step, _c) in enumerate(self.ranks[rank].calls) if step == self.fault.step]
        return its[min(self.fault.call, len(its) - 1)]

    def _issue(self) -> bool:
        moved = False
        for number, rank in enumerate(self.ranks):
            stop = self._stops.get(number) if self.fault.kind not in ("gpu", "network") else None
            while (
                rank.at < len(rank.calls)
                and rank.at != stop
                and len(rank.operations) - rank.completed < self.layout.ahead
            ):
                step, call = rank.calls[rank.at]
                if call.peer is None:
                    rank.sequences[call.group] += 1
                else:
                    rank.messages[call.group] += 1
                created_ns = (
                    _START_NS + step * _STEP_NS + rank.at % 100 * _OPERATION_NS // 4 + self._random.randrange(100_000)
                )
                created_ns = max(created_ns, rank.operations[-1].created_ns + 1000 if rank.operations else 0)
                sequence, messages = rank.sequences[call.group], rank.messages[call.group]
                operation = _Operation(call, len(rank.operations), sequence, messages, created_ns, step)
                rank.operations.append(operation)
                rank.at += 1
                moved = True
        return moved

    def _head(self, number: int) -> _Operation | None:
        rank = self.ranks[number]
        return rank.operations[rank.completed] if rank.completed < len(rank.operations) else None

    def _complete(self) -> bool:
        moved = False
        for number in range(len(self.ranks)):
            head = self._head(number)
            if head is None or not self._ready(number, head):
                continue
            for member in self._together(number, head.call):
                rank = self.ranks[member]
                done = rank.operations[rank.completed]
                done.completed_ns = done.created_ns + _OPERATION_NS
                rank.completed += 1
            moved = True
        return moved

    def _together(self, number: int, call: Call) -> list[int]:
        return [number, call.peer] if call.peer is not None else self.groups[call.group][1]

    def _ready(self, number: int, head: _Operation) -> bool:
        """Whether an operation is at the head on all its ranks, and the same there."""
        stop = self._stops.get(number)
        if (
            self.fault.kind == "network"
            and stop is not None
            and head.step >= self.fault.step
            and self.ranks[number].completed >= stop
        ):
            return False
        for member in self._together(number, head.call):
            if (
                self.fault.kind == "network"
                and member in self._stops
                and self.ranks[member].completed >= (self._stops[member] or 0)
            ):
                return False
            if (
                self.fault.kind == "gpu"
                and member in self._stops
                and self.ranks[member].completed > (self._stops[member] or 0)
            ):
                return False
            other = self._head(member)
            if other is None or other.call.group != head.call.group:
                return False
            if head.call.peer is None:
                same = other.call.op == head.call.op and (
                    other.call.size == head.call.size or head.call.op == "all_to_all"
                )
                if other.sequence != head.sequence or not same:
                    return False
            elif member != number and (other.call.peer != number or other.call.op == head.call.op):
                return False
        return True

    def dump_of(self, number: int, *, active: bool = False, entries: int = 2000) -> dict[str, Any]:
        """The flight record of a rank, as PyTorch writes it: of all its operations, or of incomplete ones."""
        rank, layout = self.ranks[number], self.layout
        mine = {name: value for name, value in self.groups.items() if number in value[1]}
        ids = {name: place for place, name in enumerate(sorted(mine, key=int))}
        seen = rank.completed
        if self.fault.kind == "gpu" and number in self._stops:  # its recorder does not see what completed since
            seen = min(seen, self._stops[number] or 0)
        records = [
            self._entry(number, n, op, ids, done=n < seen)
            for n, op in enumerate(rank.operations)
            if not (active and n < seen)
        ]
        status = {}
        for name, own in ids.items():
            issued = [o for o in rank.operations if o.call.group == name]
            completed = [o for o in rank.operations[:seen] if o.call.group == name]
            last = [
                (o[-1].p2p if o[-1].call.peer is not None else o[-1].sequence) if o else -1 for o in (issued, completed)
            ]
            keys = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
            status[str(own)] = dict(zip(keys, (last[0], -1, last[1]), strict=True))
        members = {n: {"name": n, "desc": text, "ranks": json.dumps(its)} for n, (text, its) in mine.items()}
        config = members if layout.described else {"": {"name": "", "desc": "", "ranks": "[]"}}
        flat = [entry for entries_of in records for entry in entries_of]
        return {
            "version": "2.10",
            "pg_config": config,
            "comm_lib_version": "",
            "pg_status": status,
            "entries": flat[-entries:],
        }

    def _entry(
        self, number: int, record: int, op: _Operation, ids: dict[str, int], *, done: bool
    ) -> list[dict[str, Any]]:
        call = op.call
        members = self.groups[call.group][1]
        title, width = call.op, call.size
        if call.peer is not None:
            arrow = "->" if call.op == "send" else "<-"
            title = f"{call.op} {members.index(number)}{arrow}{members.index(call.peer)}"
        shapes = {
            "_all_gather_base": (width, width * len(members)),
            "_reduce_scatter_base": (width * len(members), width),
        }
        input_width, output_width = shapes.get(call.op, (width, width))
        entry = {
            "record_id": record, "pg_id": ids[call.group], "process_group": [call.group, self.groups[call.group][0]],
            "collective_seq_id": op.sequence, "p2p_seq_id": op.p2p, "op_id": op.sequence + op.p2p,
            "profiling_name": f"nccl:{title}",
            "time_created_ns": op.created_ns, "input_sizes": [[input_width]], "input_dtypes": ["Float"],
            "output_sizes": [[output_width]], "output_dtypes": ["Float"],
            "state": "completed" if done else "started" if op.completed_ns else "scheduled",
            "time_discovered_started_ns": op.created_ns if done else 0,
            "time_discovered_completed_ns": op.completed_ns if done else 0,
            "retired": done, "timeout_ms": 600000, "is_p2p": call.peer is not None,
            "frames": [{"name": "train_step", "filename": _PROGRAM, "line": call.line}],
        }  # fmt: skip
        if call.peer is None or not self.layout.batched:
            return [entry]
        # the parts of a batch stay `scheduled`; the batch itself has a record of its own
        batch = entry | {
            "profiling_name": "nccl:coalesced",
            "input_sizes": [],
            "output_sizes": [],
            "input_dtypes": [],
            "output_dtypes": [],
        }
        return [entry | {"state": "scheduled", "retired": False}, batch]

    @property
    def culprits(self) -> list[int]:
        """The ranks to which the fault happened; a rank that never came to it is none."""
        before = ("stuck", "killed", "exception", "host")
        steps = {r: max((o.step for o in self.ranks[r].operations), default=0) for r in self.fault.ranks}
        reached = [r for r in self.fault.ranks if self.fault.kind not in before or self.ranks[r].at == self._stops[r]]
        return [r for r in reached if steps[r] >= self.fault.step or self.fault.kind in before]

    @property
    def hangs(self) -> bool:
        """Whether some rank has operations that never complete, or calls that it never comes to."""
        return any(rank.completed < len(rank.calls) for rank in self.ranks)

    @property
    def last_ns(self) -> int:
        return max(o.created_ns for rank in self.ranks for o in rank.operations)


def host_of(rank: int, per_host: int = 8) -> str:
    return f"node{rank // per_host}"


def write_job(
    folder: Path, job: Job, *, age_s: float = 600.0, active: bool = False, per_host: int = 8
) -> dict[str, Any]:
    """Write what a job leaves into a folder: `nccl_trace_rank_N`, `job.log`, `truth.json`; returns the truth."""
    folder.mkdir(parents=True, exist_ok=True)
    fault = job.fault
    written_ns = job.last_ns + int(age_s * 1e9)
    gone = job.culprits if fault.kind in ("killed", "exception", "host") else ()
    for number in range(job.layout.ranks):
        if number not in gone:
            path = folder / f"nccl_trace_rank_{number}.json"
            path.write_text(json.dumps(job.dump_of(number, active=active)))
            os.utime(path, ns=(written_ns, written_ns))
    (folder / "job.log").write_text("\n".join(_log(job, per_host)) + "\n")
    truth = {"kind": FAULTS[fault.kind], "fault": fault.kind, "ranks": job.culprits}
    (folder / "truth.json").write_text(json.dumps(truth) + "\n")
    return truth


def _log(job: Job, per_host: int) -> list[str]:
    """The job's log: its steps, and what the launcher says of its end."""
    layout, fault = job.layout, job.fault
    lines = [f"rank {r} on host {host_of(r, per_host)}" for r in range(layout.ranks)]
    steps = layout.steps if fault.kind in ("none", "ended") else fault.step
    lines += [f"step: {step}  loss: {9.0 / (step + 1):.4f}" for step in range(steps)]
    if fault.kind == "ended":
        lines.append("JobState=COMPLETED ExitCode=0:0")
    for rank in job.culprits if fault.kind in ("killed", "exception") else ():
        if fault.kind == "killed":
            lines.append(f"srun: error: {host_of(rank, per_host)}: task {rank}: Killed")
            continue
        lines += [
            f"[rank{rank}]: Traceback (most recent call last):",
            f'[rank{rank}]:   File "{_PROGRAM}", line 31, in train_step',
            f"[rank{rank}]: ValueError: the loss is not finite",
            f"srun: error: {host_of(rank, per_host)}: task {rank}: Exited with exit code 1",
        ]
    if fault.kind == "host":
        lines += [
            f"srun: error: Node failure on {host}" for host in sorted({host_of(r, per_host) for r in fault.ranks})
        ]
    return lines
