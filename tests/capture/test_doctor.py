import json
import py_compile
import sys

import pytest

from alltrace.capture import doctor


@pytest.fixture
def machine(tmp_path, monkeypatch, bare_environment, fake_nsys):
    """A machine with these files in `proc`; returns what is found by name."""
    monkeypatch.setenv("ALLTRACE_NSYS", str(fake_nsys))
    monkeypatch.setenv("ALLTRACE_NCU", "/no/such")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(doctor, "_adjtimex", lambda: (0, 0x2001, 1500))
    monkeypatch.setattr(doctor, "cache_from_source", lambda _source: __file__)

    def examine(files, nvtx="0.2.10"):
        monkeypatch.setattr(doctor.metadata, "version", lambda _name: nvtx)
        for name, text in files.items():
            path = tmp_path / "root" / "proc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {one.what: one for one in doctor.examine(tmp_path / "root")}

    return examine


def test_whether_there_is_what_makes_reports(machine, fake_nsys):
    assert machine({})["importer"].state == "limited"
    importer = fake_nsys.parent / "QdstrmImporter"
    importer.touch(0o755)
    assert machine({})["importer"].found.endswith("QdstrmImporter")


GOOD = {
    "driver/nvidia/version": "NVRM version: 550.1\nGCC",
    "driver/nvidia/params": "RmProfilingAdminOnly: 0\n",
    "sys/kernel/perf_event_paranoid": "2\n",
    "self/status": "Name: x\nCapEff:\t0000000000000000\n",
}


def test_a_machine_that_can_profile(machine):
    found = machine(GOOD)
    assert {what: one.state for what, one in found.items()} == {
        "nsys": "ok",
        "importer": "limited",
        "NCCL trace": "limited",
        "ncu": "limited",
        "driver": "ok",
        "counters": "ok",
        "CPU samples": "ok",
        "clock": "ok",
        "TMPDIR": "ok",
        "nvtx": "ok",
        "byte code": "ok",
    }
    assert found["clock"].found == "synchronised, at most 1.5 ms off"
    assert found["nsys"].found.startswith("nsys 2023.4.4 at ")
    assert found["NCCL trace"].found == "nsys 2023.4.4 cannot trace NCCL; 2025.6 and later can"


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        ("2.28.3", "ok", "nsys 2023.4.4 traces NCCL 2.28.3"),
        ("2.27.5", "limited", "NCCL 2.27.5 cannot be traced by the profiler"),
    ],
)
def test_nsys_and_nccl_must_both_have_the_trace_of_nccl(machine, monkeypatch, version, state, words):
    monkeypatch.setenv("FAKE_NCCL", "1")
    found = machine(GOOD, nvtx=version)["NCCL trace"]
    assert (found.state, found.found[: len(words)]) == (state, words)


@pytest.mark.parametrize(("capabilities", "state"), [("0000000000000000", "limited"), ("0000000000200000", "ok")])
def test_counters_and_samples_need_rights(machine, capabilities, state):
    bad = {**GOOD, "driver/nvidia/params": "RmProfilingAdminOnly: 1\n", "sys/kernel/perf_event_paranoid": "4"}
    found = machine({**bad, "self/status": f"CapEff:\t{capabilities}\n"})
    assert found["counters"].state == found["CPU samples"].state == state
    assert bool(found["counters"].fix) == (state != "ok")


def test_each_fault_has_its_fix(machine, monkeypatch, tmp_path):
    found = machine({"mounts": f"server:/x {tmp_path / 'tmp'} nfs4 rw 0 0\nroot / ext4 rw 0 0\n"}, nvtx="0.2.13")
    assert found["nvtx"].state == "bad"
    assert "does not record" in found["nvtx"].found
    assert found["TMPDIR"].found.endswith("is on nfs4, which all nodes share")
    assert found["driver"].state == "limited"
    assert all(one.fix for one in found.values() if one.state != "ok")
    monkeypatch.setenv("TMPDIR", "/no/such")
    assert machine({})["TMPDIR"].state == "bad"


def test_what_was_mounted_last_at_a_place_is_what_is_there(machine, tmp_path):
    place = tmp_path / "tmp"
    found = machine({"mounts": f"root / ext4 rw 0 0\nauto {place} autofs rw 0 0\nserver:/x {place} nfs4 rw 0 0\n"})
    assert found["TMPDIR"].found.endswith("is on nfs4, which all nodes share")


