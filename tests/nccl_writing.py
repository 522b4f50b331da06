"""Writes NCCL logs with known truth: each version's lines, each launcher's prefix, interleaved and cut, in any mix."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SIZES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
VERSIONS = ("2.8", "2.14", "2.18", "2.21", "2.22", "2.24", "2.27", "2.28", "2.30", "rccl-old", "rccl-new")
PREFIXES = {
    "none": "",
    "srun": "{rank}: ",
    "srun wide": "{rank:>4}: ",
    "mpirun": "[1,{rank}]<stdout>:",
    "mpirun spaced": "[1,{rank}]<stdout>: ",
    "hydra": "[{rank}] ",
    "pals": "x3200c0s13b1n0 {rank}: ",
    "torchrun": "[default{rank}]:",
    "torchrun rank": "[rank{rank}]:",
    "ray": "(RayTrainWorker pid={pid}, ip=10.72.7.6) ",
    "kubectl": "[pod/train-worker-{rank}/pytorch] ",
    "cri": "2026-05-05T06:16:4{second}.123456789Z stdout F ",
    "compose": "worker-{rank}  | ",
    "ansi": "\x1b[36m{rank}: \x1b[0m",
    "strange": "<<worker {rank}>> ",
}
STAMPS = ("", "[2026-05-05 06:16:4{second}] ", "[2026-05-05 06:16:4{second}.25] ")
OPS = {
    "AllReduce": (7, 9, 6),
    "AllGather": (9, 7, 10),
    "ReduceScatter": (9, 7),
    "Broadcast": (4, 7),
    "Reduce": (7, 8),
    "Send": (7, 9),
    "Recv": (7, 9),
}


@dataclass
class Call:
    """What a written record says."""

    rank: int
    op: str
    op_count: int
    count: int
    datatype: int
    root: int
    nranks: int
    host: str
    pid: int

    @property
    def bytes(self):
        return self.count * SIZES[self.datatype]


@dataclass
class Written:
    """A log and its truth: the calls that are whole in it, and how many records are cut."""

    text: bytes
    calls: list[Call] = field(default_factory=list)
    cut: int = 0


def init_lines(version, rank, nranks, comm, dev):
    own = f"comm {comm:#x} rank {rank} nranks {nranks} cudaDev {dev}"
    bus = f"busId {0x1000 * (dev + 1):x}"
    ident = "commId 0x8f2c5c1a9d0b7e11"
    if version in ("2.8", "2.14", "rccl-old"):
        return [f"{own} {bus} - Init COMPLETE"]
    own += f" nvmlDev {dev} {bus} {ident}"
    func = {"2.18": "", "2.21": "", "2.22": "ncclCommInitRank "}.get(version, "ncclCommInitRankConfig ")
    head = f"[Rank {rank}] " if version == "2.30" else ""
    return [f"{head}{func}{own} - Init START", f"{head}{func}{own} - Init COMPLETE"]


def coll_line(version, call, comm, stream):
    pointer = f"0x7f{call.pid:06x}00"
    send = "(nil)" if call.op in ("Send", "Recv") and version != "2.8" else pointer
    acc = " acc (nil)" if version == "rccl-new" else ""
    text = (
        f"{call.op}: opCount {call.op_count:x} sendbuff {send} recvbuff {pointer}{acc} count {call.count} "
        f"datatype {call.datatype} op 0 root {call.root} comm {comm:#x} [nranks={call.nranks}] stream {stream:#x}"
    )
    return text + (f" task 0 globalrank {call.rank}" if version == "rccl-new" else "")


def write_log(
    version="2.27", prefix="none", *, ranks=4, calls=40, interleave=False, cut=False, stamp="", seed=0, hosts=2
):
    """A log of `ranks` ranks, each with an INIT and `calls` calls.

    Args:
        version: One of `VERSIONS`.
        prefix: A key of `PREFIXES`.
        interleave: Whether records of different ranks interrupt each other within a line.
        cut: Whether some records lack their end.
        stamp: One of `STAMPS`.
        seed: Which of the random logs.
    """
    rng = random.Random(seed)
    names = [f"gpu-node-{n}" for n in range(hosts)]
    comms = [0x55D500000000 + 0x10000 * rng.randrange(1, 60000) for _ in range(ranks)]
    opened = [(names[r % hosts], 1000 + 17 * r, 2000 + 17 * r, r // hosts) for r in range(ranks)]

    def line(rank, message):
        host, pid, tid, dev = opened[rank]
        fill = {"rank": rank, "pid": pid, "second": rng.randrange(10)}
        us = " 1558545003174220" if version == "rccl-old" else ""
        return PREFIXES[prefix].format(**fill), stamp.format(
            **fill
        ) + f"{host}:{pid}:{tid} [{dev}]{us} NCCL INFO {message}"

    out, written = [], Written(b"")
    for rank in range(ranks):
        for text in init_lines(version, rank, ranks, comms[rank], opened[rank][3]):
            out += ["".join(line(rank, text)) + "\n"]
    records = []
    for k in range(calls):
        op = rng.choice([o for o in OPS if o not in ("Send", "Recv")])
        count, datatype = rng.choice((0, 1, 15, 2359808, 37756928, (1 << 40) + 1)), rng.choice(OPS[op])
        for rank in rng.sample(range(ranks), ranks):
            its = op
            if op == "Reduce" and rng.random() < 0.5:
                its = rng.choice(("Send", "Recv"))
            host, pid, _tid, _dev = opened[rank]
            call = Call(
                rank, its, k, count, datatype, (rank + 1) % ranks if its in ("Send", "Recv") else 0, ranks, host, pid
            )
            records.append((rank, call, line(rank, coll_line(version, call, comms[rank], 0x9CD20000 + pid))))
    position = 0
    while position < len(records):
        rank, call, (head, text) = records[position]
        draw = rng.random()
        if cut and draw < 0.15:
            at = rng.randrange(text.index("opCount"), text.index("comm 0x") + 6)
            out.append(head + text[:at] + "\n")
            written.cut += 1
            position += 1
        elif interleave and draw < 0.3 and position + 1 < len(records) and records[position + 1][0] != rank:
            # the other record arrives in the middle of this one, whose rest comes on a line of its own
            _other, second, (_head, text2) = records[position + 1]
            at = rng.randrange(text.index("opCount"), len(text) - 1)
            out.append(head + text[:at] + text2 + "\n" + text[at:] + "\n")
            written.calls += [call, second]
            position += 2
        else:
            out.append(head + text + "\n")
            written.calls.append(call)
            position += 1
    written.text = "".join(out).encode()
    return written
