"""Communication that costs time: slow links, operations that could overlap, needless queueing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from alltrace.recipes.analysis.network_state import slow_adapters
from alltrace.recipes.analysis.unsized_operations import why_unsized
from alltrace.recipes.questions.diagnose.absent_ranks import awaited
from alltrace.recipes.questions.diagnose.all_rank_facts import AllRankFacts, Members
from alltrace.recipes.questions.diagnose.finding import Finding
from alltrace.recipes.questions.diagnose.recovered_time import OtherOrder, RecoveredTime
from alltrace.recipes.questions.diagnose.slow_communicators import SlowLink, possible_excess, slow_links
from alltrace.trace.arrays import Flags, Floats, Int64
from alltrace.trace.distinct import distinct_rows, rows_by, run_starts

_WHOLLY = 0.9  # nothing hides an operation of which devices wait for this share
_DIFFERENT = 4  # operations of unknown size that differ by this factor in time move different data

_EXPOSED, _WAITS = 0.2, 0.05
"""A rank waits for what could be hidden, or for what the next kernel needs, if it does so for this share of what the
rank does that waits longest."""

_ONE_CAUSE = 0.1  # less of a loss may be due to another cause: losses are no surer than that

_BACK_TO_BACK_NS = 30_000
_GRADIENTS_BEGIN = 0.3
"""A communicator that begins after this share of the step carries gradients, which only the optimizer needs."""


def find(all_ranks: AllRankFacts) -> list[Finding]:
    """`slow-communicator` or `low-bandwidth` of a link, `serialized-communication` and `exposed-communication`."""
    members = all_ranks.members
    if members is None or not len(members.rank):
        return []
    # what is a wait for a rank without a report is not a transfer
    waits = awaited(all_ranks, members)
    members = replace(
        members,
        transfer=members.transfer - waits.transfer,
        moved=members.moved - waits.moved,
        certain=members.certain & ~np.isin(members.communicator, list(waits.shares)),
    )
    slow, excess, shares = _slow(all_ranks, members)
    slow += _slow_adapters(all_ranks, members, excess, shares)
    queued, serialized = _serialized(all_ranks, members, excess, shares)
    about = (all_ranks, members, excess, {**waits.shares, **shares}, queued)
    return [*slow, *serialized, *_exposed(*about), *_needed_at_once(*about)]


def _slow(all_ranks: AllRankFacts, members: Members) -> tuple[list[Finding], Int64, dict[int, float]]:
    """Slow links of ranks, and communicators slow by themselves; each member's excess transfer, for each its part."""
    excess = np.zeros(len(members.rank), np.int64)
    shares: dict[int, float] = {}
    findings = []
    for link in slow_links(all_ranks, members):
        own = {number: 1 - 1 / one.ratio for number, one in link.slow.items()}
        amounts = np.zeros(len(members.rank), np.int64)
        for number, share in own.items():
            rows = members.communicator == number
            amounts[rows] = (members.moved[rows] * share).astype(np.int64)
        findings.append(_slow_link(all_ranks, link, own, all_ranks.spread(amounts)))
        excess += amounts
        shares |= own
    return findings, excess, shares


def _slow_link(all_ranks: AllRankFacts, link: SlowLink, shares: Mapping[int, float], lost: Floats) -> Finding:
    groups = {g.number: g for g in all_ranks.alignment.groups}
    named = sorted(link.slow, key=lambda n: -link.slow[n].lost_ns)
    slowest = link.slow[named[0]].ratio
    evidence = {"slowdown": round(slowest, 2), "communicators": float(len(named))}
    rated = next((link.slow[n] for n in named if link.slow[n].gb_per_s is not None), None)
    if rated is not None:
        evidence["busbw_gb_per_s"] = round(rated.gb_per_s or 0, 2)
        evidence["peers_busbw_gb_per_s"] = round(rated.peers_gb_per_s or 0, 2)
    where = ", ".join(groups[n].name for n in named[:4])
    # of one peer it is not known how much communicators alike differ
    confidence = 0.9 - 0.1 / link.slow[named[0]].peers
    if link.rank is not None:
        kind, ranks, ceiling_ns = "low-bandwidth", [link.rank], int(lost.max(axis=0).sum())
        across = {len({all_ranks.hosts.get(r) for r in groups[n].ranks}) > 1 for n in named}
        which, check = " of its host", "NVLink and PCIe"
        if across != {False}:
            which, check = ("", "network and NVLink") if False in across else (" between hosts", "network")
        advice = (
            f"Communicators of rank {link.rank}{which} are slow and those without it are not; check its {check}"
            " connections."
        )
    else:
        kind, ranks = "slow-communicator", sorted({r for n in named for r in groups[n].ranks})
        ceiling_ns = all_ranks.waiting_ns(lost)
        advice = f"Transfers of {where} take {slowest:.1f} times as long as elsewhere; check the links of its ranks."
        rail = _rail(all_ranks.hosts, ranks)
        if rail is not None:
            advice += (
                f" Each is rank {rail} of its host, counted from 0, and so of one rail: check that adapter and its"
                " switch."
            )
    loss = all_ranks.loss(("communication",), lost, lambda run: run.less_transfer(shares), ceiling_ns)
    return Finding(kind, loss, tuple(ranks), where, advice, evidence, confidence)


