"""`-o -` is standard output where text is written, and refused elsewhere; no file is called that."""

import json
from pathlib import Path

import pytest


@pytest.mark.parametrize("verb", [["breakdown"], ["recipe", "kernels"], ["stats", "cuda_gpu_kern_sum"]])
def test_a_dash_is_standard_output(alltrace, run, verb):
    done = alltrace(*verb, run, "-o", "-", "--format", "json")
    assert done.code == 0
    assert json.loads(done.out) == json.loads(alltrace(*verb, run, "--format", "json").out)
    assert not Path("-").exists()


def test_a_report_as_text_goes_to_standard_output(alltrace, run):
    done = alltrace("report", run, "-o", "-", "--format", "md")
    assert (done.code, done.out[:1]) == (0, "#")


@pytest.mark.parametrize(
    "command",
    [
        ["export", "chrome", "RUN", "-o", "-"],
        ["import", "RUN", "-o", "-"],
        ["notebook", "RUN", "-o", "-"],
        ["recipe", "all", "RUN", "-o", "-"],
        ["report", "RUN", "-o", "-"],
        ["breakdown", "RUN", "-o", "-", "--format", "parquet"],
        ["synth", "--ideal", "tiny", "-o", "-"],
    ],
)
def test_what_is_no_text_is_refused(alltrace, run, command):
    done = alltrace(*[run if word == "RUN" else word for word in command])
    assert done.code == 2
    assert "-o" in done.err
    assert not Path("-").exists()
