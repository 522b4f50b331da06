"""Statistics of the sizes of copies and messages, worked out on paper; a megabyte is 10^6 bytes."""

from tests.making import copy, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import find_report


def test_sizes_of_copies(tmp_path):
    copies = [copy(10 * mb, 10 * mb + 5, bytes=mb * 1_000_000) for mb in (4, 1, 9, 2)]
    rows = ask(make_run(tmp_path / "run", {0: {"copies": copies}}), find_report("cuda_gpu_mem_size_sum")).table.to_pylist()
    assert rows == [
        {
            "Total (MB)": 16.0, "Count": 4, "Avg (MB)": 4.0, "Med (MB)": 3.0, "Min (MB)": 1.0, "Max (MB)": 9.0,
            "StdDev (MB)": 3.559, "Operation": "[CUDA memcpy Host-to-Device]",
        }
    ]  # fmt: skip


def test_sizes_of_messages(tmp_path):
    sends = [
        {
            "start": 10 * mb,
            "end": 10 * mb + 5,
            "name": "MPI_Send",
            "kind": "p2p",
            "bytes": mb * 1_000_000,
            "tag": 40 + mb,
            "peer": 1,
        }
        for mb in (6, 1, 2)
    ]
    run = make_run(tmp_path / "run", {0: {"mpi": sends}})
    assert ask(run, find_report("mpi_msg_size_sum")).table.to_pylist() == [
        {
            "Total Message Volume (MB)": 9.0, "Instances": 3, "Avg (MB)": 3.0, "Med (MB)": 2.0, "Min (MB)": 1.0, "Max (MB)": 6.0,
            "StdDev (MB)": 2.646, "Source": "p2p", "Name": "MPI_Send",
        }
    ]  # fmt: skip
    rows = ask(run, find_report("mpi_event_trace")).table.to_pylist()
    assert [(r["Start (ns)"], r["Tag"], r["Pid"], r["Tid"]) for r in rows] == [
        (10, 41, 4000, 4001),
        (20, 42, 4000, 4001),
        (60, 46, 4000, 4001),
    ]
