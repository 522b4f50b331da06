"""The command `capture script`."""

import re

import pytest

from alltrace.capture.scripts.registry import TARGETS


def test_options_come_before_the_file_and_the_program_last(capture, tmp_path):
    (tmp_path / "job.toml").write_text(
        '[job]\nnodes = 4\nname = "a"\n[environment]\nA = "1"\n[workload]\nkind = "command"\n'
    )
    options = [*"--config job.toml --nodes 3 --set".split(), "environment.B=x y", *"--steps 3:5 -o job.sbatch".split()]
    done = capture("script", "slurm", *options, "--", "./run me", "--x=$HOME", "--", "y")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "wrote job.sbatch\n")
    text = (tmp_path / "job.sbatch").read_text()
    assert "#SBATCH --nodes=3\n" in text
    assert "#SBATCH --job-name=a\n" in text
    assert "export A=1\nexport B='x y'\n" in text
    assert "program=( './run me' '--x=$HOME' -- y )" in " ".join(text.split())
    assert "  --steps 3:5\n" in text


def test_the_settings_are_shown_as_a_file_that_gives_them_again(capture, tmp_path):
    shown = capture("script", "--show-config", "--nodes", "3", "--", "a b")
    assert shown.returncode == 0
    (tmp_path / "job.toml").write_text(shown.stdout)
    assert capture("script", "--show-config", "--config", "job.toml").stdout == shown.stdout
    assert re.search(r"^# number of nodes or pods\nnodes = 3$", shown.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["slrum"], 2, "unknown target of capture script 'slrum'; did you mean slurm"),
        ([], 2, f"capture script needs a target, one of {', '.join(t.name for t in TARGETS)}"),
        (["slurm", "--nodes", "x"], 2, "job.nodes is 'x'; expected a whole number of 1 or more"),
        (["slurm", "--set", "job.nods=1"], 2, "did you mean job.nodes"),
        (["slurm", "--config", "no.toml"], 3, "no.toml: it cannot be read"),
        (["slurm", "--workload", "fsdp", "--", "x"], 2, "a program was given after --"),
        (["slurm", "-o", "no/such/file"], 2, "cannot be written"),
        (["slurm", "--profiler", "ncu", "--top", "x", "run"], 2, "--top is 'x'; expected how many kernels"),
        (
            ["slurm", "--profiler", "ncu", "--top", "5", "run", "--kernels", "gemm"],
            2,
            "--top and profiler.kernels both select",
        ),
    ],
)
def test_bad_input_is_said_in_a_sentence(capture, arguments, code, said):
    done = capture("script", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_filter_for_ncu_comes_from_a_run(capture, tmp_path):
    from alltrace.synth import write_run

    write_run("tiny", tmp_path / "reports of a run", ideal=True)
    options = ["--profiler", "ncu", "--top", "2", "reports of a run"]
    done = capture("script", "slurm", *options, "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    (found,) = re.findall(r"--kernels '(.*?)'", done.stdout)
    assert re.fullmatch(r"\^\(\w+\|\w+\)\$", found)
    assert "nccl" not in found.lower()
