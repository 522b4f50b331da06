"""GPU events of Perfetto read back: who ran what where, on which GPU, and which call launched it."""

import gzip

import pytest
from tests.making import copy, kernel, make_run
from tests.viewer_traces import names_of, slices_of

from alltrace.cli.main import main
from alltrace.export.perfetto import export_by_host, export_perfetto
from alltrace.export.selection import select
from alltrace.recipes.questions.sql import query

trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", exc_type=ImportError)
unknown_fields = pytest.importorskip("google.protobuf.unknown_fields")
CALL = {"name": "cudaLaunchKernel", "kind": "runtime"}
UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
LAUNCH = {"grid_x": 256, "grid_y": 3, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}


def rows(rank):
    """A launch of a kernel, one of a graph with two kernels and a copy, a copy, and a kernel of which the call is not
    recorded."""
    return {
        "devices": [
            {
                "device": 0,
                "ordinal": 0,
                "uuid": UUID if rank == 0 else f"GPU-{rank}",
                "bus_id": "0000:01:00.0",
                "name": "H100",
            }
        ],
        "api": [
            {"start": 1000, "end": 1400, "correlation": 1, **CALL},
            {"start": 1500, "end": 1600, "correlation": 2, "name": "cudaGraphLaunch", "kind": "runtime"},
            {"start": 1700, "end": 1750, "correlation": 3, "name": "cudaMemcpyAsync", "kind": "runtime"},
        ],
        "kernels": [
            kernel(
                2000, 2500, "void first<int>(int)", correlation=1, registers=40, dynamic_shared_memory=4096, **LAUNCH
            ),
            kernel(3000, 3100, "void second(int)", correlation=2),
            kernel(3100, 3300, "void first<int>(int)", correlation=2, stream=9, **LAUNCH),
            kernel(5000, 5100, "void second(int)"),
        ],
        "copies": [copy(4000, 4200, correlation=3), copy(4300, 4400, correlation=2)],
    }


def exported(run, path):
    (file,), slices, _ = export_perfetto(select(run), path, aligned=run.aligned(), gpu_events=True)
    trace = trace_pb2.Trace()
    data = file.read_bytes()
    trace.ParseFromString(gzip.decompress(data) if file.name.endswith(".gz") else data)
    return trace, slices


def extension(message, number):
    """The bytes of the extension fields of a number."""
    return [f.data for f in unknown_fields.UnknownFieldSet(message) if f.field_number == number]


def interned(trace):
    """By sequence of packets what they refer to, and the names of kernels among that."""
    known = {}
    for packet in trace.packet:
        if packet.HasField("interned_data"):
            assert packet.sequence_flags == 1
            assert packet.trusted_packet_sequence_id not in known
            kernels = {}
            for data in extension(packet.interned_data, 1000):
                found = trace_pb2.InternedComputeKernel.FromString(data)
                kernels[found.iid] = (found.name, found.demangled_name)
            known[packet.trusted_packet_sequence_id] = packet.interned_data, kernels
    return known


def events(trace):
    """The GPU events with their times, and what they refer to."""
    known = interned(trace)
    queues = [s.iid for data, _ in known.values() for s in data.gpu_specifications if s.iid > 3]
    assert len(set(queues)) == len(queues)
    gpus = next(p.gpu_info.gpus for p in trace.packet if p.HasField("gpu_info"))
    found, last = [], 0
    for p in trace.packet:
        assert p.timestamp >= last or not p.timestamp
        last = max(last, p.timestamp)
        if p.HasField("gpu_render_stage_event"):
            e = p.gpu_render_stage_event
            assert p.sequence_flags == 2
            data, kernels = known[p.trusted_packet_sequence_id]
            specifications = {s.iid: s.name for s in data.gpu_specifications}
            names = {n.iid: n.name for n in data.event_names}
            pids = {c.iid: (c.pid, c.api) for c in data.graphics_contexts}
            about = {
                "at": (p.timestamp, e.duration),
                "queue": specifications[e.hw_queue_iid],
                "stage": specifications[e.stage_iid],
                "name": names[e.name_iid],
                "kernel": kernels.get(e.kernel_iid),
                "gpu": gpus[e.gpu_id],
                "context": pids[e.context],
                "event": e,
            }
            found.append(about)
    return found


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    run = make_run(folder / "run", {0: rows(0), 1: rows(1)})
    return exported(run, folder / "out.pftrace.gz")


