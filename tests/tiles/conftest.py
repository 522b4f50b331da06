import pytest
from tests.making import collective, copy, kernel, make_run

from alltrace.align.store import aligned
from alltrace.tiles.build import pyramid
from alltrace.tiles.view import View

US = 1000


def ranges(rows):
    return [{"kind": "pushpop", "depth": d, "start": s, "end": e, "name": n} for s, e, n, d in rows]


def rank_rows(shift=0):
    """Compute from 0 to 40 us and 50 to 60, a collective from 30 to 50 us that rank 1 joins later, a copy at 70 to
    80."""
    return {
        "kernels": [
            kernel(0, 40 * US, correlation=5),
            collective((30 + shift) * US, 50 * US),
            kernel(50 * US, 60 * US, "void softmax_kernel(int)"),
        ],
        "copies": [copy(70 * US, 80 * US)],
        "api": [
            {"start": -20 * US, "end": -10 * US, "correlation": 5, "name": "cudaLaunchKernel_v7000"},
            {"start": -19 * US, "end": -15 * US, "correlation": 5, "name": "cuLaunchKernel"},
        ],
        "ranges": ranges([(-40 * US, 90 * US, "step 0", 0), (-30 * US, -5 * US, "forward", 1)]),
    }


@pytest.fixture
def run(tmp_path):
    """Two ranks on one host; times before zero among them."""
    return make_run(tmp_path / "run", {0: rank_rows(), 1: rank_rows(5)})


@pytest.fixture
def view(run):
    """The run, aligned, with its pyramid."""
    aligned(run)
    return View(run, pyramid(run, jobs=1))


@pytest.fixture
def waiting(tmp_path):
    """Two ranks with four collectives every 100 us from 30 to 50 us; rank 1 comes 5 us late to the second and
    fourth."""

    def rows(late):
        lateness = [late * (i % 2) for i in range(4)]
        kernels = [collective((30 + 100 * i + n) * US, (50 + 100 * i) * US) for i, n in enumerate(lateness)]
        return {"kernels": [kernel(0, 10 * US), *kernels]}

    run = make_run(tmp_path / "waiting", {0: rows(0), 1: rows(5)})
    aligned(run)
    return View(run, pyramid(run, jobs=1))


def busy_run(folder, count=4000, ranks=1):
    """Ranks whose stream has `count` kernels of 60 ns every 100 ns, and ranges as many."""
    rows = {
        "kernels": [kernel(100 * i, 100 * i + 60) for i in range(count)],
        "ranges": ranges([(100 * i, 100 * i + 30, f"r{i % 7}", 0) for i in range(count)]),
        "gpu_metrics": [
            {"time": 50 * i, "device": 0, "metric": "SM Active", "value": float(i % 100)} for i in range(2 * count)
        ],
    }
    return make_run(folder, dict.fromkeys(range(ranks), rows))
