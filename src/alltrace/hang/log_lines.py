"""Lines of job logs that say how ranks ended, where they run, and what watchdogs, kernels and networks report."""

from __future__ import annotations

import re

from alltrace.hang.evidence import Behind, Death, Evidence, Watchdog, Xid
from alltrace.readers.flight_recorder.read import Entry

WORTH_A_LOOK = re.compile(
    rb"rror|xit|ignal|ank|NCCL|Xid|ask|Traceback|Watchdog|watchdog|illed|oom|ailure|hared|CANCELLED|"
    rb"COMPLETED|TIMEOUT|host|local_rank"
    rb"|data size|runcate|operation|process|^  File|WORLD_SIZE|orld"
)
_PREFIX = re.compile(
    r"^\s*(?:\[(?:rank|default|RANK)\s*(?P<torch>\d+)\]:?|\[1,(?P<mpi>\d+)\]<\w+>:?|(?P<slurm>\d+): )\s?"
)
_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV",
    15: "SIGTERM",
}  # fmt: skip
_ELASTIC_RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d+) \(local_rank: \d+\)")
_ELASTIC_HOST = re.compile(r"^\s*host\s*: (?P<host>\S+)")
_ELASTIC_EXIT = re.compile(r"^\s*exitcode\s*: (?P<code>-?\d+) \(pid: \d+\)")
_ELASTIC_FIRST = re.compile(r"^\s*Root Cause \(first observed failure\):")
_SRUN = re.compile(
    r"srun: error: (?P<host>[\w.-]+): tasks? (?P<ranks>[\d,\s-]+): (?P<how>Killed|Exited with exit code (?P<code>\d+)|"
    r"Segmentation fault|Bus error|Aborted|Terminated|Out Of Memory|Illegal instruction|Floating point"
    r" exception|[A-Z][\w ]+)"
)
_SRUN_SIGNAL = {
    "Killed": 9, "Segmentation fault": 11, "Bus error": 7, "Aborted": 6, "Terminated": 15, "Out Of Memory": 9,
    "Illegal instruction": 4, "Floating point exception": 8,
}  # fmt: skip
_NODE = re.compile(
    r"(?:Node failure on (?P<a>[\w.-]+)|node (?P<b>[\w.-]+) (?:failed|is not responding|not responding)|"
    r"ON (?P<c>[\w.-]+) CANCELLED AT .* DUE TO NODE FAILURE|Host (?P<d>[\w.-]+) (?:is down|unreachable))"
)
_STOPPED = re.compile(r"\b(?:JOB|STEP) \S+ ON \S+ CANCELLED AT|\b(?:Job)?State=(?:TIMEOUT|CANCELLED)\b")
_TIME_LIMIT = re.compile(r"DUE TO TIME LIMIT|State=TIMEOUT")
_MPIRUN = re.compile(
    r"(?:mpirun|mpiexec|prterun) noticed that process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) "
    r"exited on signal (?P<signal>\d+)"
)
_MPI_ABORT = re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+)")
_EXCEPTION = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Fault))(?:: (?P<text>.*))?$"
)
_PEERS = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|remote process exited|ncclRemoteError|Broken pipe"
    r"|(?:NCCL|[Gg]loo|collective|[Ss]tore|[Ss]ocket|[Ww]atchdog|barrier|wait).*(?:timed out|[Tt]imeout)"
    r"|NCCL communicator was aborted|DistBackendError|recvValue failed|DistNetworkError|DistStoreError|ChildFailedError"
    r"|SignalException"
    r"|Application timeout caused pair closure|Read error|failed to recv|Software caused connection abort|Network is"
    r" down"
)
# what a host says of its own end of a connection; of one that the other end closed it says that it was reset
_OWN_NETWORK = re.compile(r"Software caused connection abort|Network is down")
_WATCHDOG = re.compile(
    r"Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<sequence>\d+),"
    r" OpType=(?P<op>\w+), "
    r"NumelIn=(?P<elements>\d+), NumelOut=\d+, Timeout\(ms\)=\d+\)"
)
_WATCHDOG_GROUP = re.compile(r"PG (?:ID \d+ PG )?(?:GUID|ID) (?P<name>\w+)\((?P<description>[^)]*)\)")
_WATCHDOG_LAST = re.compile(
    r"Rank (?P<rank>\d+)\].*last enqueued work: (?P<issued>\d+), last completed(?: NCCL)? work: (?P<completed>-?\d+)"
)
_OPS = {
    "ALLREDUCE": "all_reduce", "_ALLGATHER_BASE": "_all_gather_base", "ALLGATHER": "all_gather", "_REDUCE_SCATTER_BASE":
    "_reduce_scatter_base", "REDUCE_SCATTER": "reduce_scatter", "BROADCAST": "broadcast", "ALLTOALL_BASE": "all_to_all",
    "ALLTOALL": "all_to_all", "BARRIER": "barrier", "REDUCE": "reduce", "SEND": "send", "RECV": "recv",
    "COALESCED": "coalesced",
}  # fmt: skip
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<device>[0-9a-fA-F:.]+)\): (?P<number>\d+)")
_DMESG_HOST = re.compile(r"^(?:\w{3}\s+\d+ [\d:]{8}|\d{4}-\d\d-\d\dT\S+) (?P<host>[A-Za-z][\w.-]*) kernel:")
_RAS_MOST = re.compile(r"^\s*(?P<count>\d+) ranks have launched up to operation (?P<operation>\d+)")
_RAS_ONE = re.compile(
    r"^\s*Rank (?P<rank>\d+) has launched up to operation (?P<operation>\d+)(?: -- .*on node (?P<host>\S+))?"
)
_RAS_RANK = re.compile(r"^\s*Rank (?P<rank>\d+) -- GPU \S+ managed by process \d+ on node (?P<host>\S+)")
_RAS_LOST = re.compile(r"^\s*(?:Missing communicator data from|The following ranks? (?:is|are) missing)")
_SIZES = re.compile(r"Received data size doesn't match expected size|MPI_ERR_TRUNCATE|Message truncated")
_NETWORK = re.compile(
    r"NCCL WARN .*(?:NET/|\bIB\b|RoCE|Got completion from peer|Call to (?:ibv_\w+|connect|recv|send)|timeout|No route"
    r" to host"
    r"|link (?:is )?down)"
)
_INIT = re.compile(
    r"^(?P<host>[\w.-]+):\d+:\d+ \[\d+\] NCCL INFO .*\brank (?P<rank>\d+) nranks (?P<ranks>\d+)\b.*Init"
    r" (?:START|COMPLETE)"
)
_GLOBAL = re.compile(r"globalrank (?P<rank>\d+)")
_WORLD = re.compile(r"\b(?:WORLD_SIZE|world_size|world size)\s*[=:]\s*(?P<ranks>\d+)")
_RANK_HOST = re.compile(
    r"\brank[ =:]+(?P<rank>\d+)\b.{0,40}?\b(?:host|node|hostname)[ =:]+(?P<host>[A-Za-z][\w.-]*)", re.IGNORECASE
)
_WELL = re.compile(
    r"\b(?:State|JobState)\s*[=:]\s*COMPLETED\b|\bCOMPLETED\s+0:0\b|exited with code 0\b|\bexit code:? 0\b"
)
_MOST_RANKS = 1 << 20


