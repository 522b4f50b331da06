import pytest
from tests.charts.answers import HOSTILE
from tests.making import collective, kernel, make_run

MS = 1_000_000


@pytest.fixture
def hostile_run(tmp_path):
    """Four ranks whose kernels and ranges have names that attack whoever shows them; rank 4 has no report."""
    rows = {}
    for rank in range(4):
        rows[rank] = {
            "kernels": [
                *(kernel(n * 10 * MS, (n * 10 + 8 + rank) * MS, name) for n, name in enumerate(HOSTILE)),
                collective((len(HOSTILE) * 10 + rank) * MS, (len(HOSTILE) * 10 + 9) * MS),
            ],
            "ranges": [{"start": 0, "end": 60 * MS, "name": HOSTILE[0]}],
        }
    return make_run(tmp_path / "run", rows, missing=(4,), notes=("rank 4: no report",))
