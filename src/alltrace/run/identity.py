"""Who is rank 7? From the evidence in the reports to the ranks of a run: a pure function, tested without a file.

Evidence, best first: what the user states (`alltrace.run.stated_ranks`); MPI_RANKS as the profiler recorded it; the
rank that the report states of itself (`distributedInfo` of the PyTorch profiler); the launcher's variables in the
report (torchrun before Open MPI before Hydra, PALS and PMIx before JSM and Flux before Slurm, because `SLURM_PROCID` is
0 for all under `sbatch` + `mpirun`); the file's name (`rank7`, `7-of-16`, ranks by kind of parallelism such as
`TP-1-DP-0`, or a number at its end); else a stable order. A source that would give one number to two ranks proves
nothing and is passed over. The order of the given reports does not matter: they are processed in the natural order of
their paths.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import PurePath
from typing import NamedTuple

from alltrace.readers.base import WORLD_SIZE, Report, ReportProcess
from alltrace.trace.side_file_words import ROLE

BY_OPTION, BY_FILE = "--rank-from", "ranks.csv"
STATED = (BY_OPTION, BY_FILE)  # how a number was found that a user stated

_RANK_VARIABLES = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK", "SLURM_PROCID",
)  # fmt: skip
_LOCAL_RANK_VARIABLES = (
    "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID",
    "MV2_COMM_WORLD_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_RANK", "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID",
)  # fmt: skip
_FILE_RANK = re.compile(r"(?<!^[tpdec]p[-_])(?<![^a-z][tpdec]p[-_])rank[-_.]?(\d+)", re.IGNORECASE)
_OF_ALL = re.compile(r"(?<!\d)(?P<rank>\d{1,7})[-_]?of[-_]?(?P<ranks>\d{1,7})(?!\d)", re.IGNORECASE)
_LAST_NUMBER = r"^(?P<name>.*[^\d])?(?P<number>\d{1,7})$"
_NSYS_NAME = r"(?i)(?:.*[-_.])?report"
"""What nsys calls a report before its number, which counts the runs of the program."""
_HOST_IN_NAME = r"(?i)^(?P<host>[A-Za-z0-9.-]*[A-Za-z][A-Za-z0-9.-]*?)[-_.](?:rank|gpu)[-_.]?\d+"
_CAPTURE_SUFFIX = re.compile(
    r"\.(\d+)$|-(?:EXTEND|DECODE)(?:\.trace)?$|[-_.](?:iter|iteration|step|cycle|window)[-_.]?\d+$", re.IGNORECASE
)
"""What distinguishes reports of one process: nsys' number of a range, PyTorch's time, SGLang's stage, a step."""
_STEP_FOLDER = re.compile(r"(?:iter|iteration|step|cycle|window)[-_.]?\d+", re.IGNORECASE)
"""A folder of one window's reports, as in iteration_10/rank0_trace.json (TorchTitan, torchtitan/tools/profiling.py)."""
_RESTART = re.compile(r"(-restart\d+)+(?=_)")
"""The wrapper's suffix to the name of a job with a restarted process: all processes of one name are one rank."""
_PARALLEL = re.compile(
    r"(?<![A-Za-z])(?P<axis>tp|dp|pp|ep|cp)[-_=]?(?:rank)?[-_=]?(?P<rank>\d{1,6})(?!\d)", re.IGNORECASE
)
"""A rank by kind of parallelism in a file's name: PROFILE-TP-1-DP-0-PP-0-EP-1 (SGLang,
python/sglang/srt/utils/profile_utils.py), dp0_pp0_tp1_dcp0_ep1 (vLLM, vllm/distributed/utils.py), TP00-PP01."""
_AXES = (("pp", "tp"), ("dp", "pp", "tp"), ("dp", "pp", "cp", "tp"), ("dp", "pp", "cp", "tp", "ep"))
_SUFFIXES = (
    ".pickle",
    ".pkl",
    *(f"{trace}.json{packed}" for trace in (".pt.trace", "") for packed in (".gz", ".zst", "")),
    ".sqlite",
    ".sqlite3",
    ".db",
    ".nsys-rep",
    ".qdrep",
    ".qdstrm",
    "_pqtdir",
    ".prv",
    ".prv.gz",
)
_MISSING_LISTED = 20
_FEWEST_NUMBERED = 2
_NUMBERS_A_REPORT = 16
_LONGEST = 20
_DIGITS = 1000
_RANKS_BELOW = 1 << 20
"""A larger number is a date or damage, not a rank; missing ranks are counted up to the largest."""


