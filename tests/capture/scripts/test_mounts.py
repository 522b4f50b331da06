"""Scripts and manifests for containers, run in a root folder that has an image and what they mount, and nothing
else."""

import os
import shlex
import subprocess

import pytest
from tests.capture.scripts.rendering import documents, scripts, templates

from alltrace.capture.scripts.registry import render
from alltrace.capture.scripts.settings import Job

BOX = """#!/bin/bash
# box IMAGE MOUNTS WORDS...: runs the words where only the system, the image's own folder and the mounts are
image=$1 mounts=$2; shift 2
root=$(mktemp -d) && mount -t tmpfs none "$root" || exit 90
for place in /usr /bin /lib /lib64 /dev /proc; do
  mkdir -p "$root$place" && mount --rbind "$place" "$root$place" || exit 91
done
mkdir "$root/tmp" && mkdir -p "$root$image" && mount --bind "$image" "$root$image" || exit 92
IFS=,; for mount in $mounts; do
  mkdir -p "$root${mount#*:}" && mount --bind "${mount%%:*}" "$root${mount#*:}" || exit 93
done; unset IFS
exec chroot "$root" /bin/sh -c 'cd "$0" 2>/dev/null; exec "$@"' "$PWD" "$@"
"""
SRUN = """#!/bin/bash
while [ "$1" != sh ]; do case $1 in --container-mounts=*) mounts=${1#*=} ;; esac; shift; done
code=0
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_STEP_NUM_TASKS=2 \\
    unshare --mount "$BOX" "$IMAGE" "$mounts" "$@" || code=$?
done
exit $code
"""
TORCHRUN = """#!/bin/sh
while [ "$1" != --no-python ]; do shift; done; shift
for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x "$@" || exit; done
"""
NSYS = """#!/bin/sh
[ "$1" != --version ] || { echo "NVIDIA Nsight Systems version 2023.4.4.54-0"; exit 0; }
[ "$2" != --help ] || { echo "--trace= --output= --force-overwrite= --sample= --cpuctxsw= --kill="; exit 0; }
shift
while :; do case $1 in --output=*) out=${1#--output=} ;; --*) ;; *) break ;; esac; shift; done
"$@"; code=$?
printf raw > "${out%.nsys-rep}.qdstrm"
"$(dirname "$(readlink -f "$0")")/../host-linux-x64/QdstrmImporter" "$out" && rm "${out%.nsys-rep}.qdstrm"
exit $code
"""
IMPORTER = "#!/bin/sh\nprintf 'NVIDIA Tegra Profiler Report 2023 body [END]' > \"$1\"\n"
PROGRAM = '#!/bin/sh\n[ ! -e "$ELSEWHERE" ] && [ "$1" = "a b" ]\n'


def _may_mount():
    return (
        os.geteuid() == 0
        and not subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode
    )


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not _may_mount(), reason="needs root and namespaces of mounts")]


@pytest.fixture
def site(tmp_path, monkeypatch, bare_environment):
    """Folders: of the image, of Nsight Systems, of the job; and tools on the path."""
    texts = {
        "tools/srun": SRUN, "tools/box": BOX, "image/torchrun": TORCHRUN, "work/prog": PROGRAM, "image/prog": PROGRAM,
        "nsight/2025/target-linux-x64/nsys": NSYS, "nsight/2025/host-linux-x64/QdstrmImporter": IMPORTER,
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "elsewhere").write_text("of others")
    for name, value in (("BOX", "tools/box"), ("IMAGE", "image"), ("ELSEWHERE", "elsewhere")):
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("PATH", f"{tmp_path}/tools:{tmp_path}/image:{os.environ['PATH']}")
    return tmp_path


def reports(folder):
    return sorted(path.name[:9] for path in folder.iterdir() if path.suffix == ".nsys-rep")


