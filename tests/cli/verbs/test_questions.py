"""The verbs that ask one recipe: `info`, `overlap`, `breakdown`, `kernels`, `gaps`, and `recipe` for any."""

import csv
import io
import json
import re

import pyarrow.parquet as pq
import pytest

MS = 1_000_000
FACTS = {"ranks": 2, "hosts": 1, "devices": 2, "span_ns": 80 * MS}

UNALIGNED = (
    "no collective was found on more than one rank, so clocks are aligned by UTC stamps, which are off by milliseconds"
)


def answered(done):
    """The envelope on standard output, which holds nothing else."""
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_the_envelope_of_overlap_is_as_promised(alltrace, run):
    times = ["compute_ns", "communication_ns", "overlapped_ns", "exposed_ns", "overlap_percent"]
    names = ["rank", "host", "gpu", *times, "copy_ns", "copy_overlapped_ns", "copy_exposed_ns", "copy_overlap_percent"]
    units = {n: "ns" if n.endswith("_ns") else "%" if n.endswith("_percent") else None for n in names}
    first = [0, "host0", "GPU-0", 40 * MS, 30 * MS, 10 * MS, 20 * MS, 100 / 3, 10 * MS, 0, 10 * MS, 0.0]
    second = [1, "host0", "GPU-1", 50 * MS, 25 * MS, 15 * MS, 10 * MS, 60.0, 0, 0, 0, None]
    assert answered(alltrace("overlap", run, "--format", "json")) == {
        "alltrace": 1,
        "verb": "overlap",
        "run": FACTS,
        "columns": [{"name": n, "unit": units[n]} for n in names],
        "rows": [dict(zip(names, row, strict=True)) for row in (first, second)],
        "notes": ["rank 2: no report"],
    }


def test_the_envelope_of_info_is_as_promised(alltrace, run):
    names = (
        "rank local_rank host process devices rank_source reports start_ns end_ns session_ns recorded_ns kernels copies"
    ).split()
    first = [0, 0, "host0", 4000, ["H200 (GPU-0)"], "RANK", ["rank0.sqlite"], 0, 80 * MS, None, 80 * MS, 2, 1]
    second = [1, 1, "host0", 4001, ["H200 (GPU-1)"], "RANK", ["rank1.sqlite"], 0, 60 * MS, None, 60 * MS, 2, 0]
    clock = {
        "host": "host0",
        "offset_ns": 0,
        "drift_ppm": 0.0,
        "error_ns": None,
        "residual_ns": None,
        "evidence": 0,
        "component": 0,
    }
    reason = (
        "100 % of the communication is not explained; for 100 % the communicator is known neither from the reports nor"
        " from the times"
    )
    assert answered(alltrace("info", run, "--format", "json")) == {
        "alltrace": 1,
        "verb": "info",
        "run": FACTS,
        "columns": [{"name": n, "unit": "ns" if n.endswith("_ns") else None} for n in names],
        "rows": [dict(zip(names, row, strict=True)) for row in (first, second)],
        "notes": ["rank 2: no report", UNALIGNED],
        "clocks": [clock],
        "communicators": [{"grid": None, "found_by": None, "communicators": 0, "score": 0.0, "reason": reason}],
    }


def test_forms_of_an_answer_and_some_of_its_rows(alltrace, run):
    done = alltrace("breakdown", run)
    assert done.code == 0
    head, line, first, *_ = done.out.splitlines()
    assert head.split()[:5] == ["rank", "host", "gpu", "span_ns", "compute_ns"]
    assert set(line) == {"-", " "}
    assert first.split() == [
        "0",
        "host0",
        "GPU-0",
        *"80,000,000 40,000,000 20,000,000 0 10,000,000 10,000,000".split(),
        *"50.0 25.0 0.0 12.5 12.5".split(),
    ]
    assert "note: rank 2: no report" in done.out
    done = alltrace("gaps", run, "--format", "csv", "--min-ns", "1000")
    assert (
        done.out
        == "rank,gpu,start_ns,duration_ns,before,after\n0,GPU-0,60000000,10000000,ncclDevKernel_AllReduce_Sum_f32_RING_LL,copy"  # noqa: E501
        " HtoD\n"
    )
    assert done.err == "alltrace: rank 2: no report\n"
    assert [r["rank"] for r in answered(alltrace("overlap", run, "--ranks", "1", "--format", "json"))["rows"]] == [1]
    assert [r["rank"] for r in answered(alltrace("overlap", run, "--limit", "1", "--format", "json"))["rows"]] == [0]
    assert "... 1 more rows" in alltrace("overlap", run, "--limit", "1").out


def test_a_file_in_place_of_standard_output(alltrace, run, tmp_path):
    done = alltrace("kernels", run, "--format", "parquet", "-o", tmp_path / "k.parquet")
    assert (done.code, done.out, done.err) == (0, "", "alltrace: rank 2: no report\n")
    assert pq.read_table(tmp_path / "k.parquet").column("total_ns").to_pylist() == [90 * MS, 55 * MS]
    assert alltrace("kernels", run, "--format", "md", "-o", tmp_path / "k.md").out == ""
    assert (tmp_path / "k.md").read_text().startswith("| name | kind | ranks |")


def test_processes_do_not_change_the_answer(alltrace, run):
    assert (
        alltrace("breakdown", run, "--jobs", "2", "--format", "csv").out
        == alltrace("breakdown", run, "--format", "csv").out
    )


@pytest.mark.parametrize("verb", ["info", "overlap", "breakdown", "kernels", "gaps"])
def test_recipe_gives_what_the_verb_of_that_name_gives(alltrace, run, verb):
    assert answered(alltrace("recipe", verb, run, "--format", "json")) == answered(
        alltrace(verb, run, "--format", "json")
    )


def test_recipe_lists_every_recipe(alltrace):
    from alltrace.recipes.registry import names

    lines = alltrace("recipe", "--list").out.splitlines()
    entries = [line for line in lines if re.match(r"  \S", line)]
    assert sorted(line.split()[0] for line in entries) == sorted(names())
    assert all(len(line.split()) > 3 for line in entries)
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if not line.startswith(" ")][:2] == ["time:", "communication:"]


def test_stats_and_sql_answer(alltrace, run):
    from alltrace.recipes.registry import REPORTS

    lines = alltrace("stats", "--list").out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith("   ")] == list(REPORTS)
    done = alltrace("stats", "cuda_gpu_kern_sum", run, "--format", "csv")
    rows = list(csv.reader(io.StringIO(done.out)))
    assert rows[0][:3] == ["Time (%)", "Total Time (ns)", "Instances"]
    assert [r[:3] for r in rows[1:]] == [["62.1", "90000000", "2"], ["37.9", "55000000", "2"]]
    by_rank = alltrace("stats", "cuda_gpu_kern_sum:by-rank", run, "--format", "csv").out
    assert by_rank == alltrace("stats", "cuda_gpu_kern_sum", run, "--by-rank", "--format", "csv").out
    assert by_rank.startswith("Rank,")
    envelope = answered(
        alltrace(
            "sql",
            run,
            'select rank, sum("end" - start) as busy_ns from kernels group by rank order by rank',
            "--format",
            "json",
        )
    )
    assert envelope["rows"] == [{"rank": 0, "busy_ns": 70 * MS}, {"rank": 1, "busy_ns": 75 * MS}]
    assert envelope["columns"] == [{"name": "rank", "unit": None}, {"name": "busy_ns", "unit": "ns"}]