def _slow_adapters(all_ranks: AllRankFacts, members: Members, excess: Int64, shares: dict[int, float]) -> list[Finding]:
    """Adapters that are slow by their counters: communicators wait for them, if no finding has that.

    What they cost is added to `excess` and `shares`.
    """
    slow = slow_adapters(all_ranks.networks)
    if slow is None:
        return []
    share = 1 - slow.gb_per_s / slow.peers_gb_per_s
    ranks_of = {g.number: g.ranks for g in all_ranks.alignment.groups}
    hosts_of = {number: {all_ranks.hosts.get(r) for r in ranks} for number, ranks in ranks_of.items()}
    over = [n for n, hosts in hosts_of.items() if len(hosts) > 1 and hosts & set(slow.hosts) and n not in shares]
    rows = np.isin(members.communicator, over)
    amounts = np.where(rows, members.moved * share, 0).astype(np.int64)
    if not amounts.any():
        return []
    ranks = tuple(r for r in all_ranks.ranks.tolist() if all_ranks.hosts[r] in slow.hosts)
    one = len(slow.names) == 1
    where = f"{'adapter' if one else 'adapters'} {', '.join(slow.names)}"
    which = "that rail's switch and cables" if slow.rail else "its link and cable" if one else "their links and cables"
    advice = (
        f"Communication between hosts waits for {where} of {', '.join(slow.hosts)}, which"
        f" {'carries' if one else 'carry'} as much as the others at {100 * slow.gb_per_s / slow.peers_gb_per_s:.0f} %"
        f" of their rate; check {which}."
    )
    own = dict.fromkeys(over, share)
    lost = all_ranks.spread(amounts)
    loss = all_ranks.loss(("communication",), lost, lambda run: run.less_transfer(own), all_ranks.waiting_ns(lost))
    excess += amounts
    shares.update(own)
    evidence = {
        "gb_per_s": round(slow.gb_per_s, 2),
        "peers_gb_per_s": round(slow.peers_gb_per_s, 2),
        "adapters": float(len(slow.names)),
    }
    return [Finding("low-bandwidth", loss, ranks, where, advice, evidence, 0.8, slow.hosts)]


def _rail(hosts: Mapping[int, str], ranks: Sequence[int]) -> int | None:
    """The place that all of these ranks have on their hosts, several of several ranks each; else None."""
    of_host = {host: [r for r in hosts if hosts[r] == host] for host in {hosts.get(r) for r in ranks}}
    places = {sum(other < r for other in of_host[hosts.get(r)]) for r in ranks}
    several = len(of_host) > 1 and all(len(its) != 1 for its in of_host.values())
    return places.pop() if len(places) == 1 and several else None


