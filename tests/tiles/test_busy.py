import numpy as np
from tests.making import copy, kernel, make_run
from tests.together import together

from alltrace.tiles.busy import binned_parts, runs_of
from alltrace.tiles.events import EventReader
from alltrace.tiles.rank_tiles import parts_of
from alltrace.tiles.tracks import COMMUNICATION_CODE, COMPUTE, COPY
from alltrace.trace.intervals import bin_coverage_ns, merge

CODES = np.array([COMPUTE, COMMUNICATION_CODE, COPY], np.int8)


@together("seed", range(12))
def test_one_pass_gives_what_the_set_operations_give(seed):
    draw = np.random.default_rng(seed)
    level, bins, first = int(draw.integers(0, 9)), int(draw.integers(1, 40)), int(draw.integers(-500, 500))
    parts = []
    for _ in range(draw.integers(1, 5)):
        n = int(draw.integers(0, 60))
        start = draw.integers(first - 300, first + (bins << level) + 300, n)
        parts.append((start, start + draw.integers(0, 200, n), CODES[draw.integers(0, 3, n)]))
    edges = first + (np.arange(bins + 1) << level)
    starts, ends, codes = (np.concatenate([p[i] for p in parts]) for i in range(3))
    sets = parts_of(*(merge(starts[codes == c], ends[codes == c]) for c in CODES))
    expected = [bin_coverage_ns(sets[p], edges) for p in ("compute", "exposed_communication", "exposed_copy")]
    assert binned_parts(parts, first, level, bins).tolist() == np.array(expected).tolist()


def test_rows_of_a_window_are_found_under_a_longer_one_before_them(tmp_path):
    rows = {
        "kernels": [
            kernel(0, 1000, stream=7),
            kernel(10, 20, stream=7),
            kernel(500, 510, stream=7),
            kernel(5, 8, stream=9),
            kernel(600, 700, device=1, stream=9),
        ],
        "copies": [copy(100, 200)],
        "devices": [{"device": d, "ordinal": d, "uuid": f"GPU-{d}", "name": "H200"} for d in (0, 1)],
    }
    run = make_run(tmp_path / "run", {0: rows})
    found = [(r.device, r.start.tolist(), r.reach.tolist()) for r in runs_of(run.rank(0), "kernels", 0)]
    assert found == [(0, [0, 10, 500], [1000, 1000, 1000]), (0, [5], [8]), (1, [600], [700])]
    reader = EventReader(run)
    did = {d: sorted(s for p in parts for s in p[0].tolist()) for d, parts in reader.busy(0, 100, 120).items()}
    assert did == {0: [0, 10, 100]}, "nothing of what began later, and what may reach into it"
    assert sorted(reader.busy(0, 0, 1000)) == [0, 1]
    assert reader.busy(0, 2000, 3000) == {}
    assert run.rank(0).constant("kernels", 0, "stream") is None
    assert run.rank(0).constant("copies", 0, "device") == 0
