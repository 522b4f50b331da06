"""What a trace of the PyTorch profiler says, worked out from its JSON alone: plain loops, nothing of the package."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

OPERATORS = ("cpu_op", "operator")
NAMED = ("user_annotation", "python_function")
CALLS = ("cuda_runtime", "cuda_driver", "runtime")
WORK = ("kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset")


@dataclass
class Node:
    """One interval of a thread in the tree of those around it; times in ns."""

    name: str
    start: int
    end: int
    operator: bool
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    gpu_self_ns: int = 0

    @property
    def total(self) -> int:
        return self.end - self.start

    def above(self) -> Iterable[Node]:
        """Those around it, the innermost first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


def load(path: Path) -> list[dict[str, Any]]:
    """The events that have a name, with times as the decimals they are."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    content = json.loads(data, strict=False, parse_float=Decimal)
    return [e for e in (content["traceEvents"] if isinstance(content, dict) else content) if "name" in e]


def without_step_numbers(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events with one name for the ranges of all steps, as sums have it."""
    return [{**e, "name": "ProfilerStep"} if e["name"].startswith("ProfilerStep#") else e for e in events]


def whole(events: Iterable[dict[str, Any]], categories: Sequence[str]) -> list[dict[str, Any]]:
    """The events that are intervals of one of the categories."""
    return [e for e in events if e.get("ph") == "X" and str(e.get("cat")).lower() in categories]


def ns(value: Any) -> int:
    """Microseconds as whole ns."""
    return int((Decimal(value) * 1000).to_integral_value())


def trees(events: list[dict[str, Any]]) -> list[Node]:
    """All nodes, linked to the shortest of those around them."""
    threads: dict[Any, list[Node]] = defaultdict(list)
    for e in events:
        start = ns(e["ts"])
        threads[e["tid"]].append(Node(e["name"], start, start + ns(e["dur"]), str(e["cat"]).lower() in OPERATORS))
    nodes = []
    for own in threads.values():
        own.sort(key=lambda n: (n.start, -n.end))
        open_nodes: list[Node] = []
        for node in own:
            open_nodes = [o for o in open_nodes if o.end >= node.start]
            around = [o for o in open_nodes if o.end >= node.end]
            if around:
                node.parent = min(reversed(around), key=lambda o: o.total)
                node.parent.children.append(node)
            open_nodes.append(node)
            nodes.append(node)
    return nodes


def sums(nodes: list[Node]) -> dict[str, dict[str, int]]:
    """Of each name: calls, total times with those within one of their name counted once, self times."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"calls": 0, "cpu_total_ns": 0, "cpu_self_ns": 0})
    for node in nodes:
        row = found[node.name]
        row["calls"] += 1
        row["cpu_self_ns"] += max(0, node.total - sum(c.total for c in node.children))
        if all(other.name != node.name for other in node.above()):
            row["cpu_total_ns"] += node.total
    return dict(found)


def averages(nodes: list[Node]) -> dict[str, dict[str, int]]:
    """As `torch.profiler` adds them up: an only child of its parent's name is taken for the parent, all others
    count."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"calls": 0, "cpu_total_ns": 0, "cpu_self_ns": 0})
    for node in nodes:
        row = found[node.name]
        row["cpu_self_ns"] += node.total - sum(c.total for c in node.children)
        if node.parent is None or node.parent.name != node.name or len(node.parent.children) > 1:
            row["calls"] += 1
            row["cpu_total_ns"] += node.total
    return dict(found)


