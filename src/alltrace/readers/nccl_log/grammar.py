"""The shapes of the messages in NCCL's log.

From NCCL's sources, tags v2.8.4 to v2.30.7 (src/debug.cc, src/enqueue.cc, src/init.cc, src/graph, src/transport), and
RCCL's.
"""

import re

# A host begins where text that may be one begins, or directly after a record that was cut within its level. Tried at
# every letter, a long line without spaces would take the square of its length.
HEADER = re.compile(
    rb"(?:(?<![^\s:\[\]<>()|,;\"'])|(?<= NCCL (?:INFO|WARN|CALL))|(?<= NCCL (?:TRACE|ABORT))|(?<= NCCL VERSION))"
    rb"(?P<host>[^\s:\[\]<>()|,;\"']+):(?P<pid>[0-9]{1,10}):(?P<tid>[0-9]{1,10})"
    rb"(?: \[(?P<dev>-?[0-9]{1,6})\])?"
    rb"(?: (?P<us>[0-9]{15,17}))?"
    rb"(?: (?P<ms>[0-9]+\.[0-9]+) \S{1,80}:[0-9]+)?"
    rb"(?: \S{1,200}:[0-9]+(?: \([^()\s]{1,200}\))?)?"
    rb" NCCL (?P<level>INFO|WARN|CALL|TRACE|ABORT|VERSION) ?"
)
VERSION = re.compile(rb"(?P<library>NCCL|RCCL) version ?:? ?(?P<version>[0-9]+\.[0-9]+(?:\.[0-9]+)?[^\s]*)")
COLL = re.compile(rb"(?P<op>[A-Za-z]{3,16}): opCount (?P<fields>.*)", re.DOTALL)
PAIR = re.compile(
    rb"\s*(?:\[nranks=(?P<nranks>[0-9]{1,9})\]|(?P<key>[A-Za-z_]{1,16})[ =](?P<value>\(nil\)|\S+))(?P<after>\s|$)"
)
CALL = re.compile(
    rb"nccl(?P<op>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|Send|Recv|AlltoAll|Gather|Scatter)\("
    rb"(?P<args>[^()]*(?:\(nil\)[^()]*)*)\)"
)
INIT = re.compile(
    rb"(?:\[Rank [0-9]{1,9}\] )?"
    rb"(?:(?P<func>nccl\w{1,60}) )?comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>[0-9]{1,9}) nranks (?P<nranks>[0-9]{1,9})"
    rb"(?: cudaDev (?P<cuda>[0-9]{1,9}))?(?: nvmlDev (?P<nvml>[0-9]{1,9}))?(?: busId (?P<bus>[0-9a-f]+))?"
    rb"(?: commId (?P<id>0x[0-9a-f]+))?"
    rb"(?: parent (?P<parent>0x[0-9a-f]+|\(nil\)))?(?: (?:splitCount|childCount) [0-9]+)?"
    rb"(?: color (?P<color>-?[0-9]+))?(?: key (?P<key>-?[0-9]+))?"
    rb"(?: commId (?P<id2>0x[0-9a-f]+))?(?: localSize [0-9]+ used [0-9]+ bytes)?"
    rb" ?- (?P<what>Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE|Finalize COMPLETE|Revoke START|Revoke"
    rb" COMPLETE)"
)
PLACEMENT = re.compile(
    rb"comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>[0-9]{1,9}) nRanks (?P<nranks>[0-9]{1,9}) nNodes (?P<nodes>[0-9]{1,9})"
    rb" localRanks (?P<local_ranks>[0-9]{1,9})"
    rb" localRank (?P<local_rank>[0-9]{1,9})"
)
TIMINGS = re.compile(
    rb"Init timings(?: - (?P<func>\w+))?: rank (?P<rank>[0-9]{1,9}) nranks (?P<nranks>[0-9]{1,9}) total"
    rb" (?P<total>[0-9.]+)"
)
EDGE = re.compile(
    rb"(?P<kind>Channel|CollNet) (?P<channel>[0-9]{1,4})(?:/(?P<conn>[0-9]+))? ?: "
    rb"(?P<from>[0-9]{1,9})(?:\[(?P<from_dev>[0-9a-f]+)\])?"
    rb"(?: -> (?P<to>[0-9]{1,9})(?:\[(?P<to_dev>[0-9a-f]+)\])?)? (?:\[(?P<direction>send|receive)\] )?via"
    rb" (?P<via>\S(?:.*\S)?)\s*$"
)
RING_LIST = re.compile(
    rb"Channel (?P<channel>[0-9]{1,9})/(?P<channels>[0-9]{1,9}) ?:(?P<ranks>(?:\s+[0-9]{1,9})+)(?P<more>\s*\.\.\.)?\s*$"
)
TREES = re.compile(rb"Trees(?P<trees>(?: \[[0-9]{1,9}\] \S+)+)")
TREE = re.compile(
    rb"\[(?P<channel>[0-9]{1,9})\] (?P<down>-?[0-9]{1,9}(?:/-?[0-9]{1,9})*)->(?P<me>-?[0-9]{1,9})->(?P<up>-?[0-9]{1,9})"
)
RING = re.compile(
    rb"Ring (?P<channel>[0-9]{1,9}) : (?P<prev>-?[0-9]{1,9}) -> (?P<me>-?[0-9]{1,9}) -> (?P<next>-?[0-9]{1,9})"
)
GRAPH_TREE = re.compile(
    rb"Tree (?P<channel>[0-9]{1,9}) : (?P<up>-?[0-9]{1,9}) -> (?P<me>-?[0-9]{1,9}) ->"
    rb" (?P<down>-?[0-9]{1,9}(?:/-?[0-9]{1,9})*)"
)
PATTERN = re.compile(
    rb"Pattern (?P<pattern>[0-9]{1,9}), crossNic (?P<cross>[0-9]{1,9}), nChannels (?P<channels>[0-9]{1,9}), "
    rb"(?:bw|speed) (?P<bw>[0-9./]+), type (?P<type>[^,]+)"
)
CHANNELS = re.compile(rb"(?P<coll>[0-9]{1,6}) coll channels, (?P<rest>.*channels.*)")
TUNING_CHOICE = re.compile(
    rb"(?:(?P<op>[A-Za-z]{3,16})(?: \[(?P<variant>[A-Za-z ]+)\])?: )?(?P<bytes>[0-9]{1,18}) Bytes -> "
    rb"(?:Algo (?P<algo>\w+) proto (?P<proto>\w+)(?: time (?P<time>[0-9.]+))?"
    rb"(?: channel\{Lo\.\.Hi\}=\{(?P<lo>[0-9]{1,9})\.\.(?P<hi>[0-9]{1,9})\})?"
    rb"|(?:Kernel )?(?P<kernel>\S+)(?: nchannels (?P<channels>[0-9]{1,9}))?)"
)
NET = re.compile(rb"(?:Using network .+|NET/[^:]{1,60}:? .*)")
AFFINITY = re.compile(
    rb"(?:Setting affinity for GPU [0-9]{1,9} to (?P<set>[0-9a-f][0-9a-f,-]*)"
    rb"|Affinity for GPU [0-9]{1,9} is .*\(GPU affinity = (?P<near>[0-9a-f][0-9a-f,-]*) )"
)
"""CPUs near a GPU: a mask in groups of eight hexadecimal digits, or ranges (since 2.27). `set`: a process may use
it."""
NVLS = re.compile(rb"(?:NVLS |Connected NVLS|CollNet/NVLS)")
CONNECTED = re.compile(rb"Connected all (?:rings|trees)")
ENV = re.compile(rb"(?P<name>N?CCL_[A-Z0-9_]{1,100}|RCCL_[A-Z0-9_]{1,100}) set by environment to (?P<value>.*)")
ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")

