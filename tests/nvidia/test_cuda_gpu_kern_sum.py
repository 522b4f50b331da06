import time
from dataclasses import replace
from types import SimpleNamespace

from tests.making import kernel, make_run

from alltrace.recipes.execution.ask import ask


def test_quartiles_over_ranks_are_exact_and_files_hold_the_extremes(tmp_path):
    lengths = {0: (10, 20), 1: (10, 50, 60), 2: (5000,)}
    ranks = {
        r: {"kernels": [kernel(9000 * i, 9000 * i + n, "x" if r == 2 else "k") for i, n in enumerate(ns)]}
        for r, ns in lengths.items()
    }
    answer = ask(make_run(tmp_path / "run", ranks), "cuda_gpu_kern_sum")
    x, k = answer.table.to_pylist()
    assert (x["Name"], x["Time"], x["Total Time"], x["Min File"]) == ("x", 97.1, 5000, "rank2")
    assert {c: k[c] for c in ("Instances", "Avg", "Q1", "Med", "Q3", "Min", "Max", "Min File", "Max File")} == {
        "Instances": 5, "Avg": 30.0, "Q1": 10.0, "Med": 20.0, "Q3": 50.0, "Min": 10, "Max": 60,
        "Min File": "rank0, rank1", "Max File": "rank1",
    }  # fmt: skip
    ranks_table = answer.further["rank_stats"].table.to_pylist()
    assert [(r["File"], r["Time"], r["Total Time"]) for r in ranks_table] == [
        ("rank0", 100.0, 30), ("rank1", 100.0, 120), ("rank2", 100.0, 5000),
    ]  # fmt: skip


def test_ranks_of_one_report_are_told_apart(tmp_path):

    from alltrace.nvidia.recipe import files

    run = make_run(tmp_path / "run", {r: {"kernels": [kernel(0, 5)]} for r in (0, 1, 2)})
    report = run.manifest.reports[0]._replace(path="a/one.nsys-rep")

    class Facts:
        manifest = replace(
            run.manifest, reports=(report, report._replace(path="b/one_pqtdir"), report._replace(path="two.json.gz"))
        )
        ranks = run.ranks

    assert files(Facts()) == {0: "one rank 0", 1: "one rank 1", 2: "two"}


def test_thousands_of_reports_are_told_apart_in_no_time():
    from alltrace.nvidia.recipe import files

    ranks = [SimpleNamespace(rank=r, reports=(r,)) for r in range(12_000)]
    reports = [SimpleNamespace(path=f"reports/profile_rank{r.rank:05d}.nsys-rep") for r in ranks]
    began = time.process_time()
    names = files(SimpleNamespace(ranks=ranks, manifest=SimpleNamespace(reports=reports)))
    assert time.process_time() - began < 0.8
    assert len(set(names.values())) == len(ranks)