def test_the_command(capture, fake_nsys):
    done = capture("doctor", ALLTRACE_NSYS=fake_nsys, SLURMD_NODENAME="n7")
    assert done.stdout.startswith("n7: ok      nsys        nsys 2023.4.4 at ")
    assert all(line.startswith("n7: ") for line in done.stdout.splitlines())
    told = json.loads(capture("doctor", "--format", "json", ALLTRACE_NSYS=fake_nsys, SLURMD_NODENAME="n7").stdout)
    first = told["rows"][0]
    assert (told["verb"], first["host"], first["state"], first["what"], first["fix"]) == (
        "capture doctor",
        "n7",
        "ok",
        "nsys",
        None,
    )
    assert [c["name"] for c in told["columns"]] == list(first)
    assert done.returncode in (0, 1)
    gone = capture("doctor", ALLTRACE_NSYS="/no/such")
    assert gone.returncode == 1
    assert "bad     nsys        ALLTRACE_NSYS is /no/such, which cannot be run" in gone.stdout


@pytest.mark.parametrize(
    ("answer", "said", "fix"),
    [
        ((5, 0x40, 16_000_000), "the clock is not synchronised", "chronyd"),
        ((0, 0x40, 1), "the clock is not synchronised", "chronyd"),
        ((0, 0x1, 250_000), "the clock may be wrong by 250 ms", "nearer server"),
        (None, "cannot determine", "chronyc tracking"),
    ],
)
def test_a_clock_that_is_not_synchronised(machine, monkeypatch, answer, said, fix):
    monkeypatch.setattr(doctor, "_adjtimex", lambda: answer)
    found = machine(GOOD)["clock"]
    assert found.state == "limited"
    assert said in found.found
    assert fix in found.fix


def test_the_kernel_is_asked_for_its_clock():
    answer = doctor._adjtimex()
    assert answer is None or (0 <= answer[0] <= 5 and answer[2] >= 0)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"../.dockerenv": ""}, "a container of Docker"),
        ({"../run/.containerenv": ""}, "a container of Podman"),
        ({"1/cgroup": "0::/kubepods/besteffort/podx\n"}, "a container (kubepods)"),
    ],
)
def test_what_a_container_may_not_do(machine, files, kind):
    found = machine({**GOOD, **files, "self/status": "CapEff:\t0000000000000000\nSeccomp:\t2\n"})["container"]
    assert found.state == "limited"
    assert found.found.startswith(
        f"{kind}, without CAP_SYS_ADMIN and CAP_PERFMON, and its seccomp filter is on: CUDA and NVTX can"
    )
    assert "--cap-add=SYS_ADMIN" in found.fix
    assert "capabilities.add" in found.fix
    allowed = machine({**GOOD, **files, "self/status": "CapEff:\t0000004000200000\n"})["container"]
    assert (allowed.state, allowed.found) == ("ok", f"{kind}, with CAP_SYS_ADMIN and CAP_PERFMON")


def test_a_pod_is_known_by_its_variables(machine, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert machine(GOOD)["container"].found.startswith("a container of Kubernetes")


def test_a_lock_of_another_user(machine, monkeypatch, tmp_path):
    lock = tmp_path / "tmp" / "nsight-compute-lock"
    lock.write_text("")
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: path != lock)
    found = machine(GOOD)["ncu lock"]
    assert found.state == "limited"
    assert "its own TMPDIR" in found.fix


def test_folders_without_byte_code(tmp_path, monkeypatch):
    """A folder that cannot be written holds no byte code; a folder elsewhere may hold it."""
    modules = [tmp_path / name / "module.py" for name in ("written", "read_only")]
    for module in modules:
        module.parent.mkdir()
        module.write_text("value = 1\n")
    py_compile.compile(str(modules[0]))
    (one,) = doctor._byte_code(map(str, modules))
    assert (one.state, one.found) == (
        "limited",
        f"Python keeps no byte code in {modules[1].parent}, so each command takes a second more",
    )
    assert f"compileall -q {modules[1].parent}," in one.fix
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))
    for module in modules:
        py_compile.compile(str(module))
    (one,) = doctor._byte_code(map(str, modules))
    assert one.state == "ok"
