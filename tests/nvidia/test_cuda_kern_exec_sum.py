"""Three launches of one kernel by one thread, with statistics of their phases computed by hand."""

import pytest
from tests.making import kernel, make_run
from tests.recipes.work import call

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import find_report

API = [call(10, 60, 1), call(150, 220, 2), call(300, 390, 3)]
# the first two wait in the queue for 40 and 20 ns, the third begins within its call
KERNELS = [kernel(100, 110, correlation=1), kernel(240, 270, correlation=2), kernel(350, 355, correlation=3)]


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", {0: {"api": API, "kernels": KERNELS}})


def test_phases_of_each_launch_and_their_statistics(run):
    (row,) = ask(run, find_report("cuda_kern_exec_sum")).table.to_pylist()
    assert row == {
        "PID": 4000, "TID": 4001, "DevId": 0, "Count": 3, "QCount": 2,
        # call and kernel together: 100, 120 and 90
        "TAvg (ns)": 103.3, "TMed (ns)": 100.0, "TMin (ns)": 90, "TMax (ns)": 120, "TStdDev (ns)": 15.3,
        # the calls: 50, 70 and 90
        "AAvg (ns)": 70.0, "AMed (ns)": 70.0, "AMin (ns)": 50, "AMax (ns)": 90, "AStdDev (ns)": 20.0,
        # in the queue: 40 and 20
        "QAvg (ns)": 30.0, "QMed (ns)": 30.0, "QMin (ns)": 20, "QMax (ns)": 40, "QStdDev (ns)": 14.1,
        # the kernels: 10, 30 and 5
        "KAvg (ns)": 15.0, "KMed (ns)": 10.0, "KMin (ns)": 5, "KMax (ns)": 30, "KStdDev (ns)": 13.2,
        "API Name": "cudaLaunchKernel", "Kernel Name": "void gemm_kernel(int)",
    }  # fmt: skip
    rows = ask(run, find_report("cuda_kern_exec_trace")).table.to_pylist()
    assert [(r["API Dur (ns)"], r["Queue Dur (ns)"], r["Kernel Dur (ns)"], r["Total Dur (ns)"]) for r in rows] == [
        (50, 40, 10, 100),
        (70, 20, 30, 120),
        (90, None, 5, 90),
    ]
    assert {(r["PID"], r["TID"], r["Kernel Name"]) for r in rows} == {(4000, 4001, "void gemm_kernel(int)")}
