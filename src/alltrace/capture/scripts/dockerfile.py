"""A Dockerfile that adds Nsight, and alltrace, to a base image; with Open MPI, EFA and nccl-tests if they are wanted."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alltrace.capture.scripts.settings import Job

_APT = "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends"
_CLEAN = "rm -rf /var/lib/apt/lists/*"
_SITE = "https://developer.download.nvidia.com"
_KEY = f"{_SITE}/compute/cuda/repos/ubuntu1804/x86_64/7fa2af80.pub"


def render(job: Job, target: str) -> str:
    """The Dockerfile, for a base image of Ubuntu or Debian."""
    run = "--gpus all --ipc=host --ulimit memlock=-1"
    blocks = [
        f"# {job.text('image.base')} with Nsight; made by alltrace capture script {target}\n"
        f"# Build: docker build -t {job.text('job.name')} - < FILE\n"
        f'# Run:   docker run --rm {run} --cap-add=SYS_ADMIN -v "$PWD":/work -w /work {job.text("job.name")} \\\n'
        "#          alltrace capture exec -- python train.py\n"
        "# CUDA and NVTX need no capability; SYS_ADMIN is for --gpu-metrics, --sample and ncu.",
        f'FROM {job.text("image.base")}\nSHELL ["/bin/bash", "-euo", "pipefail", "-c"]\n# hadolint ignore=DL3002\nUSER 0',
        *_nsight(job),
    ]
    if job.text("image.alltrace"):
        blocks.append(
            "# the wrapper, and what copies reports to s3:// and gs://\n"
            "# hadolint ignore=DL3013\n"
            f"RUN python3 -m pip install --no-cache-dir {_pip(job.text('image.alltrace'))} 's3fs' 'gcsfs'"
        )
    if job.flag("image.mpi"):
        packages = "libopenmpi-dev openmpi-bin openssh-client openssh-server"
        blocks.append(
            f"# hadolint ignore=DL3008\nRUN {_APT} \\\n      {packages} \\\n && mkdir -p /run/sshd \\\n"
            " && sed -i 's/^#*StrictModes .*/StrictModes no/' /etc/ssh/sshd_config \\\n"
            " && echo '    StrictHostKeyChecking no' >> /etc/ssh/ssh_config \\\n"
            f" && {_CLEAN}"
        )
    if job.text("image.efa"):
        blocks += _efa(job.text("image.efa"))
    if job.text("image.nccl_tests"):
        blocks += _nccl_tests(job)
    blocks.append("WORKDIR /work")
    return "\n\n".join(blocks) + "\n"


def _nsight(job: Job) -> list[str]:
    # the packages are named by version, or the newest is meant
    packages = [p for p in (job.text("image.nsight_systems"), job.text("image.nsight_compute")) if p]
    if not packages:
        return []
    repositories = f'"{_SITE}/devtools/repos/ubuntu${{release}}/${{machine}}"'
    return [
        "# hadolint ignore=DL3008\n"
        f"RUN {_APT} \\\n      ca-certificates curl gnupg \\\n"
        f" && curl -fsSL {_KEY} | gpg --dearmor -o /usr/share/keyrings/nvidia-devtools.gpg \\\n"
        ' && release="$(. /etc/os-release && echo "${VERSION_ID//./}")" machine="$(dpkg --print-architecture)" \\\n'
        f" && repository={repositories} \\\n"
        ' && echo "deb [signed-by=/usr/share/keyrings/nvidia-devtools.gpg] ${repository} /" \\\n'
        "      > /etc/apt/sources.list.d/nvidia-devtools.list \\\n"
        f" && {_APT} \\\n      {' '.join(packages)} \\\n && {_CLEAN} \\\n"
        ' && if [ -z "$(command -v nsys)" ]; then ln -s /opt/nvidia/nsight-systems*/*/bin/nsys /usr/local/bin/nsys; fi'
    ]


def _efa(version: str) -> list[str]:
    name = f"aws-efa-installer-{version}.tar.gz"
    return [
        "# the kernel module is the host's\n"
        "# hadolint ignore=DL3003\n"
        f"RUN cd /tmp && curl -fsSL https://efa-installer.amazonaws.com/{name} | tar -xz \\\n"
        " && cd aws-efa-installer && apt-get update \\\n"
        " && ./efa_installer.sh -y -g --skip-kmod --skip-limit-conf --no-verify \\\n"
        f" && rm -rf /tmp/aws-efa-installer && {_CLEAN}\n"
        'ENV PATH="/opt/amazon/openmpi/bin:/opt/amazon/efa/bin:${PATH}" \\\n'
        '    LD_LIBRARY_PATH="/opt/amazon/ofi-nccl/lib:/opt/amazon/openmpi/lib:/opt/amazon/efa/lib:${LD_LIBRARY_PATH}" \\\n'
        "    FI_PROVIDER=efa"
    ]


def _nccl_tests(job: Job) -> list[str]:
    version = job.text("image.nccl_tests")
    by_mpi = job.flag("image.mpi") or job.text("image.efa")
    # Debian keeps headers and libraries of Open MPI in a separate folder
    found = (
        '"$(find /usr/lib -maxdepth 3 -path "*/openmpi" -type d | head -n 1)"'
        if not job.text("image.efa")
        else "/opt/amazon/openmpi"
    )
    make = f"make -j MPI=1 MPI_HOME={found}" if by_mpi else "make -j"
    return [
        "# hadolint ignore=DL3003\n"
        f"RUN curl -fsSL https://github.com/NVIDIA/nccl-tests/archive/refs/tags/{version}.tar.gz | tar -xz -C /opt \\\n"
        f" && mv /opt/nccl-tests-* /opt/nccl-tests && cd /opt/nccl-tests && {make}\n"
        'ENV PATH="/opt/nccl-tests/build:${PATH}"'
    ]


def _pip(text: str) -> str:

    return " ".join(map(shlex.quote, text.split()))
