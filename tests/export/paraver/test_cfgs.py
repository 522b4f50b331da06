import re

import pytest
from tests.making import collective, copy, kernel, make_run
from tests.paraver_checks import well_formed

from alltrace.export.paraver.cfgs import views_of
from alltrace.export.paraver.writer import export_paraver
from alltrace.export.selection import select
from alltrace.readers.paraver import labels as ev

ROWS = {
    "kernels": [kernel(0, 10), collective(2, 8)],
    "copies": [copy(3, 5)],
    "gpu_metrics": [{"time": 4, "metric": 'SM "../x" Active', "value": 3.0}],
}


def test_a_folder_beside_the_trace_chooses_by_label(tmp_path):
    run = make_run(tmp_path / "run", {0: ROWS})
    for _ in range(2):  # the second takes the place of the first
        files = export_paraver(select(run), tmp_path / "out.prv", cfgs=True).files
    well_formed(tmp_path / "out.prv")
    assert [f.name for f in files] == ["out.prv", "out.row", "out.pcf", "out-cfgs"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out-cfgs", "out.pcf", "out.prv", "out.row", "run"]
    found = sorted(str(p.relative_to(tmp_path / "out-cfgs")) for p in (tmp_path / "out-cfgs").rglob("*.cfg"))
    assert "basics/kernels.cfg" in found
    assert "hwcounters/001_gpu_sm_x_active.cfg" in found
    assert "basics/mpi.cfg" not in found  # the trace has none
    text = (tmp_path / "out-cfgs" / "views" / "device_activities.cfg").read_text()
    assert text.startswith("#ParaverCFG\n")
    assert 'window_filter_module evt_type_label 3 "CUDA kernel" "NCCL kernel" "CUDA memory transfer"' in text
    assert "window_filter_module evt_type 3 63000006 63000207 63000001" in text
    assert text.count("{") == text.count("}")
    metric = (tmp_path / "out-cfgs" / "hwcounters" / "001_gpu_sm_x_active.cfg").read_text()
    assert "evt_type_label 1 \"GPU SM '../x' Active\"" in metric


def test_every_view_has_labels_and_samples_theirs():
    known = {"CUDA kernel": 1}
    views = [v for v, _ in views_of([ev.EventType({n: label for label, n in known.items()})])]
    assert {v.name for v in views} >= {"states", "launch_latency", "kernels", "useful_device"}
    assert "mpi" not in {v.name for v in views}
    sampled = {
        9401: "GPU Compute Warps in Flight [Throughput %]",
        9402: "GPU Tensor Active [Throughput %]",
        9403: "NIC Tensor active",
    }
    found = {view.name: (view.folder, types) for view, types in views_of([ev.EventType(sampled)])}
    assert found["occupancy"] == ("analysis", {sampled[9401]: 9401})
    assert found["mfu"] == ("analysis", {sampled[9402]: 9402})
    assert not {"occupancy", "mfu"} & {view.name for view, _ in views_of([ev.EventType({1: "CUDA kernel"})])}


WHOLE = {
    **ROWS,
    "kernels": [kernel(0, 10, correlation=1), collective(2, 8)],
    "api": [{"start": 0, "end": 1, "name": "cudaLaunchKernel", "kind": "runtime", "correlation": 1}],
    "mpi": [{"start": 0, "end": 5, "name": "MPI_Allreduce", "kind": "collective", "bytes": 8}],
    "collectives": [{"start": 2, "end": 8, "op": "AllReduce", "bytes": 64, "stream": 20}],
    "ranges": [{"start": 0, "end": 9, "name": "step", "kind": "pushpop"}],
    "graphs": [{"start": 0, "end": 3, "graph": 4}],
    "nic_metrics": [{"start": 1, "end": 2, "metric": "Bytes sent", "value": 5.0}],
}
TOPICS = {
    "basics": {"states", "cuda_calls", "kernels", "nccl_kernels", "memory_transfers", "nccl_operations", "mpi",
        "graphs", "nvtx",
               "nvtx_depth"},
    "views": {"device_activities", "all_activities"},
    "analysis": {"useful_device", "overlap", "exposed_nccl", "kernels_in_flight", "launch_latency", "copy_bandwidth",
        "copy_sizes",
                 "nccl_sizes", "mpi_sizes", "kernel_duration", "kernels_running", "nccl_running", "launches_queued"},
    "hwcounters": {"001_gpu_sm_x_active", "002_nic_bytes_sent"},
}  # fmt: skip


@pytest.mark.parametrize("ids", ["extrae", "nsys2prv"])
def test_each_topic_has_its_views_and_all_their_types_are_in_the_trace(tmp_path, ids):
    export_paraver(select(make_run(tmp_path / "run", {0: WHOLE})), tmp_path / "out.prv", cfgs=True, ids=ids)
    well_formed(tmp_path / "out.prv")
    folder = tmp_path / "out-cfgs"
    assert {f.name: {p.stem for p in f.iterdir()} for f in folder.iterdir()} == TOPICS
    known = {n: label for e in ev.read_pcf(tmp_path / "out.pcf") for n, label in e.types.items()}
    assert (
        ("CUDA memcpy kernel" in known.values())
        == ("NVTX pushpop ranges default domain" in known.values())
        == (ids != "extrae")
    )
    names = (tmp_path / "out.pcf").read_text()
    assert all((f"{metric}\nPRECISION 2\n" in names) == (ids == "extrae") for metric in ('x" Active', "NIC Bytes sent"))
    for path in folder.rglob("*.cfg"):
        text = path.read_text()
        numbers = re.findall(r"^window_filter_module evt_type (\d+) (.*)$", text, re.MULTILINE)
        labels = re.findall(r"^window_filter_module evt_type_label (\d+) (.*)$", text, re.MULTILINE)
        for (count, types), (again, names) in zip(numbers, labels, strict=True):
            found = re.findall(r'"([^"]*)"', names)
            assert int(count) == int(again) == len(found) == len(types.split())
            assert [known[int(n)].replace('"', "'") for n in types.split()] == found
        windows = text.count("< NEW DISPLAYING WINDOW")
        assert f"ConfigFile.NumWindows: {windows}\n" in text
        assert [int(n) for n in re.findall(r"^window_id (\d+)$", text, re.MULTILINE)] == list(range(1, windows + 1))
        assert len(re.findall(r"^window_open true$", text, re.MULTILINE)) == 1
    overlap = (folder / "analysis" / "overlap.cfg").read_text()
    assert "window_type composed\nwindow_id 3\n" in overlap
    assert "window_operation product\nwindow_identifiers 1 2\n" in overlap
    latency = (folder / "analysis" / "launch_latency.cfg").read_text()
    assert "window_filter_module tag_msg 2 55001 55002\n" in latency
    assert "{thread, Last Send Dur.}" in latency


def test_views_without_nccl_or_events_are_left_out(tmp_path):
    files = {v.name for v, _ in views_of([ev.EventType({63000006: "CUDA kernel"})])}
    assert "useful_device" in files
    assert not files & {"overlap", "exposed_nccl", "nccl_running"}

    def names(rows):
        folder = tmp_path / "2" / f"{len(rows)}"
        export_paraver(select(make_run(folder / "run", {0: rows})), folder / "out.prv", cfgs=True)
        return {p.stem for p in (folder / "out-cfgs").rglob("*.cfg")}

    without_types = {"states", "launch_latency", "launches_queued"}
    assert names({}) == without_types
    of_kernels = {"kernels", "useful_device", "kernels_running", "kernels_in_flight", "kernel_duration"}
    assert names({"kernels": [kernel(0, 10)]}) == without_types | of_kernels | {"device_activities", "all_activities"}
    waits = {
        "mpi": [{"start": 0, "end": 5, "name": "MPI_Wait", "kind": "start-wait"}],
        "graphs": [{"start": 0, "end": 3}],
    }
    assert names(waits) == without_types | {"mpi", "graphs"}
