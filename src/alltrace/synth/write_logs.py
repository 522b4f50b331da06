"""What a simulated job prints: NCCL's log of each rank, and the training's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from alltrace.synth.identity import JOB_START_UTC_NS, Identity
from alltrace.synth.program import Group
from alltrace.synth.simulate import Instance, SimulatedRun

TRAINING_LOG = "train.log"
TOGETHER = "job.log"
_BFLOAT16, _INT8 = 9, 0


@dataclass(frozen=True)
class LogForm:
    stamped: bool = True  # whether lines have a time, as NCCL 2.26 writes it
    zone_hours: int = 0  # the zone of these local times
    together: bool = False  # all ranks into one file, `job.log`, by time, as a job's standard output is
    cut_share: float = 0.0  # the share of lines that are cut anywhere
    interleaved_share: float = 0.0  # the share of lines that another line interrupts; only where all are together
    seed: int = 0  # for these shares
    # whether opCount counts launches; else it stays 0, as in logs of collectives that a CUDA graph captured
    counted: bool = True


def write_logs(run: SimulatedRun, people: Sequence[Identity], folder: Path, form: LogForm | None = None) -> list[Path]:
    # `folder`: where to; made if missing. Returns NCCL's logs; the training's is `train.log` next to them.
    form = form or LogForm()
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng((form.seed, 12))
    lines = {who.rank: [(at, _line(at, who, text, form)) for at, text in _records(run, who, form)] for who in people}
    paths = []
    if form.together:
        whole = sorted((at, rank, text) for rank, its in lines.items() for at, text in its)
        path = folder / TOGETHER
        path.write_text("".join(_mixed([text for _at, _rank, text in whole], form, rng)), encoding="ascii")
        paths.append(path)
    else:
        for who in people:
            path = folder / f"nccl.{who.host_name}.{who.pid}.log"
            path.write_text("".join(_mixed([text for _at, text in lines[who.rank]], form, rng)), encoding="ascii")
            paths.append(path)
    (folder / TRAINING_LOG).write_text("".join(_training(run, people[-1], form)), encoding="ascii")
    return paths


def _mixed(lines: Sequence[str], form: LogForm, rng: np.random.Generator) -> Iterator[str]:
    """The lines with ends, some cut, some interrupted by the one that follows."""
    cut = rng.random(len(lines)) < form.cut_share
    split = rng.random(len(lines)) < (form.interleaved_share if form.together else 0.0)
    at = 0
    while at < len(lines):
        text = lines[at]
        place = int(rng.integers(20, len(text)))
        if cut[at] and "opCount" in text:
            yield f"{text[:place]}\n"
        elif split[at] and at + 1 < len(lines) and "opCount" in text:
            yield f"{text[:place]}{lines[at + 1]}\n{text[place:]}\n"
            at += 1
        else:
            yield f"{text}\n"
        at += 1


def _clock(at: int, who: Identity, form: LogForm) -> datetime:
    utc_us = (JOB_START_UTC_NS + who.host_clock_ns(at)) // 1_000
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=utc_us, hours=form.zone_hours)


def _line(at: int, who: Identity, text: str, form: LogForm) -> str:
    stamp = f"[{_clock(at, who, form):%Y-%m-%d %H:%M:%S}] " if form.stamped else ""
    return f"{stamp}{who.host_name}:{who.pid}:{who.pid} [{who.ordinal}] NCCL INFO {text}"


def _records(run: SimulatedRun, who: Identity, form: LogForm) -> Iterator[tuple[int, str]]:
    started = min((i.launches[who.rank] for i in run.collectives if who.rank in i.launches), default=0)
    for number, group in enumerate(run.groups):
        if who.rank in group.ranks and len(group.ranks) > 1:
            own = (
                f"comm {_pointer(who, number)} rank {group.ranks.index(who.rank)} nranks {len(group.ranks)} cudaDev"
                f" {who.ordinal} nvmlDev {who.device} busId {0x1000 * (who.device + 1):x} commId {_comm_id(group):#x}"
            )
            for what in ("START", "COMPLETE"):
                yield started - 5_000_000 + number, f"ncclCommInitRankConfig {own} - Init {what}"
    counts: dict[int, int] = {}
    mine = sorted((i for i in run.collectives if who.rank in i.launches), key=lambda i: i.launches[who.rank])
    for instance in mine:
        group = run.groups[instance.group]
        count = counts[instance.group] = counts.get(instance.group, -1) + 1
        for text in _calls(run, instance, group, who, count if form.counted else 0):
            yield instance.launches[who.rank], text


def _pointer(who: Identity, group: int) -> str:
    return f"0x7f{who.rank:04x}{group:04x}00"


def _comm_id(group: Group) -> int:
    """NCCL prints another hash of the same id in its log than in its ranges."""
    return (group.comm_hash * 0x9E3779B97F4A7C15 + 0xDEADBEEF) % 2**63


def _calls(run: SimulatedRun, instance: Instance, group: Group, who: Identity, count: int) -> Iterator[str]:
    pairs: list[tuple[str, int]]
    place = group.ranks.index(who.rank)
    if instance.op == "SendRecv":
        sends, receives = instance.directions[who.rank]
        pairs = [("Send", 1 - place)] * sends + [("Recv", 1 - place)] * receives
    elif instance.op == "AlltoAll" and run.scenario.environment.grouped_all_to_all:
        pairs = [(op, peer) for peer in range(len(group.ranks)) for op in ("Send", "Recv")]
    else:
        pairs = [(instance.op, 0)]
    odd = instance.size_bytes % 2
    elements, datatype = (instance.size_bytes, _INT8) if odd else (instance.size_bytes // 2, _BFLOAT16)
    for op, root in pairs:
        yield (
            f"{op}: opCount {count:x} sendbuff 0x7f0000{who.rank:04x}00 recvbuff 0x7f8000{who.rank:04x}00 "
            f"count {elements} datatype {datatype} op 0 root {root} comm {_pointer(who, instance.group)} "
            f"[nranks={len(group.ranks)}] stream 0x55{instance.group:04x}"
        )


def _training(run: SimulatedRun, who: Identity, form: LogForm) -> Iterator[str]:
    """A line of Megatron-LM at the end of each step, from 1 on, as the last rank prints it."""
    steps = run.steps[who.rank]
    for number, (begin, end) in enumerate(steps.tolist(), start=1):
        stamp = f" [{_clock(end, who, form):%Y-%m-%d %H:%M:%S.%f}]" if form.stamped else ""
        yield (
            f"{stamp} iteration {number:8d}/{len(steps):8d} | consumed samples: {64 * number:12d} | "
            f"elapsed time per iteration (ms): {(end - begin) / 1e6:.3f} | learning rate: 1.000000E-04 | "
            f"global batch size: {64:5d} | lm loss: {10.0 / number:.6E} | loss scale: 1.0 | grad norm: 1.000 |\n"
        )
