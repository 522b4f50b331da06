import numpy as np
import pytest
from tests.making import make_run

from alltrace.recipes.execution.ask import ask


def spans(name, *lengths, **others):
    return [{"start": 1000 * i, "end": 1000 * i + n, "name": name, "kind": "pushpop", **others} for i, n in enumerate(lengths)]


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    ranks = {
        0: [*spans("a", 10, 20, 40), *spans("b", 7), *spans("c", 0), {"start": 5, "name": "d", "kind": "pushpop"}],
        3: [*spans("a", 100), *spans("a", 1, domain="NCCL"), *spans("n", 3, domain="NCCL"), *spans("b", 9)],
    }
    return ask(make_run(tmp_path_factory.mktemp("nvtx") / "run", {r: {"ranges": rows} for r, rows in ranks.items()}), "nvtx_sum")


def test_statistics_over_all_ranks_and_of_each(answer):
    rows = {r["Text"]: r for r in answer.table.to_pylist()}
    # a name that two domains have is told apart, one that a single domain has is not
    assert list(rows) == ["NCCL:a", "a", "b", "n"]
    values = [10, 20, 40, 100]
    q1, median, q3 = np.percentile(values, [25, 50, 75])
    assert rows["a"] == {
        "Text": "a", "Count": 4, "Mean": 42.5, "Std (approx)": round(np.std(values, ddof=1), 1), "Min": 10,
        "Q1 (approx)": q1, "Median (approx)": median, "Q3 (approx)": q3, "Max": 100, "Sum": 170,
    }  # fmt: skip
    assert rows["n"]["Std (approx)"] is None
    table = answer.further["rank_stats"].table
    assert [(r["Rank"], r["File"], r["Text"], r["Sum"]) for r in table.to_pylist()] == [
        (0, "rank0", "a", 70), (0, "rank0", "b", 7),
        (3, "rank3", "NCCL:a", 1), (3, "rank3", "a", 100), (3, "rank3", "b", 9), (3, "rank3", "n", 3),
    ]  # fmt: skip
    assert table.column("Std").to_pylist()[0] == pytest.approx(np.std([10, 20, 40], ddof=1))
    assert answer.further["files"].table.to_pylist() == [{"File": "rank0", "Rank": 0}, {"File": "rank3", "Rank": 3}]