def gpu_sums(events: list[dict[str, Any]], within: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Of each name of `within` the GPU time, in ns, of what was launched inside, and of that in no other of them."""
    launched: Counter[int] = Counter()
    for e in whole(events, WORK):
        correlation = e["args"].get("correlation")
        if correlation is not None:
            launched[correlation] += ns(e["dur"])
    calls: dict[int, dict[str, Any]] = {}
    for e in whole(events, CALLS):
        correlation = e["args"].get("correlation")
        if correlation in launched and (
            correlation not in calls
            or (ns(e["ts"]), -ns(e["dur"])) < (ns(calls[correlation]["ts"]), -ns(calls[correlation]["dur"]))
        ):
            calls[correlation] = e
    marked = [{**e, "call": None} for e in within] + [
        {**e, "cat": "call", "call": c, "name": "\0call"} for c, e in calls.items()
    ]
    total: Counter[str] = Counter()
    own: Counter[str] = Counter()
    by_thread: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for e in marked:
        by_thread[e["tid"]].append(e)
    for thread in by_thread.values():
        # a call that lies exactly on an interval is inside of it
        thread.sort(key=lambda e: (ns(e["ts"]), e["call"] is not None, -ns(e["dur"])))
        open_events: list[dict[str, Any]] = []
        for e in thread:
            start, end = ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])
            open_events = [o for o in open_events if ns(o["ts"]) + ns(o["dur"]) >= start]
            if e["call"] is None:
                open_events.append(e)
                continue
            around = [o for o in open_events if ns(o["ts"]) + ns(o["dur"]) >= end]
            for name in {o["name"] for o in around}:
                total[name] += launched[e["call"]]
            if around:
                own[around[-1]["name"]] += launched[e["call"]]
    return {name: (total[name], own[name]) for name in {e["name"] for e in within}}


def module_paths(events: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Calls and total times of modules by their path."""
    prefix = "nn.Module: "
    nodes = trees([e for e in whole(events, ("python_function",)) if e["name"].startswith(prefix)])
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"calls": 0, "cpu_total_ns": 0})
    for node in nodes:
        above = [n.name.removeprefix(prefix) for n in (node, *node.above())]
        row = found["/".join(reversed(above))]
        row["calls"] += 1
        row["cpu_total_ns"] += node.total
    return dict(found)


def stacks(events: list[dict[str, Any]]) -> Counter[str]:
    """Calls of operators by the stack that the profiler wrote with them, the outermost function first."""
    found: Counter[str] = Counter()
    for e in whole(events, OPERATORS):
        text = (e.get("args") or {}).get("Call stack")
        if text:
            found[";".join(reversed(text.split(";")))] += 1
    return found