def _serialized(
    all_ranks: AllRankFacts, members: Members, excess: Int64, shares: Mapping[int, float]
) -> tuple[Flags, list[Finding]]:
    """Operations after which an independent one of another communicator queues while the device waits."""
    ahead, after = _in_a_row(members, np.arange(len(members.rank)))
    gap = members.start[after] - members.end[ahead]
    behind = (members.communicator[ahead] != members.communicator[after]) & (gap >= 0) & (gap <= _BACK_TO_BACK_NS)
    ahead, after = ahead[behind], after[behind]
    queued = np.zeros(len(members.rank), bool)
    queued[ahead[~_needs(all_ranks, members, after, ahead)]] = True
    # the one that queues waits for the one before it, which the device need not have waited for
    lost = all_ranks.spread(np.where(queued, members.moved - excess, 0))
    if not lost.any():
        return queued, []
    # a rank that waits for a late one waits less for transfers, but queues as they do
    chosen = all_ranks.culprits(all_ranks.spread(queued.astype(np.int64)))
    rows = rows_by(members.rank)
    # ranks with several communicators and one stream for all of them
    several, streams = (
        {r for r, own in rows.items() if len(np.unique(values[own])) > 1}
        for values in (members.communicator, members.stream)
    )
    single = np.isin(all_ranks.ranks, list(several - streams))
    chosen = single if (single & chosen).any() else chosen
    ranks = all_ranks.ranks[chosen].tolist()
    evidence = {"queued": int(queued.sum()), "waited_ns_per_step": float(np.round(lost[chosen].mean()))}
    names = {g.number: g.name for g in all_ranks.alignment.groups}
    where = ", ".join(names[n] for n in np.unique(members.communicator[queued]).tolist()[:3])
    advice = (
        "Collectives of independent communicators run one after another on one stream; give each communicator its own"
        " stream."
    )
    needless = _gradients(all_ranks, members) & ~_last(members, members.communicator)
    lost = lost * chosen[:, None]
    change = partial(_unqueued, all_ranks=all_ranks, members=members, ranks=ranks, needed=~needless, shares=shares)
    loss = all_ranks.loss(("communication",), lost, change, all_ranks.waiting_ns(lost))
    return queued, [Finding("serialized-communication", loss, tuple(ranks), where, advice, evidence, 0.7)]


def _in_a_row(members: Members, mine: Int64, *by: Int64) -> tuple[Int64, Int64]:
    """The rows of operations of one rank and stream, of `mine`, and of the next one of each."""
    keys = (*by, members.stream, members.rank)
    order = mine[np.lexsort((members.start[mine], *(key[mine] for key in keys)))]
    same = np.all([key[order][1:] == key[order][:-1] for key in keys], axis=0)
    return order[:-1][same], order[1:][same]


def _needs(all_ranks: AllRankFacts, members: Members, after: Int64, ahead: Int64) -> Flags:
    """Which of the operations `after` may need what those `ahead` of them brought; rows of `members`.

    They do if they carry data that was computed after that, and others of their size do so too; or if they may pass its
    result to other ranks: if their input is as large as its output, for example if ranks of a node reduce first, and
    then nodes. A sent message has no output.
    """
    groups = {g.number: g for g in all_ranks.alignment.groups}
    ranks = np.array([groups[n].size if n in groups else 0 for n in members.communicator.tolist()])
    pairs = zip(members.communicator[ahead].tolist(), members.communicator[after].tolist(), strict=True)
    one_set = ({a, b} <= groups.keys() and set(groups[a].ranks) == set(groups[b].ranks) for a, b in pairs)
    apart = ~np.fromiter(one_set, np.bool_, len(ahead))
    given = members.size * np.where(members.op == "AllGather", ranks, 1)
    taken = members.size * np.where(members.op == "ReduceScatter", ranks, 1)
    as_much = given[ahead] == taken[after]
    # of unknown sizes, reductions that take so differently long do not carry the same
    unknown = (given[ahead] == 0) & (taken[after] == 0)
    unknown &= (members.op[ahead] == "AllReduce") & (members.op[after] == "AllReduce")
    one, other = members.transfer[ahead], members.transfer[after]
    as_much &= ~unknown | (np.maximum(one, other) <= _DIFFERENT * np.minimum(one, other))
    passed_on = apart & as_much & (members.op[ahead] != "Send") & (members.op[after] != "Recv")
    carries = all_ranks.carries_on(members.rank[after], members.row[after], members.row[ahead])
    ops = np.unique(members.op.astype(str), return_inverse=True)[1]
    kinds = (members.communicator[ahead], ops[ahead], members.communicator[after], ops[after], members.size[after])
    kind = distinct_rows(*kinds)[1]
    needs: Flags = passed_on | (carries & ~np.isin(kind, kind[~carries]))
    return needs


