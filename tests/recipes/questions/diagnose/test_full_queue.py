"""Launches that wait for a place in a full queue: the device is behind, and no host is to blame for it."""

from __future__ import annotations

import pytest
from tests.making import collective, kernel, make_run

US, PLACES, STEPS, KERNELS = 1000, 1024, 4, 1500
OF_HOST = {"launch-bound", "sync", "host-pause", "module-loading", "allocation", "idle-gap", "unexplained"}


def launching(took_us, launch_us):
    """A rank that launches while places are free; yields when it meets the others, and is sent when they part."""
    tables, host, device, begins = {"kernels": [], "api": [], "ranges": []}, 0, 0, []
    for step in range(STEPS):
        begun = host
        for n in range(KERNELS):
            number, start = len(begins), host
            host += launch_us * US
            if number >= PLACES:
                host = max(host, begins[number - PLACES])
            begins.append(max(device, host + 4 * US))
            # the first launch of a kernel takes long in a full queue, and loads nothing
            name = f"rare_{step}(int)" if n == KERNELS - 5 else "gemm_kernel(int)"
            meets = n == KERNELS - 1
            end = (yield begins[-1]) if meets else begins[-1] + took_us * US
            row = (begins[-1], end) if meets else (begins[-1], end, name)
            tables["kernels"].append((collective if meets else kernel)(*row, correlation=number))
            tables["api"].append({"start": start, "end": host, "name": "cudaLaunchKernel", "correlation": number})
            host, device = host + US, end + US
        tables["ranges"].append({"start": begun, "end": host, "name": f"step {step}"})
    return tables


def job(folder, took_us, launch_us):
    ranks = [launching(*both) for both in zip(took_us, launch_us, strict=True)]
    reached = [next(rank) for rank in ranks]
    tables = {}
    while len(tables) < len(ranks):
        end, before, reached = max(reached) + 200 * US, reached, []
        assert len(before) == len(ranks)
        for number, rank in enumerate(ranks):
            try:
                reached.append(rank.send(end))
            except StopIteration as ended:
                tables[number] = ended.value
    return make_run(folder, tables)


@pytest.mark.parametrize(
    ("took_us", "launch_us", "kind", "culprits", "share"),
    [
        ((26, 20, 20), (3, 3, 3), "straggler", [0], 6 / 27),
        ((20, 20, 20), (3, 3, 3), None, [], 0),
        ((8, 8, 8), (1, 1, 14), "launch-bound", [2], 3 / 15),  # of 7 us without work 4 are how long a launch takes
    ],
)
def test_a_full_queue_is_never_the_hosts(tmp_path, took_us, launch_us, kind, culprits, share):
    rows = [r for r in job(tmp_path / "run", took_us, launch_us).recipe("diagnose").to_pylist() if r["lost_share"]]
    assert {r["kind"] for r in rows} & OF_HOST <= {kind}
    if kind is not None:
        assert (rows[0]["kind"], rows[0]["ranks"]) == (kind, culprits)
        assert rows[0]["lost_share"] == pytest.approx(share, abs=0.01)