STEP = re.compile(
    rb"\biteration:?\s+(?P<iteration>[0-9]{1,12})\s*/\s*(?:[0-9]|infinity)"
    rb"|\bstep:\s*(?P<step>[0-9]{1,12})\b.{0,400}\bloss"
    rb"|\bglobal[_ ]step\s*[:=]\s*(?P<global>[0-9]{1,12})"
    rb"|\bstep=(?P<deepspeed>[0-9]{1,12}), skipped"
)
"""A step's line in a training log; it is printed at the step's end."""

STAMP = (
    rb"[\[(]?[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[T _][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
    rb"(?:Z|[+-][0-9]{2}:?[0-9]{2})?[\])]?:?"
)
ZONED = re.compile(
    rb"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})|(?<![0-9.])[0-9]{10}(?:[. \]]|$)"
)
"""A time with a zone, or one that counts seconds from 1970."""
ONLY_STAMP = re.compile(STAMP + rb"\s*")
PREFIX_UNIT = re.compile(
    rb"\[(?P<job>[0-9]+),(?P<mpi>[0-9]{1,9})\](?:<std(?:out|err|diag)>)?:?"
    rb"|\[(?:rank|default|trainer|worker|node)?(?P<tag>[0-9]{1,7})\]:?"
    rb"|" + STAMP + rb"|[\[(]?[0-9]{10}(?:\.[0-9]+)?[\])]?:?(?= )"
    rb"|[\[(]?[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?[\])]?:?"
    rb"|[\[(]?(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:"
    rb" [0-9]{4})?[\])]?:?"
    rb"|[\[(]?[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?[\])]?:?"
    rb"|(?P<srun>[0-9]{1,7}):"
    rb"|std(?:out|err) [FP](?= )"
    rb"|\([^()]{0,120}\bpid=[0-9]+(?:, ip=[^()\s]+)?\)"
    rb"|\[(?:pod/)?[A-Za-z0-9][A-Za-z0-9./_-]{1,250}\]"
    rb"|[A-Za-z0-9_.-]{1,120} (?P<pals>[0-9]{1,7}):(?= )"
    rb"|[A-Za-z0-9_.-]{1,120} +\|"
    rb"|[A-Za-z_][A-Za-z0-9_.-]{0,120}/[0-9]{1,7}(?= )"
    rb"|[A-Za-z][A-Za-z0-9_.-]{0,120}:(?= )"
    rb"|[ \t]+"
)
"""One thing that launchers and log collectors put before a line."""


def prefix_rank(lead: bytes) -> tuple[bool, int | None]:
    """Whether `lead` consists of `PREFIX_UNIT`s, and the rank in the last of them that has one."""
    at, rank = 0, None
    while at < len(lead):
        unit = PREFIX_UNIT.match(lead, at)
        if unit is None:
            return False, None
        number = unit["mpi"] or unit["srun"] or unit["pals"] or unit["tag"]
        rank = rank if number is None else int(number)
        at = unit.end()
    return True, rank
