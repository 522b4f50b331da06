"""`import` with logs: what is wrong is one sentence, before the work."""

from pathlib import Path

import pytest

from alltrace.synth import write_run


@pytest.fixture
def reports(tmp_path):
    write_run("tiny", tmp_path / "here" / "reports", ideal=True)
    return "reports"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--gpu-log", "no.csv"], 3, "no.csv: there is no such file; expected a log"),
        (["--gpu-log-utc-offset", "+01:00"], 2, "--gpu-log-utc-offset needs --gpu-log, which was not given"),
        (["--pattern", "x"], 2, "--pattern needs --training-log, which was not given"),
        (["--training-log", "text", "--pattern", "(?P<a>.)"], 2, "--pattern has a group 'a'; expected (?P<step>...)"),
        (
            ["--training-log", "text"],
            3,
            "text: no step lines in 1 line; expected step lines of a supported training framework",
        ),
        (["--training-log", "text", "--pattern", "s(?P<step>.) (?P<loss>.)"], 3, "expected lines that match --pattern"),
        (
            ["--gpu-log", "gpu.csv", "--gpu-log-utc-offset", "CET"],
            2,
            "--gpu-log-utc-offset is 'CET'; expected how far local time",
        ),
        (["--gpu-log", "gpu.csv", "--gpu-log-utc-offset=-15:00"], 2, "--gpu-log-utc-offset is '-15:00'; expected"),
        (["--gpu-log", "gpu.csv", "--gpu-log-utc-offset=-07:30"], 3, "none of its 1 GPU matches"),
        (["--gpu-log", "gpu.csv"], 3, "none of its 1 GPU matches a GPU in the reports"),
        (["--gpu-log", "text"], 3, "text: its first line is not from nvidia-smi's CSV"),
    ],
)
def test_what_cannot_be_joined_is_one_sentence(alltrace, tmp_path, reports, options, code, said):
    here = tmp_path / "here"
    (here / "gpu.csv").write_text("timestamp, uuid, clocks.sm\n2026/11/25 09:30:04.123, GPU-00000000-0000, 1980\n")
    (here / "text").write_text("hello\n")
    done = alltrace("import", reports, "-o", "run", *options)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert done.err.strip().count("\n") == 0
    assert not (here / "run" / "logs").exists()


def test_a_run_is_called_what_its_import_says(alltrace, reports):
    from alltrace.run.manifest import Labels, read_manifest

    assert alltrace("import", reports, "-o", "run").code == 0
    before = read_manifest(Path("run")).labels
    assert before == Labels()
    labels = ["--job", "train", "--revision", "abc", "--tag", "nightly", "--tag", "h100"]
    assert alltrace("import", reports, "-o", "run", *labels).code == 0
    assert read_manifest(Path("run")).labels == Labels("train", "abc", ("nightly", "h100"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--job", ""], "--job is ''; expected"),
        (["--part", "--tag", "x"], "--tag is for the whole run; give it with --finish"),
    ],
)
def test_what_a_run_cannot_be_called_is_told(alltrace, reports, options, said):
    done = alltrace("import", reports, "-o", "run", *options)
    assert done.code == 2
    assert said in done.err