def pools(events: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """The kinds and numbers of devices whose memory events tell of."""
    return {(e["args"]["Device Type"], e["args"]["Device Id"]) for e in events if e["name"] == "[memory]"}


def memory(events: list[dict[str, Any]], pool: tuple[int, int]) -> dict[str, Any]:
    """What the allocator did in one pool, event by event; blocks belong to the innermost operator of the thread at the
    moment."""
    own = [e for e in events if e["name"] == "[memory]" and (e["args"]["Device Type"], e["args"]["Device Id"]) == pool]
    own.sort(key=lambda e: ns(e["ts"]))
    by_thread: dict[Any, list[tuple[int, int, int, str]]] = defaultdict(list)
    for n, e in enumerate(whole(events, OPERATORS)):
        by_thread[str(e["tid"])].append((ns(e["ts"]), -ns(e["dur"]), n, e["name"]))
    owners: dict[int, str | None] = {}
    for tid in {str(e["tid"]) for e in own}:  # PyTorch 1.8 wrote some as texts
        stack: list[tuple[int, str]] = []
        waiting = sorted(by_thread[tid], reverse=True)
        for n, e in ((n, e) for n, e in enumerate(own) if str(e["tid"]) == tid):
            moment = ns(e["ts"])
            while waiting and waiting[-1][0] <= moment:
                start, length, _, name = waiting.pop()
                stack = [s for s in stack if s[0] >= start]
                stack.append((start - length, name))
            stack = [s for s in stack if s[0] >= moment]
            owners[n] = stack[-1][1] if stack else None
    addressed = any("Addr" in e["args"] for e in own)
    sizes = [e["args"]["Bytes"] for e in own]
    running = lowest = 0
    for size in sizes:
        running += size
        lowest = min(lowest, running)
    total = -lowest
    live: dict[int, tuple[int, str | None]] = {}
    net: Counter[str | None] = Counter()
    peak, at_peak, unmatched = None, {}, 0
    for n, e in enumerate(own):
        args, size = e["args"], e["args"]["Bytes"]
        before = args["Total Allocated"] - size if "Total Allocated" in args else total
        total = before + size
        if peak is None:
            peak = before
        net[owners[n]] += size
        if size < 0:
            unmatched += live.pop(args.get("Addr"), None) is None
        elif addressed:
            live[args["Addr"]] = (size, owners[n])
        if total > peak:
            peak, at_peak = total, dict(live)
    alive: Counter[str | None] = Counter()
    for size, owner in at_peak.values():
        alive[owner] += size
    given = [s for s in sizes if s >= 0]
    return {
        "peak_bytes": peak, "last_bytes": total, "allocations": len(given), "handed_out_bytes": sum(given),
        "frees": len(sizes) - len(given), "kept_bytes": sum(s for s, _ in live.values()) if addressed else None,
        "unmatched_frees": unmatched if addressed else None, "net": net, "alive": alive,
    }  # fmt: skip


def step_times(events: list[dict[str, Any]]) -> list[tuple[int, int, dict[str, int]]]:
    """Start and end of each step, and the time in each class: a sweep over all starts and ends.

    A step lasts to the start of the next; the last to its end, or to that of the work launched in it.
    """
    steps = {}
    for e in events:
        if e.get("ph") == "X" and e["name"].startswith("ProfilerStep#") and e["cat"] != "gpu_user_annotation":
            steps[int(e["name"].split("#")[1])] = (ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]))
    launches = {e["args"].get("correlation"): ns(e["ts"]) for e in whole(events, CALLS)}
    order = sorted(steps.values())
    last = max(
        [order[-1][1]]
        + [
            ns(e["ts"]) + ns(e["dur"])
            for e in whole(events, WORK)
            if order[-1][0] <= launches.get(e["args"].get("correlation"), ns(e["ts"])) < order[-1][1]
        ]
    )
    moments: list[tuple[int, int, int]] = []
    for e in events:
        if e.get("ph") == "X" and (rank := _class(e)) is not None:
            start = ns(e["ts"])
            moments += [(start, rank, 1), (start + ns(e["dur"]), rank, -1)]
    found = []
    for n, (start, _) in enumerate(order):
        end = order[n + 1][0] if n + 1 < len(order) else last
        times: dict[str, int] = defaultdict(int)
        open_ones, before = [0] * 7, start
        for moment, rank, change in [*sorted(moments), (end, 0, 0)]:
            at = min(max(moment, start), end)
            name = next((c for c, count in zip(CLASSES, open_ones, strict=False) if count), "idle_ns")
            times[name] += at - before
            before = at
            open_ones[rank] += change
        found.append((start, end, dict(times)))
    return found


def breakdowns(events: list[dict[str, Any]]) -> dict[Any, tuple[int, int, int, int]]:
    """Of each device the time of compute kernels, of communication alone, of copies alone, and of nothing: moment by
    moment."""
    moments: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    for e in whole(events, WORK):
        place = (
            2
            if str(e["cat"]).lower() != "kernel"
            else int(any(w in e["name"].lower() for w in ("nccl", "multimem_all")))
        )
        start = ns(e["ts"])
        moments[e["args"]["device"]] += [(start, place, 1), (start + ns(e["dur"]), place, -1)]
    found = {}
    for device, own in moments.items():
        own.sort()
        times, running, before = [0] * 4, [0] * 3, own[0][0]
        for moment, place, change in own:
            times[next((n for n, count in enumerate(running) if count), 3)] += moment - before
            running[place] += change
            before = moment
        found[device] = (times[0], times[1], times[2], times[3])
    return found


CLASSES = ("kernel_ns", "communication_ns", "memcpy_ns", "memset_ns", "runtime_ns", "dataloader_ns", "cpu_ns")


def _class(event: dict[str, Any]) -> int | None:
    category, name = event["cat"].lower(), event["name"]
    if category == "kernel":
        return 1 if name.startswith("nccl") else 0
    for kinds, place in ((("gpu_memcpy", "memcpy"), 2), (("gpu_memset", "memset"), 3), (CALLS, 4)):
        if category in kinds:
            return place
    if category in (*OPERATORS, "user_annotation"):
        if name.startswith("enumerate(DataLoader)"):
            return 5
        if category in OPERATORS and not name.startswith(("ProfilerStep", "Optimizer.step")):
            return 6
    return None
