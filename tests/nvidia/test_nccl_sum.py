import pytest

from alltrace.align.store import aligned
from alltrace.recipes.execution.ask import ask
from alltrace.run.importer import import_reports
from alltrace.run.store import Run
from alltrace.synth import write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A simulated run whose reports name no communicator and no size, imported alone and with NCCL's logs."""
    folder = tmp_path_factory.mktemp("runs")
    write_run("tiny", folder / "in", logs=True, nvtx=False, ranks=4, hosts=1, ideal=True)
    logs = [str(p) for p in sorted((folder / "in" / "logs").glob("*")) if "train" not in p.name]
    import_reports([str(folder / "in")], folder / "alone", jobs=1)
    import_reports([str(folder / "in")], folder / "joined", jobs=1, nccl_logs=logs)
    return {name: Run(folder / name) for name in ("alone", "joined")}


@pytest.mark.slow
def test_sizes_and_types_come_from_the_logs(runs):
    alone, joined = ({k: t.table.to_pylist() for k, t in ask(r, "nccl_sum").further.items()} for r in runs.values())
    assert {r["Bytes"] for r in alone["operations"]} == {None}
    assert all(r["Bytes"] and r["Datatype"] and r["Ranks"] == 4 for r in joined["operations"])
    assert sum(r["Count"] for r in joined["operations"]) == sum(r["Count"] for r in alone["operations"]) > 0
    assert sum(r["Sum"] for r in joined["operations"]) == sum(r["Sum"] for r in alone["operations"]) > 0


def test_communicators_add_up_and_filters_let_operations_pass(runs):
    run = runs["joined"]
    answer = ask(run, "nccl_sum")
    operations, communicators = (answer.further[n].table.to_pylist() for n in ("operations", "communicators"))
    assert sum(r["Count"] for r in communicators) == sum(r["Count"] for r in operations)
    assert sum(r["Sum"] for r in communicators) == sum(r["Sum"] for r in operations)
    assert sum(r["Bytes"] for r in communicators) == sum(r["Bytes"] * r["Count"] for r in operations)
    assert {r["Rank"] for r in communicators} == {0, 1, 2, 3}
    aligned(run)
    (total,) = run.table("collectives").aggregate('count(*), sum("end" - start), sum(bytes)').fetchall()
    assert tuple(sum(r[c] for r in communicators) for c in ("Count", "Sum", "Bytes")) == tuple(int(v) for v in total)
    answer = ask(runs["alone"], "nccl_sum", {"start": 0})
    assert answer.table.num_rows == 0
    assert answer.further["operations"].table.num_rows
    assert not any("nothing passes" in note for note in answer.notes)