class LogLines:
    def __init__(self, evidence: Evidence, source: str, rank: int | None) -> None:
        self._evidence, self._source, self._rank = evidence, source, rank
        self._host = ""  # of the entry of the launcher's table that is being read
        self._elastic: int | None = None
        self._first = False
        self._traces: dict[int | None, bool] = {}  # whether a traceback is open, by the rank that its lines begin with
        self._ras: tuple[int, list[int]] | None = None
        self._ras_most: int | None = None
        self._ras_lost = False
        self.tells = False  # whether a line says anything

    def line(self, text: str) -> None:
        prefix = _PREFIX.match(text)
        rank = self._rank
        if prefix is not None:
            rank = int(prefix["torch"] or prefix["mpi"] or prefix["slurm"])
            rank = rank if rank < _MOST_RANKS else None
        bare = text[prefix.end() :] if prefix is not None else text
        self._exceptions(rank, bare)
        for look in (self._elastic_table, self._launchers, self._watchdogs, self._machines, self._ras_lines):
            if look(bare):
                self.tells = True
                return

    def end(self) -> None:
        if self._ras is not None and self._ras[1]:
            self._behind(tuple(self._ras[1]), self._ras[0])
        self._ras = None

    def _died(self, rank: int, how: str, **more: object) -> None:
        if rank < _MOST_RANKS:
            self._evidence.deaths[rank].append(Death(rank, how, self._source, **more))  # type: ignore[arg-type]

    def _exceptions(self, rank: int | None, text: str) -> None:
        if text.startswith("Traceback (most recent call last)"):
            self._traces[rank] = True
            return
        if not self._traces.get(rank) or text.startswith((" ", "\t")) or not text:
            return
        raised = _EXCEPTION.match(text)
        if raised is not None:
            self._traces[rank] = False
            if rank is not None and raised["name"] != "KeyboardInterrupt":
                if rank < _MOST_RANKS and (own := _OWN_NETWORK.search(text)) is not None:
                    self._evidence.cut.setdefault(rank, own[0])
                lost = _PEERS.search(text) is not None
                self._died(rank, text[:200], consequence=lost, number=1)
                self.tells = True

    def _elastic_table(self, text: str) -> bool:
        if _ELASTIC_FIRST.match(text):
            self._first = True
        elif (host := _ELASTIC_HOST.match(text)) is not None:
            self._host = host["host"]
        elif (rank := _ELASTIC_RANK.match(text)) is not None:
            self._elastic = int(rank["rank"])
            if self._host and self._elastic < _MOST_RANKS:
                self._evidence.hosts.setdefault(self._elastic, self._host)
        elif self._elastic is not None and (ended := _ELASTIC_EXIT.match(text)) is not None:
            self._ended(self._elastic, int(ended["code"]))
            self._elastic = None
        else:
            return False
        return True

    def _ended(self, rank: int, code: int) -> None:
        """A rank with this exit code, negative for a signal."""
        if not code:
            return
        signal = -code if code < 0 else code - 128 if 128 < code < 160 else 0
        # a watchdog aborts, and a launcher terminates the ranks that are left; a rank that gave up ends with a code of
        # its own
        how = f"signal {signal} ({_SIGNALS.get(signal, 'unknown')})" if signal else f"exit code {code}"
        number = -signal if signal else code
        self._died(rank, how, consequence=signal in (1, 2, 6, 15), number=number, weak=not signal, first=self._first)

    def _launchers(self, text: str) -> bool:
        if (task := _SRUN.search(text)) is not None:
            code = int(task["code"]) if task["code"] else -_SRUN_SIGNAL.get(task["how"].strip(), 0)
            for rank in _ranks(task["ranks"]):
                self._evidence.hosts.setdefault(rank, task["host"])
                if code:
                    self._ended(rank, code)
        elif (process := _MPIRUN.search(text)) is not None:
            self._evidence.hosts.setdefault(int(process["rank"]), process["host"])
            self._ended(int(process["rank"]), -int(process["signal"]))
        elif (aborted := _MPI_ABORT.search(text)) is not None:
            self._died(int(aborted["rank"]), "MPI_ABORT", number=1)
        elif (node := _NODE.search(text)) is not None:
            self._evidence.dead_hosts.setdefault(next(filter(None, node.groups())), self._source)
        elif _WELL.search(text):
            self._evidence.ended_well = self._source
        elif _STOPPED.search(text):
            self._evidence.stopped = "at its time limit" if _TIME_LIMIT.search(text) else "because it was cancelled"
        else:
            return False
        return True

    def _watchdogs(self, text: str) -> bool:
        if "last enqueued work" in text and (last := _WATCHDOG_LAST.search(text)) is not None:
            name, description = _group_in(text)
            entry = self._entry(int(last["rank"]), name, description, int(last["completed"]) + 1, "collective")
            self._add_watchdog(Watchdog(entry.rank, entry, (int(last["issued"]), int(last["completed"]))))
        elif "Watchdog caught" in text and (caught := _WATCHDOG.search(text)) is not None:
            name, description = _group_in(text)
            op = _OPS.get(caught["op"], caught["op"].lower())
            entry = self._entry(int(caught["rank"]), name, description, int(caught["sequence"]), op)
            entry.sizes = entry.output_sizes = f"[[{caught['elements']}]]"
            self._add_watchdog(Watchdog(entry.rank, entry, None))
        else:
            return False
        return True

    def _add_watchdog(self, watchdog: Watchdog) -> None:
        if watchdog.rank < _MOST_RANKS:
            self._evidence.watchdogs.append(watchdog)

    def _entry(self, rank: int, name: str, description: str, sequence: int, op: str) -> Entry:
        return Entry(rank, name, sequence, op, "scheduled", description=description)

    def _machines(self, text: str) -> bool:
        if (xid := _XID.search(text)) is not None:
            host = _DMESG_HOST.match(text)
            name = host["host"] if host is not None else _host_of_file(self._source)
            self._evidence.xids.append(Xid(int(xid["number"]), name, xid["device"], self._source))
        elif _SIZES.search(text):
            self._evidence.sizes_differ = self._source
        elif (init := _INIT.match(text)) is not None:
            ranks, own = int(init["ranks"]), _GLOBAL.search(text)
            rank = int(own["rank"]) if own is not None else int(init["rank"])
            if ranks >= self._evidence.world and rank < _MOST_RANKS and ranks <= _MOST_RANKS:
                self._evidence.world = ranks
                self._evidence.hosts[rank] = init["host"]
        elif _NETWORK.search(text):
            self._evidence.network[self._source] = self._evidence.network.get(self._source, 0) + 1
        elif (world := _WORLD.search(text)) is not None and int(world["ranks"]) <= _MOST_RANKS:
            self._evidence.world = max(self._evidence.world, int(world["ranks"]))
        elif (match := _RANK_HOST.search(text)) is not None and int(match["rank"]) < _MOST_RANKS:
            self._evidence.hosts.setdefault(int(match["rank"]), match["host"])
        else:
            return False
        return True

    def _ras_lines(self, text: str) -> bool:
        if (most := _RAS_MOST.match(text)) is not None:
            self.end()
            operation = int(most["operation"])
            if self._ras_most is None:
                self._ras_most = operation
            self._ras = (operation, [])
        elif (one := _RAS_ONE.match(text)) is not None:
            if one["host"]:
                self._evidence.hosts.setdefault(int(one["rank"]), one["host"])
            self._behind((int(one["rank"]),), int(one["operation"]))
        elif _RAS_LOST.match(text):
            self._ras_lost = True
        elif (rank := _RAS_RANK.match(text)) is not None:
            self._evidence.hosts.setdefault(int(rank["rank"]), rank["host"])
            if self._ras_lost:
                self._evidence.behind.append(Behind((int(rank["rank"]),), None, None, self._source))
            elif self._ras is not None:
                self._ras[1].append(int(rank["rank"]))
        else:
            if not text.strip():
                self.end()
                self._ras_lost, self._ras_most = False, None
            return False
        return True

    def _behind(self, ranks: tuple[int, ...], operation: int) -> None:
        if self._ras_most is not None and operation < self._ras_most:
            self._evidence.behind.append(Behind(ranks, operation, self._ras_most, self._source))


def _group_in(text: str) -> tuple[str, str]:
    group = _WATCHDOG_GROUP.search(text)
    return (group["name"], group["description"]) if group is not None else ("0", "default_pg")


def _host_of_file(source: str) -> str:
    """The host that the name of a kernel log has: `dmesg.node3.txt`, `node3-dmesg.log`."""
    stem = re.split(r"[/\\]", source)[-1]
    words = [
        w
        for w in re.split(r"[._]", re.sub(r"\.(?:txt|log|gz|out)$", "", stem))
        if w not in ("dmesg", "kern", "kernel", "messages", "log")
    ]
    return re.sub(r"^dmesg-|-dmesg$", "", words[0]) if words else ""


def _ranks(text: str) -> list[int]:
    ranks: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()) and int(last or first) < _MOST_RANKS:
            ranks += range(int(first), int(last or first) + 1)
    return ranks
