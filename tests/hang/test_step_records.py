"""The record of steps as evidence of a hang: who is in which phase, whose process no longer runs, and what is no hang."""

from tests.step_pages import page_of, write_pages

import alltrace
from alltrace.hang.verdict import verdict_of
from alltrace.trace.step_records import AT_NOW, NOW, Step

BEGIN_NS = 1_796_000_000_000_000_000
SECOND_NS = 10**9


def write(folder, phases, *, since_s=0.0, beats=None, host="n1", steps=20, page_only=False):
    """A file with ranks that ended `steps` steps of 1 s, and are in these phases since then."""
    end_ns = BEGIN_NS + steps * SECOND_NS
    ended = [Step(n, BEGIN_NS + n * SECOND_NS, 1_000_000, (1000, 2000, 3000)) for n in range(steps)]
    pages = [
        page_of(
            rank,
            len(phases),
            ended,
            phase=phase,
            since_ns=end_ns + SECOND_NS // 10,
            written_ns=end_ns + beat * SECOND_NS,
            host=host,
        )
        for rank, (phase, beat) in enumerate(zip(phases, beats or [since_s] * len(phases), strict=True))
    ]
    write_pages(folder / ("page_rank0.steps" if page_only else f"job_on_{host}.steps"), pages)


def first(folder):
    answer = verdict_of(folder)
    row = answer.table.to_pylist()[0]
    return row["kind"], row["ranks"], answer.verdict


def test_a_rank_that_is_in_another_phase_than_those_that_wait_is_named(tmp_path):
    write(tmp_path, ["wait", "wait", "forward", "wait"], since_s=60)
    kind, ranks, sentence = first(tmp_path)
    assert (kind, ranks) == ("rank-computes", [2])
    assert sentence == "Rank 2: computes in phase forward of step 20 since 00:53:40 UTC; 3 others are in communication."
    write(tmp_path, ["wait", "data", "wait", "wait"], since_s=60)
    assert first(tmp_path)[:2] == ("rank-waits", [1])
    result = alltrace.hang_verdict(tmp_path)
    assert result.answer.verdict == first(tmp_path)[2]
    assert result.to_pylist()[0]["hosts"] == ["n1"]


def test_a_process_that_no_longer_writes_while_others_do_died(tmp_path):
    write(tmp_path, ["wait", "forward", "wait"], beats=[60, 3, 58])
    kind, ranks, sentence = first(tmp_path)
    assert (kind, ranks) == ("dead-rank", [1])
    assert "its process no longer runs since 00:53:43 UTC, in forward of step 20" in sentence


def test_a_job_whose_steps_go_on_or_that_ended_does_not_hang(tmp_path):
    write(tmp_path, ["wait", "forward", "wait"], since_s=2.5)
    assert first(tmp_path)[0] == "no-hang"
    write(tmp_path, ["wait", "forward", "wait"], since_s=4.9)
    assert first(tmp_path)[0] == "no-hang"


def test_a_page_alone_says_where_its_rank_is_and_damage_is_no_evidence(tmp_path):
    write(tmp_path, ["wait"] * 4, since_s=60)
    write(tmp_path, ["forward"], since_s=1, page_only=True)
    path = tmp_path / "page_rank0.steps"
    data = bytearray(path.read_bytes())
    NOW.pack_into(data, AT_NOW, 20, BEGIN_NS + 21 * SECOND_NS, 2)  # later than in the file of the host
    path.write_bytes(data)
    assert first(tmp_path)[:2] == ("rank-computes", [0])
    data[:8] = b"ALTSTEP9"
    path.write_bytes(data)
    assert first(tmp_path)[:2] != ("rank-computes", [0])
    data[:8], data[8:12] = b"ALTSTEP1", b"\xff\xff\xff\xff"
    path.write_bytes(data)
    assert first(tmp_path)[:2] != ("rank-computes", [0])