def _unqueued(
    run: RecoveredTime,
    all_ranks: AllRankFacts,
    members: Members,
    ranks: Sequence[int],
    needed: Flags,
    shares: Mapping[int, float],
) -> OtherOrder:
    """The run with a stream for each communicator of `ranks`: an operation waits for its last one and its needs."""
    mine = np.flatnonzero(np.isin(members.rank, ranks))
    own = np.full(len(members.rank), -1)
    ahead, behind = _in_a_row(members, mine, members.communicator)
    later = members.start[ahead] < members.start[behind]  # one kernel may be several operations
    own[behind[later]] = members.row[ahead[later]]
    ahead, behind = _in_a_row(members, mine)
    other = members.start[ahead] < members.start[behind]
    other &= members.communicator[ahead] != members.communicator[behind]
    ahead, behind = ahead[other], behind[other]
    needs = _needs(all_ranks, members, behind, ahead)
    own[behind[needs]] = members.row[ahead[needs]]
    # the excess of a slow communicator is a separate loss
    weights = run.less_transfer(shares) if shares else None
    rows = (members.row[behind], members.row[ahead], own[behind])
    return run.no_queue(members.rank[behind], *rows, needed[behind], weights)


def _exposed(
    all_ranks: AllRankFacts, members: Members, excess: Int64, shares: Mapping[int, float], queued: Flags
) -> list[Finding]:
    """Transfers that the device waits for although something could hide them.

    Parameters can be gathered ahead, and gradients are needed by the optimizer only, so all but a step's last such
    operation could run under compute. What a layer needs of its peers at once (all-to-all, messages between stages,
    all-reduces that the forward pass has too) is a separate finding.
    """
    hideable = _hideable(all_ranks, members) & ~queued
    amounts = _waited_for(members, excess, hideable)
    ends_step = _gradients(all_ranks, members) & ~hideable
    behind = _behind_compute(all_ranks, members, amounts)

    def changed(run: RecoveredTime, ranks: Sequence[int]) -> OtherOrder:
        free = (hideable | ends_step) & np.isin(members.rank, ranks)
        # what a slow communicator takes too long is reported separately
        weights = run.less_transfer(shares) if shares else None
        # what begins when there is nothing left to compute could have begun before
        started = run.free_transfers(behind, weights).weights if len(behind) else weights
        return replace(run.no_waits(members.rank[free], members.row[free], ends_step[free], started), against=weights)

    advice = (
        "Devices wait for transfers that could overlap compute; start them earlier, on their own stream, and wait for"
        " them later."
    )
    return _exposed_finding(all_ranks, members, amounts, changed, advice)


def _waited_for(members: Members, excess: Int64, chosen: Flags) -> Int64:
    """How long the device of each member of the chosen operations waits for the transfer, as the least does, ns.

    What the last to arrive hides is exposed elsewhere only because others are early: that is its fault and no
    transfer's.
    """
    first = members.firsts
    least = np.minimum.reduceat(members.moved - excess, first)
    return np.where(chosen, np.repeat(least, np.diff(np.append(first, len(chosen)))), 0)


def _exposed_finding(
    all_ranks: AllRankFacts,
    members: Members,
    amounts: Int64,
    changed: Callable[[RecoveredTime, Sequence[int]], OtherOrder],
    advice: str,
    *,
    needed: bool = False,
) -> list[Finding]:
    """`exposed-communication` of what devices wait for, `amounts`; none if they wait for nothing."""
    lost = all_ranks.spread(amounts)
    if not lost.any():
        return []
    chosen = all_ranks.culprits(lost, _WAITS if needed else _EXPOSED)
    ranks, lost = tuple(all_ranks.ranks[chosen].tolist()), lost * chosen[:, None]
    operations = (amounts > 0) & np.isin(members.rank, ranks)
    evidence = {
        "exposed_ns_per_step": float(np.round(lost[chosen].mean())),
        "operations_per_step": round(float(operations.sum()) / max(len(all_ranks.steps) * len(ranks), 1), 1),
        "all_exposed_ns_per_step": float(np.round(all_ranks.of("communication")[chosen].mean())),
    }
    ops, place = np.unique(members.op[amounts > 0].astype(str), return_inverse=True)
    where = str(ops[np.bincount(place.reshape(-1), amounts[amounts > 0]).argmax()])
    loss = all_ranks.loss(("communication",), lost, lambda run: changed(run, ranks), all_ranks.waiting_ns(lost))
    sure = 0.8 if needed else 0.7
    exposed = Finding("exposed-communication", loss, ranks, where, advice, evidence, sure, needed_at_once=needed)
    return [_or_slow(exposed, all_ranks, members, amounts)]


