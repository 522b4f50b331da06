import numpy as np
import pytest
from tests.synth.faults.planting import LAYOUTS, STEPS, calls, idle_share, lost_ns, queued_ns, run

from alltrace.synth import SCENARIOS, write_run


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", LAYOUTS)
def test_launch_bound_kernels_start_as_soon_as_they_are_launched(name):
    bound, well = run(name, "launch-bound"), run(name)
    # where every layer waits for other ranks, what was launched meanwhile waits as well
    assert 1_000 <= np.median(queued_ns(bound.timelines[3])) <= (200_000 if name == "experts" else 1_010)
    assert np.median(queued_ns(well.timelines[3])) > 1_000_000
    if name in {"healthy", "sharded"}:
        assert idle_share(bound.timelines[3]) > 0.3
    assert idle_share(bound.timelines[3]) > 5 * idle_share(well.timelines[3])
    lengths = [one.timelines[3].kernels for one in (bound, well)]
    ratio = [np.median((k["end"] - k["start"])[k["stream"] == 7]) for k in lengths]
    assert ratio[0] == pytest.approx(ratio[1] / 4, rel=0.05)
    assert lost_ns(name, "launch-bound") > 5_000_000 * STEPS


def test_what_small_kernels_cost_the_device_is_no_loss_by_their_launches(tmp_path):
    size = {"ranks": 8, "microbatches": 4}

    def told(gap_ns):
        fault = f"launch-bound:gap_ns={gap_ns}"
        return write_run("pipeline", tmp_path, faults=(fault,), steps=STEPS, **size, ideal=True).faults[0]["lost_ns"]

    usual = SCENARIOS["pipeline"].work.host_gap_ns
    small = lost_ns("pipeline", f"launch-bound:gap_ns={usual}", **size)
    assert small > 1_000_000
    assert told(usual) == 0
    assert told(45_000) == lost_ns("pipeline", "launch-bound:gap_ns=45000", **size) - small


@pytest.mark.parametrize(
    ("text", "call", "kind"),
    [("sync", "cudaStreamSynchronize_v3020", 3), ("sync:device=true", "cudaDeviceSynchronize_v3020", 4)],
)
def test_needless_waits_after_every_layer(text, call, kind):
    synced, well = run("healthy", text), run("healthy")
    line = synced.timelines[2]
    assert len(calls(line, call)[0]) - len(calls(well.timelines[2], call)[0]) == STEPS * 24
    assert (line.syncs["type"] == kind).sum() >= STEPS * 24
    # the device waits for the host once in each layer: what the host does, and what comes before and after a launch
    lost = lost_ns("healthy", text)
    assert lost > STEPS * 24 * 60_000
    if kind == 3:
        assert lost == pytest.approx(STEPS * 24 * 70_000, rel=0.1)


def test_pauses_and_late_data_stop_the_device():
    paused, well = run("healthy", "host-pause:ranks=4:pause_ns=30000000:every=2"), run("healthy")
    line = paused.timelines[4]
    launches = np.sort(line.api["start"][line.api["thread"] == 0])
    longest = [np.diff(np.sort(one.timelines[4].api["start"])).max() for one in (paused, well)]
    assert longest[0] >= 30_000_000 > longest[1]
    assert len(launches) == (well.timelines[4].api["thread"] == 0).sum()
    assert lost_ns("healthy", "host-pause:ranks=4:pause_ns=30000000:every=2") == pytest.approx(2 * 28e6, rel=0.15)
    # no call and no range lies over it that is not there otherwise
    assert len(line.osrt) == len(well.timelines[4].osrt)
    stalled, well = run("healthy", "data-stall:ranks=1,2:stall_ns=12000000"), run("healthy")
    for rank, extra in ((1, 12e6), (2, 12e6), (3, 0)):
        lengths = []
        for one in (stalled, well):
            line = one.timelines[rank]
            mine = line.ranges["name"] == line.names.number("data")
            lengths.append((line.ranges["end"] - line.ranges["start"])[mine].mean())
        assert lengths[0] - lengths[1] == pytest.approx(extra, rel=0.1, abs=50_000)
    assert lost_ns("healthy", "data-stall:ranks=1,2:stall_ns=12000000") == pytest.approx(STEPS * 12e6, rel=0.1)
    assert lost_ns("healthy", "data-stall:every=2") == pytest.approx(lost_ns("healthy", "data-stall") / 2, rel=0.1)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_gap_that_nothing_explains(name):
    gapped = run(name, "idle-gap:ranks=7:gap_ns=3000000")
    line = gapped.timelines[7]
    mine = line.kernels["stream"] == 7
    starts, ends = line.kernels["start"][mine], line.kernels["end"][mine]
    gaps = starts[1:] - ends[:-1]
    found = np.flatnonzero(gaps >= 3_000_000)
    assert len(found) >= STEPS
    # work was queued long before: the launches are not to blame
    queued = queued_ns(line)[1:][found]
    assert (np.sort(queued)[-STEPS:] >= 3_000_000).all()
    assert lost_ns(name, "idle-gap:ranks=7:gap_ns=3000000") == pytest.approx(STEPS * 3e6, rel=0.25)


def test_allocations_around_every_layer_wait_for_the_device():
    allocating = run("healthy", "allocation:ranks=3")
    line = allocating.timelines[3]
    for name, least in (("cudaMalloc_v3020", 80_000), ("cudaFree_v3020", 500_000)):
        starts, lengths = calls(line, name)
        assert len(starts) == STEPS * 36 - STEPS * 12
        assert np.median(lengths) >= least
    assert lost_ns("healthy", "allocation:ranks=3") == pytest.approx(STEPS * 24 * 150_000, rel=0.25)
