import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.identity import identities
from alltrace.synth.nsys_facts import Report, fact_tables
from alltrace.synth.simulate import simulate


def _facts(rank=0, **changes):
    scenario = SCENARIOS["healthy"].override(ranks=4, steps=1, **changes, ideal=True)
    report = Report(simulate(scenario), identities(scenario)[rank], "r.sqlite")
    tables = fact_tables(report)
    return report, {
        name: [dict(zip(columns, row, strict=True)) for row in rows] for name, (columns, rows) in tables.items()
    }


def _environment(tables):
    rows = [row["value"] for row in tables["META_DATA_CAPTURE"] if row["name"] == "PROCESS_0:ENVIRONMENT_VARIABLE"]
    return {name: value.strip('"') for name, value in (row.split("=", 1) for row in rows)}


def test_variables_file_names_or_mpi_tell_the_rank():
    _, tables = _facts(rank=3)
    found = _environment(tables)
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")
    assert [found[name] for name in names] == ["3", "1", "4", "1"]
    hosts = [row["value"] for row in tables["TARGET_INFO_SYSTEM_ENV"] if row["name"] == "Hostname"]
    assert hosts == ["node002"]
    _, tables = _facts(rank_source="file")
    assert "RANK" not in _environment(tables)
    assert "MPI_RANKS" not in tables
    report, tables = _facts(rank=2, rank_source="mpi")
    assert "RANK" not in _environment(tables)
    assert tables["MPI_RANKS"] == [{"globalTid": int(report.global_tids[0]), "rank": 2}]


def test_devices_numbers_and_secrets_of_a_report():
    report, tables = _facts(rank=3, visible_devices=True)
    (device,) = tables["TARGET_INFO_CUDA_DEVICE"]
    assert (device["gpuId"], device["cudaId"], device["pid"]) == (1, 0, report.identity.pid)
    assert device["uuid"] == report.identity.device_uuid == tables["TARGET_INFO_GPU"][1]["uuid"]
    assert _environment(tables)["CUDA_VISIBLE_DEVICES"] == "1"
    _, tables = _facts(rank=3)
    assert [row["cudaId"] for row in tables["TARGET_INFO_CUDA_DEVICE"]] == [0, 1]
    assert "TARGET_INFO_CUDA_DEVICE" not in _facts(schema="3.7.2")[1]
    report, _ = _facts()
    pid = report.identity.pid
    assert report.global_pid >> 48 == 1
    assert (report.global_pid >> 24) & 0xFFFFFF == pid
    assert [tid & 0xFFFFFF for tid in report.global_tids.tolist()] == [pid, pid + 41]
    report, tables = _facts(secrets=True)
    assert len(report.secrets) == 4
    assert _environment(tables).items() >= report.secrets.items()
    values = {
        "arguments": " ".join(r["value"] for r in tables["META_DATA_CAPTURE"] if "ARGUMENT" in r["name"]),
        "system": " ".join(r["value"] for r in tables["TARGET_INFO_SYSTEM_ENV"]),
        "output": report.strings.texts[tables["ProcessStreams"][0]["contentId"]],
    }
    assert report.secrets["WANDB_API_KEY"] in values["arguments"]
    assert all(secret in values["system"] and secret in values["output"] for secret in report.secrets.values())
    assert "ProcessStreams" not in _facts()[1]


@pytest.mark.parametrize(("version", "first"), [("3.7.2", 480_000_000), ("3.25.0", None)])
def test_session_and_analysis(version, first):
    report, tables = _facts(schema=version)
    (session,), (analysis,) = tables["TARGET_INFO_SESSION_START_TIME"], tables["ANALYSIS_DETAILS"]
    assert session["utcEpochNs"] == report.identity.utc_stamp_ns
    assert session["utcTime"].startswith("2026-01-01T12:59:")
    assert analysis["startTime"] == (first or session["systemClockNs"])
    assert analysis["stopTime"] - analysis["startTime"] == analysis["duration"]