def test_ranks_in_pyxis_leave_their_reports_with_what_the_script_mounts(site, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_NNODES", "1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "host-a")
    settings = {
        "job.nodes": 1, "job.ranks_per_node": 2, "slurm.container_image": "x", "profiler.wrapper": "shell",
        "profiler.path": str(site / "nsight/2025/target-linux-x64/nsys"), "workload.command": ["./prog"],
        "workload.arguments": ["a b"],
    }  # fmt: skip
    script = site / "job.sh"
    script.write_text(render("slurm-pyxis", Job(settings)))
    done = subprocess.run(["bash", script], cwd=site / "work", capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert reports(site / "work/reports/77") == ["77_rank0_", "77_rank1_"]


MPIRUN = """#!/bin/bash
# mpirun OPTIONS -x NAME... sh PROGRAM...: what ssh would start on the workers, with the variables that -x names
names=()
while [ "$1" != sh ]; do [ "$1" != -x ] || names+=("$2"); shift; done
for name in "${names[@]}"; do [ -z "${!name+x}" ] || printf '%s=%s\\0' "$name" "${!name}"; done >/reports/variables
printf '%s\\0' "$@" >/reports/words
"""


@pytest.fixture
def cluster(site):
    """Applies a manifest: gives its documents, and what starts words in a container of it, where only its image and
    mounts are."""
    tool = site / "image/nsight"
    (site / "nsight/2025").rename(tool)
    (site / "image/mpirun").write_text(MPIRUN)
    (site / "image/mpirun").chmod(0o755)
    for folder in ("claim", "config", "memory"):
        (site / folder).mkdir()
    places = {"reports": "claim", "alltrace": "config", "shared-memory": "memory"}

    def apply(target):
        settings = {
            "job.nodes": 1, "job.ranks_per_node": 2, "job.name": "one", "kubernetes.image": "x",
            "kubernetes.claim": "reports", "profiler.wrapper": "shell",
            "profiler.path": str(tool / "target-linux-x64/nsys"), "workload.command": [str(site / "image/prog")],
            "workload.arguments": ["a b"],
        }  # fmt: skip
        found = documents(render(target, Job(settings)))
        (files,) = (document["data"] for document in found if document["kind"] == "ConfigMap")
        for name, text in files.items():
            (site / "config" / name).write_text(text)
        return found

    def start(container, words, **variables):
        mounted = [m for m in container["volumeMounts"] if m["mountPath"] != "/dev/shm"]
        mounts = ",".join(f"{site / places[m['name']]}:{m['mountPath']}" for m in mounted)
        inside = ["unshare", "--mount", str(site / "tools/box"), str(site / "image"), mounts, *words]
        environment = {name: os.environ[name] for name in ("PATH", "ELSEWHERE")} | variables
        done = subprocess.run(
            inside, cwd="/", env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, f"{shlex.join(inside[:5])}: {done.stderr}"

    return apply, start


def container_of(document):
    return next(templates(document))["spec"]["containers"][0]


def variables_of(container):
    return {variable["name"]: variable["value"] for variable in container.get("env", ())}


@pytest.mark.parametrize("target", ["k8s-jobset", "k8s-pytorchjob", "k8s-trainjob"])
def test_ranks_in_a_pod_leave_their_reports_with_what_the_manifest_mounts(site, cluster, target):
    apply, start = cluster
    found = apply(target)
    pod = next(container_of(document) for document in found if list(templates(document)))
    script = next(text for document in found for text in scripts(document))
    of_operator = {"JOB_COMPLETION_INDEX": "0", "RANK": "0", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    start(pod, ["/bin/bash", "-c", script], **variables_of(pod), **of_operator)
    assert reports(site / "claim/one") == ["one_rank0", "one_rank1"]


def test_ranks_that_an_mpijob_starts_by_ssh_leave_their_reports_with_what_their_pods_mount(site, cluster):
    apply, start = cluster
    _, job = apply("k8s-mpijob")
    launcher, worker = (container_of(job["spec"]["mpiReplicaSpecs"][name]) for name in ("Launcher", "Worker"))
    start(launcher, ["/bin/bash", "-c", next(scripts(job))], **variables_of(launcher))
    words, passed = ((site / "claim" / name).read_text().split("\0")[:-1] for name in ("words", "variables"))
    for rank in "01":
        by_ssh = dict(text.split("=", 1) for text in passed)
        ompi = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2"}
        start(worker, words, **by_ssh, **ompi)
    assert reports(site / "claim/one") == ["one_rank0", "one_rank1"]