class Source(NamedTuple):
    """The part of a report that belongs to a rank: the report's row, and processes (rows of its `processes`)."""

    report: int
    processes: tuple[int, ...]


class RankPlan(NamedTuple):
    """One rank to import."""

    rank: int
    local_rank: int  # its number on its host
    host: str
    pids: tuple[int, ...]  # its processes' ids, the one that computes first
    source: str  # how its number was found
    sources: tuple[Source, ...]  # its parts of reports, in time order


class Plan(NamedTuple):
    """The ranks of a run, the numbers without a report, and what a reader must know about how they were found."""

    ranks: tuple[RankPlan, ...]
    missing: tuple[int, ...]
    notes: tuple[str, ...]


@dataclass
class _Candidate:
    """A process (or all of a report without one) that may be a rank, over its reports, in their time order."""

    host: str
    stem: str
    alone: bool
    leads: list[ReportProcess] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    @property
    def order(self) -> tuple[object, ...]:
        lead = self.leads[0] if self.leads else None
        ordinal = lead.device_ordinal if lead else None
        folder = natural_key(str(PurePath(self.reports[0].path).parent))
        return natural_key(self.stem), 1 << 30 if ordinal is None else ordinal, lead.pid if lead else 0, folder

    @property
    def mpi_rank(self) -> int | None:
        """Its rank from any of its reports: a capture range that began after `MPI_Init` has none."""
        return next((lead.mpi_rank for lead in self.leads if lead.mpi_rank is not None), None)

    @property
    def hint(self) -> tuple[int, str] | None:
        """Its rank as one of its reports states it, and where."""
        stated = ((lead.rank_hint, lead.rank_hint_source) for lead in self.leads)
        return next(((rank, source or "report") for rank, source in stated if rank is not None), None)

    @property
    def companion(self) -> bool:
        """Whether its reports only add data to a rank that has other reports."""
        return all(report.companion for report in self.reports)

    def may_be(self, report: Report, lead: ReportProcess | None) -> bool:
        """Whether nothing in `report` says that it is about another process than this one."""
        if lead and lead.mpi_rank is not None and self.mpi_rank is not None and lead.mpi_rank != self.mpi_rank:
            return False
        if lead and lead.rank_hint is not None and self.hint is not None and lead.rank_hint != self.hint[0]:
            return False
        mine, other = self.reports[0].environment, report.environment
        return all(mine[v] == other[v] for v in _RANK_VARIABLES if v in mine and v in other)


def plan_ranks(reports: Sequence[Report | None]) -> Plan:
    """The ranks in `reports`; None is a report that could not be read and is skipped."""
    notes: list[str] = []
    every = _candidates(reports)
    candidates = [c for c in every if not c.companion]
    claimed = _claims(candidates, notes)
    _attach([c for c in every if c.companion], candidates, claimed)
    ranks: list[RankPlan] = []
    used = {rank for rank, _ in claimed.values()}
    free = (n for n in range(len(candidates) + len(used) + 1) if n not in used)
    unclaimed = sorted((i for i in range(len(candidates)) if i not in claimed), key=lambda i: candidates[i].order)
    for i in unclaimed:
        claimed[i] = (next(free), "order")
    if unclaimed and len(candidates) > 1:
        named = ", ".join(str(claimed[i][0]) for i in unclaimed[:_MISSING_LISTED])
        more = ", ..." if len(unclaimed) > _MISSING_LISTED else ""
        subject = f"rank {named}: its number is" if len(unclaimed) == 1 else f"ranks {named}{more}: their numbers are"
        notes.append(f"{subject} from the order of file names and devices, because the reports do not contain it")
    local = _local_ranks(candidates, claimed)
    for i, (rank, source) in claimed.items():
        candidate = candidates[i]
        pids = _pids(candidate, reports)
        ranks.append(RankPlan(rank, local[i], candidate.host, pids, source, tuple(candidate.sources)))
    ranks.sort(key=lambda r: r.rank)
    stating = _world_sizes(reports)
    missing = _missing([r.rank for r in ranks], next(iter(stating)) if len(stating) == 1 else None, claimed.values())
    notes += _contradictions(stating, reports, [(*claim, candidates[i]) for i, claim in sorted(claimed.items())])
    if missing:
        notes.append(_missing_note(missing))
    return Plan(tuple(ranks), missing, tuple(notes))


