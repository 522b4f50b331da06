"""Findings with what GPUs, networks and CPUs say of them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from alltrace.api import OpenRun
from alltrace.recipes.analysis.gpu_state import COLLECT, GpuState
from alltrace.recipes.analysis.host_state import COLLECT as CPU_COLLECT
from alltrace.recipes.analysis.host_state import CpuPlaces, HostState
from alltrace.recipes.analysis.network_state import COLLECT as NETWORK_COLLECT
from alltrace.recipes.analysis.network_state import NetworkState
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.diagnose.finding import NO_LOSS, Finding
from alltrace.recipes.questions.diagnose.machine_evidence import with_machine_evidence
from alltrace.recipes.questions.diagnose.machine_state import MachineState
from alltrace.run.importer import import_reports
from alltrace.synth import SCENARIOS, write_run

PEER, SLOW, FAST = GpuState(1980.0), GpuState(1215.0, reasons=4), GpuState(1980.0)
SENTENCE = "Rank 3's GPU ran at 1,215 MHz (power cap), its peers at 1,980."


ONE_HOST = SimpleNamespace(hosts=dict.fromkeys(range(4), "n0"), meet_across_hosts=lambda _ranks: False)


def machines(gpus):
    return {rank: MachineState(gpu) for rank, gpu in gpus.items()}


def finding(kind, ranks=(3,), classes=()):
    return Finding(kind, replace(NO_LOSS, classes=classes), ranks, "gemm", "Look.", {"slowdown": 1.6})


@pytest.mark.parametrize(
    ("kind", "state", "advice"),
    [
        ("straggler", SLOW, f"Look. {SENTENCE}"),
        ("slow-host", SLOW, f"Look. {SENTENCE}"),
        ("jitter", SLOW, f"Look. {SENTENCE}"),
        ("straggler", FAST, "Look. Rank 3's GPU ran at 1,980 MHz, its peers at 1,980."),
        ("straggler", None, f"Look. {COLLECT}"),
        ("low-bandwidth", SLOW, f"Look. {SENTENCE}"),
        ("slow-communicator", FAST, "Look."),
        ("low-bandwidth", None, "Look."),
        ("sync", SLOW, "Look."),
    ],
)
def test_what_is_stated_follows_from_the_kind(kind, state, advice):
    (said,) = with_machine_evidence([finding(kind)], machines({1: PEER, 2: PEER, 3: state}), ONE_HOST)
    assert said.advice == advice
    stated = state is not None and advice != "Look."
    assert said.evidence == {"slowdown": 1.6} | (
        {"sm_clock_mhz": state.sm_clock_mhz, "peers_sm_clock_mhz": 1980.0} if stated else {}
    )


def test_a_finding_of_no_rank_stays():
    assert with_machine_evidence([finding("straggler", ())], machines({1: PEER}), ONE_HOST) == [
        finding("straggler", ())
    ]


@pytest.fixture
def job(tmp_path):
    """A job with one slow rank, and its facts."""
    truth = write_run("straggler", tmp_path / "reports", ranks=4, hosts=1, steps=6, ideal=True)
    manifest = import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    return tmp_path, manifest, truth


@pytest.mark.slow
def test_a_slow_rank_is_told_its_clock_in_the_judged_steps(job):
    folder, manifest, _ = job
    (before,) = [r for r in ask(OpenRun(folder / "run"), "diagnose").table.to_pylist() if r["kind"] == "straggler"]
    (culprit,) = before["ranks"]
    assert before["advice"].endswith(COLLECT)
    lines = ["timestamp, uuid, clocks.sm, power.draw, temperature.gpu, clocks_event_reasons.active"]
    for rank in manifest.ranks:
        slow = rank.rank == culprit
        first, last = (rank.time_base_utc_ns + t for t in (rank.start_ns, rank.end_ns))
        for time in range(first // 10**6, last // 10**6, 2):
            at = datetime.fromtimestamp(time / 1000, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            lines.append(
                f"{at}, GPU-{rank.devices[0].uuid}, {1215 if slow else 1980}, {400 if slow else 640}, 70,"
                f" {0x4 if slow else 0:#x}"
            )
            # before and behind the job the clock is another
        at = datetime.fromtimestamp(last // 10**6 / 1000 + 5, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        lines += [f"{at}, GPU-{rank.devices[0].uuid}, 345, 70, 30, 0x0"] * 5000
    (folder / "gpu.csv").write_text("\n".join(lines) + "\n")
    import_reports(
        [str(folder / "reports")], folder / "run", jobs=1, gpu_logs=[str(folder / "gpu.csv")], gpu_log_offset_ns=0
    )
    for steps in (None, "3:5"):
        (after,) = [
            r
            for r in ask(OpenRun(folder / "run"), "diagnose", steps=steps).table.to_pylist()
            if r["kind"] == "straggler"
        ]
        clocks = f"Rank {culprit}'s GPU ran at 1,215 MHz (power cap), its peers at 1,980."
        assert after["advice"].endswith(f"{clocks} It drew 400 W at 70 °C, its peers 640 W at 70 °C.")
        assert (after["evidence"]["sm_clock_mhz"], after["evidence"]["peers_power_w"]) == (1215, 640)
    assert (after["kind"], after["ranks"]) == (before["kind"], before["ranks"])


TWO_HOSTS = SimpleNamespace(
    hosts={0: "n0", 1: "n0", 2: "n1", 3: "n1"}, meet_across_hosts=lambda ranks: 1 in ranks or 3 in ranks
)
NETWORK = {0: NetworkState(12.0, 12.0, 10.0), 2: NetworkState(2.0, 2.0, 50.0, "mlx5_1")}
SENT = "While devices waited, the adapters of host n1 sent 2.00 GB/s"


@pytest.mark.parametrize(
    ("kind", "ranks", "classes", "networks", "said"),
    [
        ("low-bandwidth", (3,), ("communication",), NETWORK, SENT),
        ("low-bandwidth", (3,), ("transfer", "copy"), NETWORK, None),  # copies use no network
        ("slow-communicator", (0, 2), ("communication",), NETWORK, None),  # does not leave its host
        ("slow-communicator", (2, 3), ("communication",), {}, NETWORK_COLLECT),
        ("exposed-communication", (3,), ("communication",), NETWORK, SENT),
        ("exposed-communication", (1,), ("communication",), NETWORK, None),  # nothing stands out there
        ("exposed-communication", (3,), ("communication",), {}, None),
        ("straggler", (3,), ("communication",), NETWORK, COLLECT),
    ],
)
def test_networks_are_stated_of_communication_between_hosts(kind, ranks, classes, networks, said):
    states = {rank: MachineState(network=networks.get(rank)) for rank in range(4)}
    (found,) = with_machine_evidence([finding(kind, ranks, classes)], states, TWO_HOSTS)
    assert found.advice.startswith(f"Look. {said}" if said else "Look.")
    assert (found.advice == "Look.") == (said is None)
    assert ("nic_gb_per_s" in found.evidence) == (said == SENT)


@pytest.mark.parametrize(
    ("kind", "ranks", "cpus", "said"),
    [
        (
            "host-pause",
            (3,),
            {"host-pause": HostState(0.9), "launch": HostState(0.1)},
            "The launching thread of rank 3 was on a CPU for 90 %",
        ),
        ("data-stall", (3,), {"data": HostState(0.05)}, "The launching thread of rank 3 was on a CPU for 5 %"),
        ("launch-bound", (3,), {"launch": HostState(1.0)}, "The launching thread of rank 3 was on a CPU for 100 %"),
        ("host-pause", (0, 1, 2, 3), {}, CPU_COLLECT),
        ("launch-bound", (3,), {}, CPU_COLLECT),
        ("launch-bound", (0, 1, 2, 3), {}, None),
        ("sync", (3,), {"host-pause": HostState(0.9)}, None),
    ],
)
def test_cpus_are_stated_of_late_hosts(kind, ranks, cpus, said):
    states = {rank: MachineState(cpus=cpus if rank == 3 else {}) for rank in range(4)}
    (found,) = with_machine_evidence([finding(kind, ranks)], states, ONE_HOST)
    assert found.advice.startswith(f"Look. {said}" if said else "Look.")
    assert (found.advice == "Look.") == (said is None)
    assert ("on_cpu_share" in found.evidence) == bool(said and cpus)


@pytest.mark.parametrize(
    "kind", ["straggler", "slow-host", "host-pause", "launch-bound", "data-stall", "low-bandwidth", "sync"]
)
def test_cpus_that_a_rank_wanders_over_are_stated_of_what_they_can_cause(kind):
    states = {rank: MachineState(places=CpuPlaces(50.0 if rank == 3 else 0.2)) for rank in range(4)}
    (found,) = with_machine_evidence([finding(kind)], states, ONE_HOST)
    assert ("The launching thread of rank 3 came to another CPU 50.0 times" in found.advice) == (kind != "sync")
    assert found.evidence.get("cpu_moves_per_s") == (None if kind == "sync" else 50.0)


def with_adapter(report, number, bytes_per_ms):
    """Add the samples of an adapter that always sent as much to a report."""
    with closing(sqlite3.connect(report)) as db, db:
        first, last = db.execute("SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        db.execute(
            "CREATE TABLE NET_NIC_METRIC (start INTEGER, end INTEGER, globalId INTEGER, metricsListId INTEGER,"
            " metricsIdx INTEGER, value INTEGER)"
        )
        db.execute(
            "CREATE TABLE TARGET_INFO_NETWORK_METRICS (metricsListId INTEGER, metricsIdx INTEGER, name TEXT,"
            " description TEXT, unit TEXT)"
        )
        db.execute("CREATE TABLE TARGET_INFO_NIC_INFO (GUID INTEGER, stateName TEXT, nicId INTEGER, name TEXT)")
        db.execute("INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES (1, 0, 'IB: Bytes sent', '', '')")
        db.execute("INSERT INTO TARGET_INFO_NIC_INFO VALUES (?, 'x', 0, 'mlx5_0')", (number,))
        rows = [(t, t + 10**6, number, 1, 0, bytes_per_ms) for t in range(first, last, 10**6)]
        db.executemany("INSERT INTO NET_NIC_METRIC VALUES (?, ?, ?, ?, ?, ?)", rows)


@pytest.mark.slow
def test_a_slow_link_is_told_what_its_adapters_sent(tmp_path):
    fault = "slow-communicator:factor=4"
    scenario = SCENARIOS["experts"].override(ranks=8, hosts=4, steps=6, expert_parallel=4, faults=(fault,), ideal=True)
    truth = write_run(scenario, tmp_path / "reports", ideal=True)
    slow = truth.faults[0]["ranks"]
    for rank in range(0, 8, 2):  # a host's adapters are sampled by its first rank
        (report,) = (tmp_path / "reports").glob(f"*_rank{rank}.sqlite")
        with_adapter(report, 70 + rank, 3_000_000 if rank in slow else 12_000_000)
    import_reports([str(tmp_path / "reports")], tmp_path / "run", jobs=1)
    rows = ask(OpenRun(tmp_path / "run"), "diagnose").table.to_pylist()
    (row,) = [r for r in rows if r["kind"] == "slow-communicator"]
    assert row["ranks"] == list(slow)
    assert (row["evidence"]["nic_gb_per_s"], row["evidence"]["peers_nic_gb_per_s"]) == (3.0, 12.0)
    assert "the adapters of 2 hosts sent 3.00 GB/s, those of the other hosts 12.00 GB/s" in row["advice"]


def with_cpus(report, cpu, log, rank):
    """Add two sockets, and a launching thread that is bound to a CPU, to a report; and write what NCCL logs of its
    GPU."""
    with closing(sqlite3.connect(report)) as db, db:
        items = [{"cpuid": n, "socket": n // 8} for n in range(16)]
        db.execute(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'x', 'CpuInfo', 0, ?)", (json.dumps({"items": items}),)
        )
        db.execute("CREATE TABLE SCHED_EVENTS (start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER)")
        (thread,) = db.execute(
            "SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
        ).fetchone()
        first, last = db.execute("SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        rows = [(t + n * 10**5, cpu, 1 - n, thread) for t in range(first, last, 10**6) for n in range(2)]
        db.executemany("INSERT INTO SCHED_EVENTS VALUES (?, ?, ?, ?)", rows)
        (host,) = db.execute("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'").fetchone()
    said = (
        f"comm 0x7f{rank} rank {rank} nranks 4 cudaDev 0 busId 1000 commId 0xab - Init COMPLETE",
        "Setting affinity for GPU 0 to ff",
    )
    log.write_text(
        "".join(f"{host}:{thread >> 24 & 0xFFFFFF}:{thread & 0xFFFFFF} [0] NCCL INFO {text}\n" for text in said)
    )


@pytest.mark.slow
def test_a_thread_on_the_wrong_socket_is_named_with_the_cpus_near_its_gpu(tmp_path):
    scenario = SCENARIOS["healthy"].override(ranks=4, hosts=1, steps=6, faults=("slow-rank:ranks=2",), ideal=True)
    write_run(scenario, tmp_path / "reports", ideal=True)
    for rank in range(4):
        (report,) = (tmp_path / "reports").glob(f"*_rank{rank}.sqlite")
        with_cpus(report, 12 if rank == 2 else rank, tmp_path / f"nccl.{rank}.log", rank)
    logs = [str(path) for path in tmp_path.glob("nccl.*.log")]
    for nccl_logs, said in (
        (logs, "for 100 % of its time, most on CPU 12: bind it to CPUs 0-7, which NCCL's log states as near that GPU."),
        ([], "100 % of its time away from socket 0 (CPUs 0-7), from which ranks 0-1, 3 of the same host launch."),
    ):
        import_reports(
            [str(tmp_path / "reports")], folder := tmp_path / f"run{len(nccl_logs)}", jobs=1, nccl_logs=nccl_logs
        )
        run = OpenRun(folder)
        near = run.sql(
            "SELECT rank, count(*) AS cpus, max(cpu) AS last FROM near_cpus GROUP BY 1 ORDER BY 1"
        ).to_pylist()
        assert near == [{"rank": rank, "cpus": 8, "last": 7} for rank in range(4) if nccl_logs]
        first = ask(run, "diagnose").table.to_pylist()[0]
        assert (first["kind"], first["ranks"], first["evidence"]["other_node_share"]) == ("straggler", [2], 1.0)
        assert said in first["advice"]
