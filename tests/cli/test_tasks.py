"""What a new user asks first: ten tasks, each with the commands that `alltrace --help` leads to, on three runs."""

import re
import shutil
from pathlib import Path

import pytest
from tests.recorded.asking import DERIVED
from tests.recorded.making import RUNS

MOST_COMMANDS = 2
TASKS = {
    # what is asked: what `alltrace --help` says of it, then for each run the commands, and what their output must have
    "where the time goes": (
        "what costs time",
        ("ddp-slow-rank", ["diagnose RUN"], r"Rank 1 waits for the next batch, which costs 61.0 % of the time"),
        ("kineto", ["breakdown RUN"], r"exposed_communication_percent"),
        (
            "host-bound",
            ["diagnose RUN"],
            r"Copies of rank 1 use pageable memory and hold up the device, which costs 53.1 %",
        ),
    ),
    "which rank is slow": (
        "which rank or host is responsible",
        ("rocm", ["diagnose RUN"], r"Rank 1 computes 31 % slower than its peers; the other 3 wait for it"),
        ("sharded-slow-host", ["diagnose RUN"], r"All ranks of node002 compute 40 % slower"),
        ("rocm", ["stragglers RUN"], r"\n +1 .* node001 .* compute\b"),
    ),
    "is it the network": (
        "whether the network is slow",
        ("tensor-slow-link", ["collectives RUN"], r"0x3860dfa2dd9648e +AllReduce .* 15\.\d+ "),
        ("tensor-slow-link", ["diagnose RUN"], r"take 6.0 times as long as those of similar communicators"),
        ("ddp-slow-rank", ["collectives RUN"], r"transfer_median_ns .*busbw_gb_per_s"),
    ),
    "which kernels": (
        "GPU kernels: count, total",
        ("ddp", ["kernels RUN"], r"sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n.* compute +4 +120 +14,439,816"),
        ("kineto", ["kernels RUN"], r"compute +4 +144 +17,955,572"),
        ("mpi", ["kernels RUN"], r"the reports hold no GPU kernels"),
    ),
    "is communication hidden": (
        "whether communication is hidden",
        ("ddp", ["overlap RUN"], r"overlap_percent[\s\S]* 41\.7 "),
        ("kineto", ["overlap RUN"], r"overlap_percent[\s\S]* 38\.4 "),
        ("host-bound", ["overlap RUN"], r"overlap_percent[\s\S]* 0\.0 "),
    ),
    "did my change help": (
        "whether a change helped",
        ("ddp", ["diff RUN ddp-slow-rank"], r"^B is slower by a factor of 3: a step takes 11.9 ms instead of 3.91 ms"),
        ("kineto-exposed", ["diff RUN kineto"], r"^B is 2.5 times as fast: a step takes 5.12 ms instead of 12.6 ms"),
        ("ddp", ["diff RUN ddp"], r"^B is as fast as A, as far as can be told"),
    ),
    "memory peak": (
        "such as memory",
        ("kineto", ["recipe memory RUN"], r"peak_bytes[\s\S]*14,680,064"),
        ("kineto", ["recipe memory,memory-peak RUN"], r"14,680,064"),
        ("ddp", ["recipe memory RUN"], r"a trace recorded with profile_memory has them"),
    ),
    "gate in CI": (
        "a gate for CI",
        ("ddp-slow-rank", ["check RUN --baseline ddp"], r"The run is slower by a factor of 3 than the baseline"),
        (
            "ddp",
            ["check RUN --baseline ddp-slow-rank"],
            r"The run is 3 times as fast as the baseline: .* 1 limit is held",
        ),
        ("kineto", ["check RUN --baseline kineto"], r"1 limit is held"),
    ),
    "profile my own job": (
        "profile every rank under any launcher",
        (None, ["capture exec --help"], r"usage: alltrace capture exec \[options\] -- PROGRAM"),
        (None, ["capture script slurm --nodes 2 -- python train.py"], r"alltrace capture exec .* python train.py"),
        (None, ["capture --help"], r"alltrace capture exec -o reports -- python train.py"),
    ),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_new_user_gets_there_by_the_help(task, alltrace, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    leads, *tries = TASKS[task]
    assert leads in " ".join(alltrace("--help").out.split())
    shutil.copytree(RUNS, "runs", ignore=DERIVED)  # questions keep what they derive in a run
    for run, commands, wanted in tries:
        assert len(commands) <= MOST_COMMANDS
        text = ""
        for command in commands:
            words = [run if word == "RUN" else word for word in command.split()]
            done = alltrace(*(f"runs/{word}/run" if Path("runs", word).is_dir() else word for word in words))
            text += done.out
            assert text, done.err
        # sentences are wrapped; rows of tables are not
        assert re.search(wanted, text) or re.search(wanted, " ".join(text.split())), (
            f"{commands} on {run}: {text[:2000]}"
        )