def _attach(
    companions: Sequence[_Candidate], candidates: list[_Candidate], claimed: dict[int, tuple[int, str]]
) -> None:
    """Assign reports that only add data to the rank with their number; those without a number become separate ranks."""
    of_rank = {rank: candidates[i] for i, (rank, _) in claimed.items()}
    for companion in companions:
        number = _from_file_name(companion)
        whole = of_rank.get(number) if number is not None else None
        if whole is not None:
            whole.sources += companion.sources
            whole.reports += companion.reports
            continue
        if number is not None:
            claimed[len(candidates)] = (number, "file name")
            of_rank[number] = companion
        candidates.append(companion)


def natural_key(text: str) -> tuple[object, ...]:
    """A sort key under which `rank2` comes before `rank10`."""
    # \d is what isdecimal() says; isdigit() also takes superscripts, which are not numbers to int(), as thousands of
    # digits are none
    return tuple(
        (1, int(p), p) if p.isdecimal() and len(p) < _DIGITS else (0, 0, p) for p in re.split(r"(\d+)", text) if p
    )


def _candidates(reports: Sequence[Report | None]) -> list[_Candidate]:
    """The processes that are ranks, reports of one process joined."""
    by_place: dict[tuple[object, ...], list[_Candidate]] = {}
    nameless: dict[tuple[object, ...], str] = {}
    present = [(index, report) for index, report in enumerate(reports) if report is not None]
    hosts = _hosts_in_names([report for _, report in present])
    started_again = {_RESTART.sub("", name) for _, report in present if _RESTART.search(name := _base(report))}
    for index, report in sorted(present, key=lambda p: (natural_key(p[1].path), p[1].utc_ns or 0)):
        leads = _leads(report)
        stem, base = report_stem(report.path), _base(report)
        again = len(leads) <= 1 and _RESTART.sub("", base) in started_again
        base = _RESTART.sub("", base) if again else base
        folder = PurePath(report.path).parent
        in_steps = bool(leads) and _STEP_FOLDER.fullmatch(folder.name) is not None
        place: tuple[object, ...] = (str(folder.parent if in_steps else folder), base)
        if base == stem and not again and not in_steps:
            place = (*place, index)
        by_user = leads[0].rank_hint if leads and leads[0].rank_hint_source in STATED else None
        if by_user is not None:
            place, again = (by_user,), True
        # without a host's name, reports of one capture are all that is known to be of one host
        host = report.host or hosts.get(report.path) or nameless.setdefault(place, f"host-{len(nameless)}")
        others = [p.process for p in report.processes if p not in leads]
        for n, lead in enumerate(leads or [None]):
            mine = tuple(([lead.process] if lead else []) + (others if n == 0 else []))
            own = host if lead is None or lead.host is None else lead.host
            same = by_place.setdefault((own, *place, lead.pid if lead and not again else None), [])
            # two processes of one report are two, also if they have one id, as in containers or after ids came round
            known = next((c for c in same if c.sources[-1].report != index and c.may_be(report, lead)), None)
            if known is None:
                known = _Candidate(own, stem, len(leads) <= 1)
                same.append(known)
            known.leads += [lead] if lead else []
            known.sources.append(Source(index, mine))
            known.reports.append(report)
    candidates = _of_one_process([c for same in by_place.values() for c in same])
    for candidate in candidates:
        together = sorted(
            zip(candidate.reports, candidate.sources, strict=True),
            key=lambda p: (begin_ns(p[0]), natural_key(p[0].path)),
        )
        candidate.reports = [r for r, _ in together]
        candidate.sources = [s for _, s in together]
    return candidates


