import dataclasses
import json

import numpy as np
import pytest

from alltrace.synth import SCENARIOS, Truth, write_run
from alltrace.synth.identity import identities
from alltrace.synth.kernels import nccl_kernel_index
from alltrace.synth.simulate import SimulatedRun
from alltrace.synth.timeline import Timeline
from alltrace.synth.truth import describe


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return write_run("straggler", tmp_path_factory.mktemp("run"), steps=3, ideal=True)


def test_times_of_a_device_are_counted_once():
    scenario = SCENARIOS["tiny"].override(ranks=1, hosts=1, ideal=True)
    line = Timeline()
    nccl = nccl_kernel_index("AllReduce")
    for start, end, kernel in ((100, 200, 0), (200, 260, 1), (180, 230, nccl), (250, 400, nccl), (300, 350, nccl)):
        line.kernels.add(start, end, 7, 1, kernel)
    line.copies.add(390, 420, 7, 1, 8, 1, 1, 2)
    line.memsets.add(500, 510, 7, 1, 8)
    run = SimulatedRun(scenario, (), [line], np.zeros((1, 0, 2), np.int64), [])
    found = describe(run, identities(scenario)).ranks[0]
    assert {name: found[name] for name in ("compute_ns", "communication_ns", "exposed_ns", "copy_ns", "idle_ns")} == {
        "compute_ns": 160,
        "communication_ns": 200,
        "exposed_ns": 140,
        "copy_ns": 40,
        "idle_ns": 80,
    }


def test_the_file_has_the_planted_fault_and_its_cost(truth):
    read = Truth.read(truth.folder)
    assert json.loads(json.dumps(dataclasses.asdict(truth), default=str)) == json.loads(
        json.dumps(dataclasses.asdict(read), default=str)
    )
    assert [path.name for path in read.reports] == [f"straggler_rank{rank}.sqlite" for rank in range(16)]
    assert all(path.is_file() for path in read.reports)
    (fault,) = truth.faults
    assert (fault["kind"], list(fault["ranks"]), fault["factor"]) == ("slow-rank", [11], 1.25)
    # a quarter of the compute time of three steps, which is about 26 ms each
    assert fault["lost_ns"] == pytest.approx(3 * 0.25 * 26e6, rel=0.1)
    compute = np.array([rank["compute_ns"] for rank in truth.ranks])
    exposed = np.array([rank["exposed_ns"] for rank in truth.ranks])
    assert compute[11] / np.delete(compute, 11).mean() == pytest.approx(1.25, rel=0.02)
    assert exposed.argmin() == 11


def test_collectives_are_in_order_with_one_row_for_each_member(truth):
    table = truth.collectives()
    assert table.num_rows == 16 * 3 * 4
    assert table["rank"].to_pylist()[:17] == [*range(16), 0]
    assert table["sequence"].to_pylist()[::16] == list(range(12))
    arrivals = np.array(table["arrival_ns"]).reshape(12, 16)
    assert (arrivals.argmax(axis=1) == 11).all()
    assert np.ptp(np.array(table["end_ns"]).reshape(12, 16), axis=1).max() <= 2_000


def test_a_run_of_one_rank_has_an_empty_table(tmp_path):
    table = write_run("tiny", tmp_path, ranks=1, hosts=1, ideal=True).collectives()
    assert table.num_rows == 0
    assert str(table.schema.field("arrival_ns").type) == "int64"


def test_a_truth_that_was_not_written_has_no_files(truth):
    alone = dataclasses.replace(truth, folder=None)
    assert alone.reports == []
    with pytest.raises(RuntimeError, match="not written"):
        alone.collectives()
