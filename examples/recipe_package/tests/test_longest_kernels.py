import alltrace
from alltrace.synth import write_run


def test_the_longest_execution_of_all_ranks_counts(tmp_path):
    write_run("tiny", tmp_path / "reports")
    run = alltrace.open(tmp_path / "reports", cache_dir=tmp_path / "cache")
    rows = run.recipe("longest-kernels").to_arrow()
    wanted = (
        run.table("kernels").aggregate('name, max("end" - start) AS longest_ns', "name").order("longest_ns DESC, name")
    )
    assert rows.to_pylist() == [{"name": name, "longest_ns": longest} for name, longest in wanted.fetchall()]