def _of_one_process(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The candidates, those as one whose reports are of one process, one after the other, whatever their names are."""
    of_process: dict[tuple[object, ...], list[_Candidate]] = defaultdict(list)
    for number, c in enumerate(candidates):
        first, lead = c.reports[0], c.leads[0] if c.alone and c.leads else None
        whose: tuple[object, ...] = (number,)
        if lead is not None and lead.pid > 0 and not c.companion:
            place = first.host or PurePath(first.path).parent
            whose = (first.format, place, lead.pid, c.hint, c.mpi_rank)
        of_process[whose].append(c)
    joined = []
    for its in of_process.values():
        host = its[0].host
        first_one, *others = sorted(its, key=lambda c: begin_ns(c.reports[0]))
        spans = [span_of(r) for c in its for r in c.reports]
        in_turn = all(first_one.may_be(c.reports[0], c.leads[0]) for c in others) and not at_once(spans)
        joined.append(first_one)
        for c in others:
            if in_turn:
                first_one.host = host
                first_one.leads += c.leads
                first_one.sources += c.sources
                first_one.reports += c.reports
            else:
                joined.append(c)
    return joined


def begin_ns(report: Report) -> int:
    """When a report begins, UTC, ns."""
    return (report.utc_ns or 0) + (report.start_ns or 0)


def span_of(report: Report) -> tuple[int, int] | None:
    """From when to when a report was recorded, UTC, ns; None if that is not known."""
    last_ns = report.last_ns if report.stop_ns is None else report.stop_ns
    if report.utc_ns is None or report.start_ns is None or last_ns is None:
        return None
    return report.utc_ns + report.start_ns, report.utc_ns + last_ns


def at_once(spans: Sequence[tuple[int, int] | None]) -> bool:
    """Whether some spans overlap, or one is not known."""
    known = sorted(span for span in spans if span is not None)
    return len(known) < len(spans) or any(before[1] > behind[0] for before, behind in pairwise(known))


def was_restarted(report: Report) -> bool:
    """Whether the wrapper started its process again, by its name."""
    return _RESTART.search(_base(report)) is not None


def _hosts_in_names(reports: Sequence[Report]) -> dict[str, str]:
    """The host in names such as `node7-rank3`, of reports without one; there are several, and several ranks of one."""
    hosts = {
        r.path: m["host"]
        for r in reports
        if r.host is None and (m := re.match(_HOST_IN_NAME, report_stem(r.path))) is not None
    }
    return hosts if 1 < len(set(hosts.values())) < len({_base(r) for r in reports if r.path in hosts}) else {}


def _leads(report: Report) -> list[ReportProcess]:
    """A report's processes that are separate ranks: those with an MPI rank, else a stated one, else on a GPU."""
    with_rank = [p for p in report.processes if p.mpi_rank is not None]
    if with_rank:
        return with_rank
    hinted = [p for p in report.processes if p.rank_hint is not None]
    if hinted:
        return hinted
    on_gpu = [p for p in report.processes if p.gpu]
    if on_gpu:
        return on_gpu
    return list(report.processes[:1])


def _base(report: Report) -> str:
    """The name of a report without the part that distinguishes reports of one process."""
    return _CAPTURE_SUFFIX.sub("", report_stem(report.path))


def report_stem(path: str) -> str:
    """The name of a report without its ending, and without that of how it is packed."""
    name = PurePath(path).name
    return next((name[: -len(suffix)] for suffix in _SUFFIXES if name.lower().endswith(suffix)), name)


def _claims(candidates: Sequence[_Candidate], notes: list[str]) -> dict[int, tuple[int, str]]:
    """Candidate to (rank, how it was found), from the best source under which the numbers are distinct."""
    sources: list[tuple[str, Callable[[_Candidate], int | None]]] = [("MPI_RANKS", lambda c: _believable(c.mpi_rank))]
    hints = sorted({c.hint[1] for c in candidates if c.hint is not None}, key=lambda name: (name not in STATED, name))
    sources += [(name, _from_hint(name)) for name in hints]
    sources += [(name, _from_environment(name)) for name in _RANK_VARIABLES]
    sources.append(("file name", _from_file_name))
    sources.append(("file name", _from_number_of_all(candidates)))
    sources.append(("parallel ranks in the file name", _from_parallel_ranks(candidates)))
    sources.append(("file name", _from_last_number(candidates)))
    claimed: dict[int, tuple[int, str]] = {}
    for source, ask in sources:
        numbers = {i: rank for i, c in enumerate(candidates) if i not in claimed and (rank := ask(c)) is not None}
        if not numbers:
            continue
        counts = Counter(numbers.values())
        clashing = sorted(rank for rank, n in counts.items() if n > 1)
        if clashing and (apart := _by_role(candidates, numbers)) is not None:
            numbers, clashing = apart, []
            notes.append(f"each role has its own rank numbers ({source}), so ranks were renumbered, role after role")
        if clashing:
            its = [candidates[i].reports[0] for i, rank in numbers.items() if rank == clashing[0]]
            notes.append(_clash_note(source, clashing[0], counts, its))
            continue
        taken = {rank for rank, _ in claimed.values()}
        for i, rank in numbers.items():
            if rank not in taken:
                claimed[i] = (rank, source)
    return claimed


def _by_role(candidates: Sequence[_Candidate], numbers: Mapping[int, int]) -> dict[int, int] | None:
    """New numbers if numbers are per role: roles follow each other. None if roles do not distinguish ranks."""
    roles = {i: candidates[i].reports[0].environment.get(ROLE, "") for i in numbers}
    if (
        len(set(roles.values())) < 2
        or len(numbers) < len(candidates)
        or len({(roles[i], rank) for i, rank in numbers.items()}) < len(numbers)
    ):
        return None
    first, offsets = 0, {}
    for role in sorted(set(roles.values()), key=natural_key):
        offsets[role] = first
        first += 1 + max(rank for i, rank in numbers.items() if roles[i] == role)
    return {i: offsets[roles[i]] + rank for i, rank in numbers.items()}


def _clash_note(source: str, rank: int, counts: Mapping[int, int], its: Sequence[Report]) -> str:
    if len(counts) == 1:
        return f"{source} gives rank {rank} to all {counts[rank]} processes that have it, so it was not used"
    return (
        f"by {source} {counts[rank]} different processes are rank {rank}, so it was not used; "
        f"are reports of two jobs in one folder? Rank {rank} is stated in {_paths(its)}"
    )


def _from_hint(source: str) -> Callable[[_Candidate], int | None]:
    """Returns the rank that the report states in `source`."""

    def ask(candidate: _Candidate) -> int | None:
        return _believable(candidate.hint[0]) if candidate.hint is not None and candidate.hint[1] == source else None

    return ask


def _from_environment(variable: str) -> Callable[[_Candidate], int | None]:
    """Returns `variable`, which applies to a process only if its report has no other rank."""

    def ask(candidate: _Candidate) -> int | None:
        return _number(candidate.reports[0].environment, variable) if candidate.alone else None

    return ask


def _from_file_name(candidate: _Candidate) -> int | None:
    return rank_in_name(candidate.stem) if candidate.alone else None


def _from_number_of_all(candidates: Sequence[_Candidate]) -> Callable[[_Candidate], int | None]:
    """Returns the rank in a name such as `trace-10-of-16`; the first may be 0 or 1."""
    numbers = {id(c): m for c in candidates if c.alone and (m := _OF_ALL.search(c.stem)) is not None}
    from_one = any(int(m["rank"]) == int(m["ranks"]) for m in numbers.values())
    ranks = {own: int(m["rank"]) - from_one for own, m in numbers.items()}
    return lambda candidate: _believable(ranks.get(id(candidate)))


def _from_last_number(candidates: Sequence[_Candidate]) -> Callable[[_Candidate], int | None]:
    """Returns the number at the end of the name, such as `llm_5`, if all have one after the same text.

    It can be a rank if it is not a process id and not much larger than there are reports.
    """
    if len(candidates) < _FEWEST_NUMBERED:
        return lambda _: None
    matches = [(c, re.match(_LAST_NUMBER, c.stem)) for c in candidates]
    texts = {None if m is None else m["name"] or "" for _, m in matches}
    numbers = {id(c): int(m["number"]) for c, m in matches if m is not None}
    of_process = any(lead.pid == numbers.get(id(c)) for c, _ in matches for lead in c.leads)
    text = texts.pop() if len(texts) == 1 else None
    if text is None or len(numbers) < _FEWEST_NUMBERED or re.fullmatch(_NSYS_NAME, text) or of_process:
        return lambda _: None
    from_one = sorted(numbers.values()) == list(range(1, len(numbers) + 1))
    if from_one and not _lacks_rank_0([(numbers[id(c)], c) for c in candidates]):
        return lambda candidate: numbers.get(id(candidate), 0) - 1
    if max(numbers.values()) >= _NUMBERS_A_REPORT * len(numbers) or not all(c.alone for c in candidates):
        return lambda _: None
    return lambda candidate: numbers.get(id(candidate))


def _lacks_rank_0(numbered: Sequence[tuple[int, _Candidate]]) -> bool:
    """Whether processes numbered from 1 are ranks from 1 on: rank 0 has no report.

    The job's size decides, else the first host: it has no process on device 0, as all others have, or one process less.
    """
    sizes = _world_sizes(report for _, candidate in numbered for report in candidate.reports)
    if sizes:
        return list(sizes) == [len(numbered) + 1]
    numbers: dict[str, list[int]] = defaultdict(list)
    ordinals: dict[str, list[int]] = defaultdict(list)
    for number, candidate in numbered:
        numbers[candidate.host].append(number)
        ordinals[candidate.host] += [lead.device_ordinal or 0 for lead in candidate.leads]
    first = min(numbers, key=lambda host: min(numbers[host]))
    if [host for host in ordinals if min(ordinals[host], default=0) > 0] == [first]:
        return True
    per_host = max(map(len, numbers.values()))
    one_less = len(numbers[first]) == per_host - 1
    return one_less and all({n // per_host for n in its} == {its[0] // per_host} for its in numbers.values())


def _from_parallel_ranks(candidates: Sequence[_Candidate]) -> Callable[[_Candidate], int | None]:
    """Returns a process' number by its tensor, pipeline, data and expert parallel ranks, the first varying fastest.

    Data and expert parallel ranks count only if the others do not distinguish all processes: they may divide the same
    ranks again.
    """
    stated: dict[int, dict[str, int]] = {}
    for c in candidates:
        text = c.stem if c.alone else c.leads[0].name
        axis_ranks = {m["axis"].lower(): int(m["rank"]) for m in _PARALLEL.finditer(text)}
        if axis_ranks:
            stated[id(c)] = axis_ranks
    if len(stated) == 1 and not {"tp", "dp"} <= set(*stated.values()):
        stated = {}  # sizes, such as of a model on tp8_pp2
    for axes in _AXES:
        places = {own: tuple(ranks.get(axis, 0) for axis in axes) for own, ranks in stated.items()}
        if len(set(places.values())) == len(places):
            sizes = [1 + max((p[n] for p in places.values()), default=0) for n in range(len(axes))]
            numbers = {own: sum(v * prod(sizes[n + 1 :]) for n, v in enumerate(place)) for own, place in places.items()}
            return lambda candidate: _believable(numbers.get(id(candidate)))
    return lambda _: None


def stated_rank(report: Report) -> int | None:
    """The rank that a report of one process states of itself, or that its launcher or its name do; None without one."""
    lead = report.processes[0] if report.processes else None
    numbers = [] if lead is None or len(_leads(report)) > 1 else [lead.mpi_rank, lead.rank_hint]
    numbers += [_number(report.environment, variable) for variable in _RANK_VARIABLES]
    return next((n for n in (*numbers, rank_in_name(report.path)) if _believable(n) is not None), None)


def rank_in_name(path: str) -> int | None:
    """The rank in the name of a report, such as 7 of `x_rank7`; None without one."""
    numbers = _FILE_RANK.findall(report_stem(path))
    return _believable(int(numbers[-1][:_LONGEST])) if numbers else None


def _believable(rank: int | None) -> int | None:
    return rank if rank is not None and 0 <= rank < _RANKS_BELOW else None


def _number(environment: Mapping[str, str], variable: str) -> int | None:
    value = environment.get(variable, "")
    return _believable(int(value)) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _local_ranks(candidates: Sequence[_Candidate], claimed: Mapping[int, tuple[int, str]]) -> dict[int, int]:
    """Each candidate's number on its host: the launcher's if present and distinct, else by order of rank."""
    by_host: dict[str, list[int]] = defaultdict(list)
    for i in sorted(claimed, key=lambda i: claimed[i][0]):
        by_host[candidates[i].host].append(i)
    local: dict[int, int] = {}
    for members in by_host.values():
        stated = [_launchers_local_rank(candidates[i]) for i in members]
        known = None not in stated and len(set(stated)) == len(stated)
        for n, i in enumerate(members):
            number = stated[n]
            local[i] = number if known and number is not None else n
    return local


def _launchers_local_rank(candidate: _Candidate) -> int | None:
    if not candidate.alone:
        return None
    numbers = (_number(candidate.reports[0].environment, v) for v in _LOCAL_RANK_VARIABLES)
    return next((n for n in numbers if n is not None), None)


def _pids(candidate: _Candidate, reports: Sequence[Report | None]) -> tuple[int, ...]:
    pids: dict[int, None] = {}
    for source in candidate.sources:
        report = reports[source.report]
        if report is not None and not report.companion:
            pids.update(dict.fromkeys(p.pid for row in source.processes for p in report.processes if p.process == row))
    return tuple(pids)


def _world_sizes(reports: Iterable[Report | None]) -> dict[int, list[Report]]:
    """The job's number of ranks as reports state it, each with those that do, of most reports first."""
    stating: dict[int, list[Report]] = {}
    for report in reports:
        if report is None:
            continue
        numbers = (_number(report.environment, v) for v in WORLD_SIZE)
        of_all = _OF_ALL.search(report_stem(report.path))
        for size in {
            report.world_size or next((n for n in numbers if n), None),
            int(of_all["ranks"]) if of_all else None,
        }:
            if size and size <= _RANKS_BELOW:
                stating.setdefault(size, []).append(report)
    return dict(sorted(stating.items(), key=lambda item: -len(item[1])))


def _contradictions(
    stating: Mapping[int, Sequence[Report]],
    reports: Iterable[Report | None],
    ranks: Iterable[tuple[int, str, _Candidate]],
) -> list[str]:
    """What reports state of their rank and its world that cannot be true, with their paths."""
    notes = []
    if len(stating) > 1 and not any(ROLE in r.environment for its in stating.values() for r in its):
        first, *others = stating
        named = "; ".join(f"{size} in {_paths(stating[size])}" for size in others[:_MISSING_LISTED])
        notes.append(f"the reports state different world sizes: {first} in {len(stating[first])} of them, {named}")
    beyond = [
        (rank, size, r)
        for size, its in stating.items()
        for r in its
        if (rank := stated_rank(r)) is not None and rank >= size
    ]
    notes += [
        f"rank {rank} is beyond its world size of {size} in {report.path}"
        for rank, size, report in beyond[:_MISSING_LISTED]
    ]
    other_names = [
        (report.path, rank)
        for rank, source, candidate in ranks
        if candidate.alone and candidate.hint == (rank, source) and source not in STATED
        for report in candidate.reports
        if rank_in_name(report.path) not in (rank, None)
    ]
    if other_names:
        named = ", ".join(f"rank {rank} in {path}" for path, rank in other_names[:_MISSING_LISTED])
        more = f" and {len(other_names) - _MISSING_LISTED} more" if len(other_names) > _MISSING_LISTED else ""
        notes.append(f"reports state another rank than their names: {named}{more}")
    negative = [
        r
        for r in reports
        if r is not None
        and (
            r.environment.get(_RANK_VARIABLES[0], "").startswith("-")
            or any((p.rank_hint or 0) < 0 for p in r.processes)
        )
    ]
    if negative:
        notes.append(f"a negative rank is stated in {_paths(negative)}, so it is not used")
    return notes


def _paths(reports: Sequence[Report]) -> str:
    more = f" and {len(reports) - _MISSING_LISTED} more" if len(reports) > _MISSING_LISTED else ""
    return ", ".join(r.path for r in reports[:_MISSING_LISTED]) + more


def _missing(ranks: Sequence[int], world_size: int | None, claims: Iterable[tuple[int, str]]) -> tuple[int, ...]:
    if all(source == "order" for _, source in claims):
        return ()
    present = set(ranks)
    top = max(present, default=-1) + 1
    # a world size below what is there is not the size of this job
    size = world_size if world_size is not None and world_size >= top else top
    return tuple(n for n in range(size) if n not in present)


def _missing_note(missing: Sequence[int]) -> str:
    text = ", ".join(map(str, missing[:_MISSING_LISTED]))
    if len(missing) > _MISSING_LISTED:
        text += f" and {len(missing) - _MISSING_LISTED} more"
    return f"rank {text}: no report" if len(missing) == 1 else f"ranks {text}: no report"
