from alltrace.report.naming import run_title
from alltrace.run.labels import with_defaults
from alltrace.run.manifest import Labels, Manifest, RankRecord, ReportRecord


def manifest(environments, hosts, utc_ns):
    reports = tuple(ReportRecord(f"r{n}", 1, "", environment=e) for n, e in enumerate(environments))
    ranks = tuple(
        RankRecord(
            rank=n, local_rank=n, host=h, pids=(), devices=(), rank_source="RANK", reports=(n,), start_ns=0, end_ns=1, rows={}
        )
        for n, h in enumerate(hosts)
    )
    return Manifest(reports=reports, ranks=ranks, clocks=(), zero_utc_ns=utc_ns, labels=with_defaults(Labels(), environments))


def test_a_run_is_called_by_its_job_date_and_hosts():
    job = {"SLURM_JOB_NAME": "pretrain", "SLURM_JOB_ID": "4711"}
    utc = 1_772_368_200_000_000_000
    assert (
        run_title(manifest([job, job], ["a", "b", "a"], utc), ["/x/y"])
        == "pretrain, job 4711 · 2026-03-01 12:30 UTC · a and 1 more"
    )
    assert run_title(manifest([job, {**job, "SLURM_JOB_ID": "1"}], ["a"], 5), ["/x/y/"]) == "pretrain · a"
    assert run_title(manifest([{}], [], None), ["/x/reports/", "b.sqlite"]) == "reports, b.sqlite"
