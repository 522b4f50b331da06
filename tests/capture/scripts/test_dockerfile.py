import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alltrace.capture.scripts.registry import render
from alltrace.capture.scripts.settings import Job

dockerfile_parse = pytest.importorskip("dockerfile_parse")
EVERYTHING = {
    "image.mpi": True,
    "image.efa": "1.43.1",
    "image.nccl_tests": "v2.19.6",
    "image.nsight_compute": "nsight-compute-2025.3.0",
}


def instructions(text):
    parser = dockerfile_parse.DockerfileParser(fileobj=io.BytesIO(text.encode()))
    return [(i["instruction"], i["value"]) for i in parser.structure if i["instruction"] != "COMMENT"]


SOME = pytest.mark.parametrize(
    "changes", [{}, EVERYTHING, {"image.mpi": True, "image.nccl_tests": "v2.19.6"}, {"image.nsight_systems": ""}]
)


@SOME
def test_hadolint_finds_nothing(changes):
    beside = Path(sys.executable).with_name("hadolint")
    hadolint = str(beside) if beside.is_file() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint on this machine")
    text = render("docker", Job(changes))
    checked = subprocess.run([hadolint, "--no-color", "-"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


@SOME
def test_its_instructions_are_those_of_docker_and_its_commands_those_of_bash(changes, shellcheck):
    found = instructions(render("docker", Job(changes)))
    assert {name for name, _ in found} <= {"FROM", "SHELL", "USER", "COPY", "RUN", "ENV", "WORKDIR"}
    assert [name for name, _ in found[:3]] == ["FROM", "SHELL", "USER"]
    assert json.loads(found[1][1]) == ["/bin/bash", "-euo", "pipefail", "-c"]
    for name, value in found:
        if name == "RUN":
            # the image's /etc/os-release is not here
            command = [shellcheck, "-s", "bash", "-e", "SC1091", "-"]
            checked = subprocess.run(command, input=value, capture_output=True, text=True, check=False)
            assert checked.stdout == "", value


def test_what_is_wanted_is_added_and_downloads_are_checked():
    plain = render("docker", Job())
    assert "FROM nvcr.io/nvidia/pytorch:25.06-py3\n" in plain
    assert "      nsight-systems-cli \\\n" in plain
    assert not re.search(r"\befa|sshd|nccl-tests|nsight-compute", plain)
    whole = render(
        "docker",
        Job({**EVERYTHING, "image.base": "nvidia/cuda:12.8.0-devel-ubuntu22.04", "image.alltrace": "'x; id' a==1"}),
    )
    assert "FROM nvidia/cuda:12.8.0-devel-ubuntu22.04\n" in whole
    assert "nsight-systems-cli nsight-compute-2025.3.0" in whole
    assert "aws-efa-installer-1.43.1.tar.gz" in whole
    assert "refs/tags/v2.19.6.tar.gz" in whole
    assert "make -j MPI=1 MPI_HOME=/opt/amazon/openmpi" in whole
    assert "openssh-server" in whole
    assert """pip install --no-cache-dir ''"'"'x;' 'id'"'"'' a==1""" in whole
    whole = render("docker", Job(EVERYTHING))
    assert all(url.startswith("https://") for url in re.findall(r"\w+://\S+", whole))
    assert whole.count("curl -fsSL") == 3
