"""Files of NCCL's example profiler plugin as its writer has them (plugins/profiler/example/print_event.cc in NVIDIA/nccl)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

HASH = 0xABC123


class Writer:
    """The lines of one communicator on one rank; times in microseconds."""

    def __init__(self, rank: int, size: int, *, quoted: bool = True) -> None:
        self.rank, self.size = rank, size
        self.lines: list[str] = []
        self._ids: dict[str, int] = {}
        self._quote = '"' if quoted else ""

    def event(self, name: str, category: str, phase: str, ts: float, args: str | None = None, *, count: bool = True) -> None:
        """An event; an end counts on in its category."""
        number = self._ids.get(category, 0)
        rest = "" if args is None else f', "args": {{{args}}}'
        self.lines.append(
            f'{{"name": "{name}", "cat": "{category}", "ph": "{phase}", "id": {number}, '
            f'"pid": {1000 + self.rank}, "tid": 1, "ts": {ts:f}{rest}}},'
        )
        if phase == "e" and count:
            self._ids[category] = number + 1

    def step(self, step: int, phases: list[tuple[str, float, float]], network: tuple[int, float, float] | None = None) -> None:
        """A step through the network: its phases with start and end, and a transfer of InfiniBand: bytes, start, end."""
        *before, last = phases
        if phases[0][0] == "SendGpuWait":
            for name, start, end in before:
                self.event(name, "NET", "b", start, f'"Step": {step}')
                self.event(name, "NET", "e", end, count=False)
            self.event(last[0], "NET", "b", last[1], f'"Step": {step}')
            self._transfer(network)
            self.event(last[0], "NET", "e", last[2])
            return
        first, *others = phases
        self.event(first[0], "NET", "b", first[1], f'"Step": {step}')
        self._transfer(network)
        self.event(first[0], "NET", "e", first[2], count=False)
        for name, start, end in others:
            self.event(name, "NET", "b", start, f'"Step": {step}')
            self.event(name, "NET", "e", end, count=name == last[0])

    def _transfer(self, network: tuple[int, float, float] | None) -> None:
        if network is not None:
            size, start, end = network
            self.event("Qp", "NET_IB", "b", start, f'"device": 1, "qp_num": 7, "opcode": 1, "wr_id": 3, "size": {size}')
            self.event("Qp", "NET_IB", "e", end)

    def proxy(self, send: bool, channel: int, peer: int, steps: int, size: int, start: float, body: Any) -> None:
        """A proxy operation; `body` writes its steps and gives its end."""
        word = "Send" if send else "Recv"
        args = f'"Channel": {channel}, "Peer": {peer}, "Steps": {steps}, "ChunkSize": 524288, "transSize": {size}'
        self.event(f"Schedule{word}", "PROXY", "b", start - 1, args)
        self.event(f"Schedule{word}", "PROXY", "e", start, count=False)
        self.event(f"Progress{word}", "PROXY", "b", start, args)
        self.event(f"Progress{word}", "PROXY", "e", body())

    def all_reduce(self, sequence: int, at: float, send_us: float, gpu_us: float) -> float:
        """An all-reduce around the ring: each of 4 steps takes `send_us` on the network, and `gpu_us` until the GPU has it."""
        steps, step_bytes = 4, 65536
        q = self._quote
        self.event("Group API", "GROUP_API", "b", at, f'"groupApiId": {sequence}, "groupDepth": 1')
        self.event("KernelLaunch", "KERNEL_LAUNCH", "b", 0, f'"groupId": {sequence}, "Stream": {q}0x5020{q}')
        self.event("KernelLaunch", "KERNEL_LAUNCH", "e", at + 1)
        api = f'"count": 262144, "datatype": {q}ncclFloat32{q}, "root": 0, "GraphCaptured":0, "Stream": {q}0x5020{q}'
        self.event("AllReduce", "COLL_API", "b", 0, api)
        own = (
            f'"SeqNum": {sequence}, "CommHash": {HASH}, "Rank": {self.rank}, "Count": 262144, "Datatype": "ncclFloat32", '
            '"Algorithm": "RING", "Protocol": "SIMPLE", "nChannels": 1'
        )
        self.event("AllReduce", "COLL", "b", at + 1, own)
        clocks = '"Channel": 0, "StartGpuClk": 1756135989724672000, "StopGpuClk": 1756135989725172000'
        self.event("KernelCh", "GPU", "b", at + 2, clocks)
        ends = [at + 10]

        def received() -> float:
            for number in range(steps):
                t = at + 10 + 100 * number
                self.step(
                    number,
                    [("RecvWait", t, t + 20), ("RecvFlushWait", t + 20, t + 22), ("RecvGpuWait", t + 22, t + 22 + gpu_us)],
                )
                ends.append(t + 22 + gpu_us)
            return ends[-1] + 1

        def sent() -> float:
            t = at + 10
            for number in range(steps):
                net = t + 15
                self.step(
                    number,
                    [("SendGpuWait", t, t + 10), ("SendPeerWait", t + 10, net), ("SendWait", net, net + send_us)],
                    (step_bytes, net, net + send_us),
                )
                t = net + send_us
                ends.append(t)
            return max(ends) + 1

        size = steps * step_bytes
        self.proxy(False, 0, (self.rank - 1) % self.size, steps, size, at + 5, received)
        self.proxy(True, 0, (self.rank + 1) % self.size, steps, size, at + 6, sent)
        end = max(ends) + 3
        self.event("KernelCh", "GPU", "e", end, count=False)
        self.event("AllReduce", "COLL", "e", end)
        self.event("AllReduce", "COLL_API", "e", end)
        self.event("Group API", "GROUP_API", "e", end)
        return end + 10

    def by_copy_engines(self, at: float, ready_us: int, copies_us: int) -> None:
        """An all-gather by copy engines, timed by events of the GPU."""
        self.event("Group API", "GROUP_API", "b", at, '"groupApiId": 9, "groupDepth": 0')
        self.event(
            "AllGather", "COLL_API", "b", 0, '"count": 4, "datatype": "ncclInt8", "root": 0, "GraphCaptured": 0, "Stream": "(nil)"'
        )
        cpu = '"start_ts_cpu": 5.0, "stop_ts_cpu": 5.1, "duration_cpu_us": 0.1'
        own = f'"eventId": 0, "count": 4, "datatype": "ncclInt8", "strategy": "MC", {cpu}, "duration_gpu_us": 99'
        self.event("AllGather", "CE_COLL", "b", at + 1, own)
        for kind, took in (("Ready", ready_us), ("Complete", 3)):
            args = f'"eventId": 0, "type": "{kind}", "strategy": "MC", "nRanks": {self.size}, {cpu}, "duration_gpu_us": {took}'
            self.event("CeSync", "CE_SYNC", "b", at + 2, args)
            self.event("CeSync", "CE_SYNC", "e", at + 2.1)
            if kind == "Ready":
                args = f'"eventId": 0, "numOps": 2, "totalBytes": 1048576, {cpu}, "duration_gpu_us": {copies_us}'
                self.event("CeBatch", "CE_BATCH", "b", at + 3, args)
                self.event("CeBatch", "CE_BATCH", "e", at + 3.1)
        self.event("AllGather", "CE_COLL", "e", at + 4)
        self.event("AllGather", "COLL_API", "e", at + 5)
        self.event("Group API", "GROUP_API", "e", at + 5)

    def text(self) -> str:
        """The file."""
        return "\n".join(["[", *self.lines, "{}]", ""])

    def write(self, folder: Path) -> str:
        """The path of the file, under the plugin's name."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"trace_{HASH}_{self.rank}.json"
        path.write_text(self.text())
        return str(path)


def ring(size: int = 4, operations: int = 5, *, slow_link: int | None = None, late_gpu: int | None = None) -> list[Writer]:
    """All-reduces around a ring, where the link out of a rank takes 8 times as long, or the GPU of one takes data 400 us late."""
    writers = []
    for rank in range(size):
        writer = Writer(rank, size)
        at = 100.0 + 1000 * rank
        for number in range(operations):
            at = writer.all_reduce(number, at, 400 if rank == slow_link else 50, 420 if rank == late_gpu else 20)
        writers.append(writer)
    return writers