def test_each_kernel_and_copy_is_an_event_of_its_gpu_and_queue(trace):
    found, slices = events(trace[0]), trace[1]
    assert slices == 2 * (6 + 3)
    assert len(found) == 12
    first = [e for e in found if e["context"][0] == 4000]
    assert [(e["at"], e["queue"], e["stage"], e["name"]) for e in first] == [
        ((1000, 500), "rank 0 GPU0 stream 7", "kernel", "first<int>"),
        ((2000, 100), "rank 0 GPU0 stream 7", "kernel", "second"),
        ((2100, 200), "rank 0 GPU0 stream 9", "kernel", "first<int>"),
        ((3000, 200), "rank 0 GPU0 stream 30", "copy", "memcpy HtoD"),
        ((3300, 100), "rank 0 GPU0 stream 30", "copy", "memcpy HtoD"),
        ((4000, 100), "rank 0 GPU0 stream 7", "kernel", "second"),
    ]
    assert [e["kernel"] for e in first] == [
        ("first<int>", "void first<int>(int)"),
        ("second", "void second(int)"),
        ("first<int>", "void first<int>(int)"),
        None,
        None,
        ("second", "void second(int)"),
    ]
    assert {e["gpu"].uuid for e in first} == {bytes.fromhex(UUID.removeprefix("GPU-").replace("-", ""))}
    assert {(e["gpu"].name, e["gpu"].pci_bdf, e["gpu"].uuid) for e in found if e not in first} == {
        ("H100", "0000:01:00.0", b"")
    }
    assert {e["context"] for e in found} == {(4000, 4), (4001, 4)}


def test_launches_have_their_geometry_and_calls_stay_slices(trace):
    first = events(trace[0])[0]["event"]
    assert (first.launch.grid_size.x, first.launch.grid_size.y, first.launch.grid_size.z) == (256, 3, 1)
    assert (first.launch.workgroup_size.x, first.launch.workgroup_size.y, first.launch.workgroup_size.z) == (128, 1, 1)
    names = {}
    for data in extension(interned(trace[0])[2][0], 1001):
        found = trace_pb2.InternedComputeArgName.FromString(data)
        names[found.iid] = found.name
    assert {names[a.name_iid]: a.uint_value for a in first.launch.args} == {
        "registers_per_thread": 40,
        "shared_mem_dynamic": 4096,
    }
    without = next(e["event"] for e in events(trace[0]) if e["name"] == "second")
    assert not without.HasField("launch")
    labels = {label for _, label in names_of(trace[0]).values()}
    assert not any("stream" in label for label in labels)
    assert {s[3] for s in slices_of(trace[0])} == {"cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync"}


def test_calls_name_the_first_work_that_they_launched(trace):
    trace = trace[0]
    launched = {}
    for p in trace.packet:
        for data in extension(p.track_event, 3000) if p.HasField("track_event") else ():
            assert data[0] == 1 << 3  # render_stage_submission_event_ids
            number = 0
            for place, byte in enumerate(data[1:]):
                number |= (byte & 127) << 7 * place
            launched.setdefault(p.track_event.name, []).append(number)
    ids = [e["event"].event_id for e in events(trace)]
    assert len(set(ids)) == len(ids) == 12
    by_id = {e["event"].event_id: (e["name"], e["at"][0]) for e in events(trace)}
    assert {name: [by_id[n] for n in its] for name, its in launched.items()} == {
        "cudaLaunchKernel": [("first<int>", 1000)] * 2,
        "cudaGraphLaunch": [("second", 2000)] * 2,
        "cudaMemcpyAsync": [("memcpy HtoD", 3000)] * 2,
    }


def test_viewers_name_roles_and_gpus_of_each_host(tmp_path):
    run = make_run(tmp_path / "run", {0: rows(0), 1: rows(1)}, roles={1: "trainer"})
    labels = {label for _, label in names_of(exported(run, tmp_path / "out.pftrace")[0]).values()}
    assert {label for label in labels if label.startswith("rank")} == {"rank 0 (host0)", "rank 1 trainer (host0)"}
    found = query(run, "SELECT rank, role FROM ranks ORDER BY rank").table.to_pylist()
    assert found == [{"rank": 0, "role": None}, {"rank": 1, "role": "trainer"}]
    import tarfile

    run = make_run(tmp_path / "2" / "run", {0: rows(0), 1: rows(1)}, hosts={0: "a", 1: "b"})
    export_by_host(select(run), tmp_path / "2" / "out.tar", aligned=run.aligned(), gpu_events=True)
    with tarfile.open(tmp_path / "2" / "out.tar") as archive:
        for name in archive.getnames()[1:]:
            trace = trace_pb2.Trace()
            trace.ParseFromString(archive.extractfile(name).read())
            assert [len(p.gpu_info.gpus) for p in trace.packet if p.HasField("gpu_info")] == [1]
            assert len(events(trace)) == 6


def test_the_option_is_perfettos_alone(tmp_path, capsys):
    run = make_run(tmp_path / "run", {0: rows(0)})
    assert main(["export", "chrome", str(run.path), "-o", str(tmp_path / "o.json"), "--gpu-events"]) == 2
    assert "--gpu-events works with perfetto" in capsys.readouterr().err
    assert main(["export", "perfetto", str(run.path), "-o", str(tmp_path / "o.pftrace"), "--gpu-events"]) == 0
    assert "9 slices in 1 file" in capsys.readouterr().err
