"""GPU logs joined with the ranks of a run: by UUID, bus id or index, and by time in any zone."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime

import pytest

from alltrace.align.store import aligned
from alltrace.api import OpenRun
from alltrace.cli.main import main
from alltrace.recipes.execution.ask import ask
from alltrace.recipes.questions.sql import query
from alltrace.run.gpu_logs import parse_utc_offset
from alltrace.run.importer import import_reports
from alltrace.run.manifest import read_manifest
from alltrace.synth import write_run
from alltrace.trace.errors import InputError, UsageError

HOUR_NS = 3600 * 10**9
COLUMNS = {"uuid": "uuid", "bus_id": "pci.bus_id", "index": "index"}
REASONS = {0: 0x4, 1: 0x0, 2: 0x40, 3: 0x1}


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Four ranks on two hosts, each with a GPU, and their reports."""
    folder = tmp_path_factory.mktemp("imported")
    write_run("straggler", folder / "reports", ranks=4, hosts=2, steps=4, ideal=True)
    import_reports([str(folder / "reports")], folder / "run", jobs=1)
    return folder


@pytest.fixture
def job(imported, tmp_path):
    return Job(imported, tmp_path)


class Job:
    """A run, and GPU logs of it as each node writes them: a sample every 10 ms from before the reports to behind
    them."""

    def __init__(self, imported, folder):
        self.reports, self.run = imported / "reports", folder / "run"
        self.folder = folder
        shutil.copytree(imported / "run", self.run)
        self.ranks = read_manifest(self.run).ranks

    def times(self, rank):
        """UTC of the samples of a rank's node, ns: whole ms."""
        starts = [r.time_base_utc_ns + r.start_ns for r in self.ranks if r.host == rank.host]
        first = min(starts) // 10**6 - 50
        return [(first + 10 * n) * 10**6 for n in range(80)]

    def text(self, host, by="uuid", ahead_ns=0, others=()):
        ranks = [r for r in self.ranks if r.host == host]
        rows = [f"timestamp, {COLUMNS[by]}, clocks.current.sm [MHz], power.draw [W], clocks_event_reasons.active"]
        for time in self.times(ranks[0]):
            at = datetime.fromtimestamp((time + ahead_ns) // 10**6 / 1000, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            for n, r in enumerate(ranks):
                device = r.devices[0]
                name = {"uuid": f"GPU-{device.uuid}", "bus_id": f"0000{device.bus_id.upper()}", "index": str(n)}[by]
                rows.append(f"{at}, {name}, {1980 - 100 * r.rank} MHz, {500 + r.rank}.00 W, 0x{REASONS[r.rank]:016x}")
            rows += [f"{at}, {name}, 210 MHz, 60.00 W, 0x0000000000000001" for name in others]
        return "\n".join(rows) + "\n"

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        os.utime(path, (1, 1))  # a copy that tells no time
        return str(path)

    def join(self, *logs, **more):
        import_reports([str(self.reports)], self.run, jobs=1, gpu_logs=list(logs), **more)
        return OpenRun(self.run)

    def expected(self, *ranks):
        """(rank, time in its files, MHz, W, reasons) of the samples of some ranks."""
        return [
            (r.rank, t - r.time_base_utc_ns, 1980.0 - 100 * r.rank, 500.0 + r.rank, REASONS[r.rank])
            for r in self.ranks
            if r.rank in ranks
            for t in self.times(r)
        ]


def joined(run):
    found = []
    for record in run.ranks:
        stored = run.rank(record.rank)
        table = stored.shared("gpu_log")
        times = [t - stored.clock.apply_one(0) for t in table["time"].to_pylist()]
        columns = [table[c].to_pylist() for c in ("sm_clock_mhz", "power_w", "event_reasons")]
        found += zip([record.rank] * len(times), times, *columns, strict=True)
    return found


@pytest.mark.parametrize("by", ["uuid", "bus_id", "index"])
def test_samples_are_given_to_the_ranks_whose_gpus_they_are_of(job, by):
    hosts = sorted({r.host for r in job.ranks})
    logs = [job.write(f"gpu.{host}.csv", job.text(host, by)) for host in hosts]
    run = job.join(*logs, gpu_log_offset_ns=0)
    assert joined(run) == job.expected(0, 1, 2, 3)
    assert [(log.kind, log.records) for log in run.manifest.logs] == [("gpu", 160), ("gpu", 160)]
    assert not any("GPU log" in note for note in run.manifest.notes)


def test_gpus_of_others_are_passed_over_and_missing_ones_named(job):
    host = job.ranks[0].host
    run = job.join(job.write("gpu.csv", job.text(host, others=["GPU-00000000-0000"])), gpu_log_offset_ns=0)
    assert joined_ranks(run) == {0, 1}
    assert any("no samples for the GPUs of rank 2-3" in note for note in run.manifest.notes)


def joined_ranks(run):
    return set(query(run, "SELECT DISTINCT rank FROM gpu_log").table["rank"].to_pylist())


def test_indices_do_not_tell_which_of_more_gpus_than_the_run_uses(job):
    host = job.ranks[0].host
    with pytest.raises(InputError, match="none of its 3 GPUs matches a GPU in the reports"):
        job.join(job.write(f"{host}.csv", job.text(host, "index", others=["2"])), gpu_log_offset_ns=0)


@pytest.mark.parametrize("by", ["index", "bus_id"])
def test_without_uuid_the_name_of_the_file_must_tell_the_host(job, by):
    with pytest.raises(InputError, match="put the host's name in the file name"):
        job.join(job.write("gpu.csv", job.text(job.ranks[0].host, by)), gpu_log_offset_ns=0)


@pytest.mark.parametrize("hours", [-11, -3.5, 0, 1, 5.75, 14])
@pytest.mark.parametrize("told", ["option", "file", "found out"])
def test_local_times_of_any_zone(job, hours, told):
    ahead_ns = round(hours * HOUR_NS)
    log = job.write("gpu.csv", job.text(job.ranks[0].host, ahead_ns=ahead_ns))
    minutes = round(abs(hours) * 60)
    offset = f"{'-' if hours < 0 else '+'}{minutes // 60:02}{minutes % 60:02}"
    if told == "file":
        job.write("gpu.csv.utc-offset", f"{offset}\n")
    run = job.join(log, gpu_log_offset_ns=ahead_ns if told == "option" else None)
    assert [row for row in joined(run) if row[0] < 2] == job.expected(0, 1)
    said = f"local times are taken as UTC{offset[:3]}:{offset[3:]}"
    assert any(said in note for note in run.manifest.notes) == (told == "found out")


def test_local_times_that_fit_in_several_zones_are_not_guessed(job):
    """The log goes on for hours around the reports, as that of a long job does."""
    host = job.ranks[0].host
    text = job.text(host)
    early, late = (job.text(host, ahead_ns=n * HOUR_NS).splitlines()[1:3] for n in (-2, 2))
    lines = text.splitlines()
    log = job.write("gpu.csv", "\n".join([lines[0], *early, *lines[1:], *late]) + "\n")
    with pytest.raises(
        UsageError, match=r"time zones; give --gpu-log-utc-offset, such as \+01:00, or a file gpu.csv.utc-offset"
    ):
        job.join(log)
    # the file was last written to when its last sample was taken
    last = job.times(job.ranks[0])[1] + 2 * HOUR_NS
    os.utime(log, ns=(last, last))
    assert [row for row in joined(job.join(log)) if row[0] < 2] == job.expected(0, 1)


def test_a_log_of_another_day_is_an_error(job):
    log = job.write("gpu.csv", job.text(job.ranks[0].host, ahead_ns=-72 * HOUR_NS))
    with pytest.raises(InputError, match="none of its samples were taken during the capture"):
        job.join(log)


@pytest.mark.slow
def test_import_finds_what_was_recorded_beside_the_reports(job, tmp_path, capsys):
    host = job.ranks[0].host
    reports = tmp_path / "beside"
    shutil.copytree(job.reports, reports)
    log = reports / f"j_on_{host}.gpu-log.csv"
    log.write_text(job.text(host, ahead_ns=3600 * 10**9))
    (reports / f"{log.name}.utc-offset").write_text("+0100\n")
    found, lost = tmp_path / "found", tmp_path / "lost"
    assert main(["import", str(reports), "-o", str(found), "--jobs", "1"]) == 0
    assert {row[0] for row in joined(OpenRun(found))} == {r.rank for r in job.ranks if r.host == host}
    text = log.read_text()
    # an empty one, and one whose time zone could be any
    for n, unusable in enumerate(
        ("", "\n".join([*text.splitlines(), *job.text(host, ahead_ns=-2 * HOUR_NS).splitlines()[1:]]))
    ):
        log.write_text(unusable)
        (reports / f"{log.name}.utc-offset").unlink(missing_ok=True)
        assert main(["import", str(reports), "-o", str(lost / str(n)), "--jobs", "1"]) == 0
        assert "GPU logs next to the reports were not joined" in capsys.readouterr().err
        assert not list(lost.rglob("gpu_log.parquet"))


def test_sql_and_info_tell_of_it(job):
    run = job.join(job.write("gpu.csv", job.text(job.ranks[0].host)), gpu_log_offset_ns=0)
    rows = query(
        run, "SELECT rank, host, count(*) AS n, max(sm_clock_mhz) AS mhz FROM gpu_log GROUP BY ALL ORDER BY 1"
    ).table
    assert rows.to_pylist() == [
        {"rank": r, "host": job.ranks[0].host, "n": 80, "mhz": 1980.0 - 100 * r} for r in (0, 1)
    ]
    assert any("1 GPU log joined: 160 samples" in note for note in ask(run, "info").notes)


def test_an_alignment_stays_when_a_gpu_log_comes(job):
    made = aligned(OpenRun(job.run)).run.overlay.folder / "alignment.json"
    stamp = made.stat().st_mtime_ns
    assert aligned(job.join(job.write("gpu.csv", job.text(job.ranks[0].host)), gpu_log_offset_ns=0)).members.num_rows
    assert made.stat().st_mtime_ns == stamp


def test_a_run_without_gpu_logs_has_an_empty_view(job):
    run = OpenRun(job.run)
    assert query(run, "SELECT * FROM gpu_log").table.num_rows == 0
    assert run.rank(0).shared("gpu_log") is None
    assert not any("GPU log" in note for note in ask(run, "info").notes)


@pytest.mark.parametrize(
    ("text", "hours"),
    [("+01:00", 1), ("-0730", -7.5), ("+0000", 0), ("Z", 0), ("UTC", 0), (" +05:45 ", 5.75), ("+14:00", 14)],
)
def test_offsets(text, hours):
    assert parse_utc_offset(text) == hours * HOUR_NS


@pytest.mark.parametrize("text", ["", "1", "+1", "CET", "+15:00", "+01:60", "+1:00", "01:00", "++0100"])
def test_what_is_no_offset_is_refused(text):
    with pytest.raises(UsageError, match=r"--gpu-log-utc-offset is .*; expected how far local time is ahead of UTC"):
        parse_utc_offset(text)
