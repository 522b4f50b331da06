import numpy as np
import pytest
from tests.synth.faults.planting import STEPS, calls, lost_ns, run


def test_pageable_and_synchronous_copies_stop_the_host():
    line = run("healthy", "pageable-copy:ranks=2").timelines[2]
    rows = line.copies
    batch = rows["kind"] == 1
    assert set(rows["source"][batch].tolist()) == {0}
    lengths = (rows["end"] - rows["start"])[batch]
    assert rows["bytes"][batch] / lengths == pytest.approx(3.0, rel=0.01)
    ends = dict(zip(line.api["correlation"].tolist(), line.api["end"].tolist(), strict=True))
    assert all(ends[c] > end for c, end in zip(rows["correlation"][batch].tolist(), rows["end"][batch].tolist(), strict=True))
    # 8 MiB at 3 instead of 25 GB/s
    assert lost_ns("healthy", "pageable-copy:ranks=2") == pytest.approx(STEPS * (8 << 20) * (1 / 3 - 1 / 25), rel=0.1)
    fetching, well = run("healthy", "sync-copy:ranks=2"), run("healthy")
    line = fetching.timelines[2]
    starts, lengths = calls(line, "cudaMemcpy_v3020")
    assert len(starts) == STEPS * 12
    # 4 MiB at 25 GB/s, after the layer's kernels of 10 times 60 microseconds
    assert 500_000 < np.median(lengths) < 900_000
    assert (line.copies["kind"] == 2).sum() - (well.timelines[2].copies["kind"] == 2).sum() == STEPS * 12
    assert lost_ns("healthy", "sync-copy:ranks=2") == pytest.approx(STEPS * 12 * (168_000 + 50_000), rel=0.1)


@pytest.mark.parametrize(("direction", "kind"), [("to-device", 1), ("to-host", 2)])
def test_one_direction_is_slow_on_one_rank(direction, kind):
    slow = run("healthy", f"low-bandwidth:ranks=9:direction={direction}:factor=8")
    rates = []
    for line in slow.timelines:
        mine = line.copies["kind"] == kind
        rates.append(float(np.median((line.copies["bytes"] / (line.copies["end"] - line.copies["start"]))[mine])))
    assert rates[9] == pytest.approx(rates[8] / 8, rel=0.01)
    assert np.ptp([rate for rank, rate in enumerate(rates) if rank != 9]) == pytest.approx(0, abs=1e-9)
    if kind == 1:
        assert lost_ns("healthy", f"low-bandwidth:ranks=9:direction={direction}:factor=8") == pytest.approx(
            STEPS * 7 * (8 << 20) / 25, rel=0.2
        )


def test_a_slow_link_is_slow_for_everyone_on_it():
    slow, well = run("tensor-data", "low-bandwidth:ranks=5:direction=link:factor=3"), run("tensor-data")
    for group in slow.groups[1:]:
        took = [
            np.mean([min(i.ends.values()) - max(i.arrivals.values()) for i in one.collectives if one.groups[i.group] == group])
            for one in (slow, well)
        ]
        assert took[0] / took[1] == pytest.approx(3.0 if 5 in group.ranks else 1.0, rel=0.08)
    assert lost_ns("tensor-data", "low-bandwidth:ranks=5:direction=link:factor=3") > 1_000_000
