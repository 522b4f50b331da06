"""Operations that a rank shares only with ranks without a report, so unmatched; and its messages."""

from dataclasses import dataclass, replace

import numpy as np

from alltrace.align.nccl_names import POINT_TO_POINT
from alltrace.recipes.questions.diagnose.rank_facts import RankFacts
from alltrace.run.rank import Rank
from alltrace.trace.arrays import Int64, integers
from alltrace.trace.distinct import distinct_rows
from alltrace.trace.intervals import Merged, containing, overlap_ns
from alltrace.trace.names import name_id


@dataclass(frozen=True)
class LoneOperations:
    """Sums over the unmatched operations of one rank in its judged steps; arrays of k, by step and kind."""

    step: Int64  # the number of the step
    op: Int64  # the id of the operation's name
    communicator: Int64  # that of its communicator; 0 if the reports do not say
    size: Int64  # its bytes
    group_size: Int64  # ranks of its communicator; -1 if the reports do not say
    count: Int64  # how many there are
    took_ns: Int64  # from their starts to their ends
    waited_ns: Int64  # in how much of that the rank's device waits for communication
    messages: Int64 | None = None  # in each step of the facts its sends and receives, matched or not, of any size
    alone: Int64 | None = None  # those of them that are matched with nothing
    unnamed: int = 0  # operations of the whole run of which the reports and logs do not name the communicator


def lone_operations(rank: Rank, matched: Int64, facts: RankFacts) -> LoneOperations:
    """The unmatched operations of a rank.

    `rank`: The rank's tables, with the alignment's `collectives`. `matched`: Rows of `collectives` that are members of
    an instance.
    """
    table = rank.table("collectives", ("start", "end", "op", "communicator", "bytes", "group_size"))
    start, end, size, group = (integers(table.column(c), -1) for c in ("start", "end", "bytes", "group_size"))
    op, name = integers(table.column("op")), integers(table.column("communicator"))
    at = containing(Merged(*facts.regions.T.copy()), end - 1)
    message = np.isin(op, [name_id(text) for text in POINT_TO_POINT]) & (at >= 0)
    chosen = (at >= 0) & (group != 1) & (size > 0) & (end > start)
    chosen[matched] = False
    chosen &= ~np.asarray(table.column("start").is_null().to_numpy(), np.bool_)
    waits = Merged(*facts.waits.T.copy())
    kinds, of = distinct_rows(facts.steps[at[chosen]], op[chosen], name[chosen], size[chosen], group[chosen])
    sums = np.zeros((3, kinds.shape[1]), np.int64)
    parts = (np.ones(len(of), np.int64), (end - start)[chosen], overlap_ns(start[chosen], end[chosen], waits))
    for row, part in zip(sums, parts, strict=True):
        np.add.at(row, of, part)
    messages = np.bincount(at[message], minlength=len(facts.steps))
    message[matched] = False
    alone = np.bincount(at[message], minlength=len(facts.steps))
    return replace(LoneOperations(*kinds, *sums), messages=messages, alone=alone, unnamed=int((name == 0).sum()))