def _or_slow(exposed: Finding, all_ranks: AllRankFacts, members: Members, amounts: Int64) -> Finding:
    """A finding of exposed communication, without loss where no size tells if messages are large.

    `amounts`: What each member's device waits, ns.
    """
    slow_ns = float((amounts * possible_excess(all_ranks, members)).sum())
    if exposed.loss.unknown is not None or slow_ns <= _ONE_CAUSE * float(amounts.sum()):
        return exposed
    why = "; ".join(why_unsized(all_ranks.alignment.run.manifest))
    unknown = f"messages are large or a link is slow, and no size tells which: {why}"
    loss = replace(exposed.loss, unknown=unknown, least_ns=exposed.loss.estimate_ns)
    return replace(exposed, loss=loss, confidence=0.5)


def _behind_compute(all_ranks: AllRankFacts, members: Members, amounts: Int64) -> Int64:
    """The instances that nothing hides although a step's compute could; none if it could not hide all of them.

    Where hosts communicate, the members of a ring leave one after the other, and the transfer counts until the first
    one does. `amounts`: What each member's device waits for transfers that could be hidden, ns.
    """
    first = members.firsts
    took_ns = members.transfer[first]
    if all_ranks.judges_hosts:
        took_ns = np.minimum.reduceat(members.end, first) - members.last_arrival[first]
    whole = np.minimum.reduceat(amounts, first) >= _WHOLLY * took_ns
    whole &= np.minimum.reduceat(amounts, first) > 0
    took = np.bincount(members.step[first[whole]], took_ns[whole], minlength=len(all_ranks.steps))
    if (took > np.median(all_ranks.of("compute"), axis=0)).any():
        return members.instance[:0]
    return members.instance[first[whole]]


def _needed_at_once(
    all_ranks: AllRankFacts, members: Members, excess: Int64, shares: Mapping[int, float], queued: Flags
) -> list[Finding]:
    """Transfers that the device waits for and nothing in the program can hide: what they cost with free transfers."""
    needed = ~_hideable(all_ranks, members) & ~queued
    advice = (
        "Devices wait for transfers that the next kernel needs immediately; send less, let groups that talk most share"
        " the fastest links, or split the work so that one part computes while another is sent."
    )
    instances = np.unique(members.instance[needed])

    def changed(run: RecoveredTime, _ranks: Sequence[int]) -> OtherOrder:
        return run.free_transfers(instances, run.less_transfer(shares) if shares else None)

    return _exposed_finding(all_ranks, members, _waited_for(members, excess, needed), changed, advice, needed=True)


def _gradients(all_ranks: AllRankFacts, members: Members) -> Flags:
    begins = np.zeros(len(members.rank))
    for number, mine in rows_by(members.rank).items():
        facts = all_ranks.facts[number]
        at = np.searchsorted(facts.steps, all_ranks.steps[members.step[mine]])
        begins[mine] = members.start[mine] - facts.regions[at, 0]
    gradients = np.zeros(len(members.rank), bool)
    for its in rows_by(members.communicator).values():
        for op in ("AllReduce", "ReduceScatter", "Reduce"):
            rows = its[members.op[its] == op]
            if len(rows):
                late = np.percentile(begins[rows], 5) * len(all_ranks.steps) >= _GRADIENTS_BEGIN * all_ranks.span_ns
                gradients[rows] = late
    return gradients


def _only_sent(members: Members) -> Flags:
    """Which operations are sends with a kernel that receives nothing."""
    order = np.lexsort((members.start, members.stream, members.rank))
    at = run_starts(members.rank[order], members.stream[order], members.start[order])
    sends = np.minimum.reduceat((members.op[order] == "Send").astype(np.int8), at)
    only_sent = np.zeros(len(order), bool)
    only_sent[order] = np.repeat(sends, np.diff(np.append(at, len(order)))) > 0
    return only_sent


def _last(members: Members, *keys: Int64) -> Flags:
    is_last = np.zeros(len(members.rank), bool)
    by = (*keys, members.step, members.rank)
    latest_first = np.lexsort((members.end, *by))[::-1]
    is_last[latest_first[run_starts(*(k[latest_first] for k in by))]] = True
    return is_last


def _hideable(all_ranks: AllRankFacts, members: Members) -> Flags:
    """What could run under compute: parameters, gradients, sends; not what ends a step or keeps a host."""
    # the last of each rank and step cannot be hidden: nothing is left to compute but what needs it
    gathered = (members.op == "AllGather") & ~_last(members)
    gradients = _gradients(all_ranks, members) & ~_last(members, members.communicator)
    hideable: Flags = (gradients | gathered | _only_sent(members)) & ~members.keeps_host
    return hideable
