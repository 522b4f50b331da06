"""A real Slurm with two emulated nodes on this machine, for tests; needs root, slurmctld, slurmd and munged."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "sinfo")
_START_S = 60.0
_GPUS = 8
_NAMED = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')

_CONF = """\
ClusterName=two
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
StateSaveLocation={folder}/state
ReturnToService=2
SwitchType=switch/none
SlurmctldTimeout=60
SlurmdTimeout=300
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=8 RealMemory=8000 Gres=gpu:{gpus}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=8 RealMemory=8000 Gres=gpu:{gpus}
PartitionName=test Nodes=n[0-1] Default=YES MaxTime=60 State=UP OverSubscribe=YES
"""


def why_no_slurm() -> str | None:
    """Why there can be no Slurm here; None where there can."""
    if os.geteuid() != 0:
        return "emulated Slurm nodes need root"
    lacking = [p for p in _PROGRAMS if shutil.which(p) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else None


def named(node: str) -> list[str]:
    """Put before a command, so that its machine has this name for it; empty where that cannot be done here."""
    return [*_NAMED, node] if two_names() else []


@functools.cache
def two_names() -> bool:
    """Whether emulated nodes can have names of their own here."""
    try:
        done = subprocess.run([*_NAMED, "n0", "uname", "-n"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return done.stdout == "n0\n"


@contextmanager
def two_nodes(folder: Path) -> Iterator[dict[str, str]]:
    """Nodes n0 and n1 of 8 CPUs, and 8 GPUs by name, each; yields the environment in which Slurm's commands reach
    them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("state", "spool.n0", "spool.n1"):
        (folder / name).mkdir()
    controller, first, second = free_ports(3)
    conf = folder / "slurm.conf"
    conf.write_text(
        _CONF.format(
            host=socket.gethostname().split(".")[0],
            folder=folder,
            controller=controller,
            first=first,
            second=second,
            gpus=_GPUS,
        )
    )
    (folder / "cgroup.conf").write_text("CgroupAutomount=yes\n")
    for number in range(_GPUS):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"NodeName=n[0-1] Name=gpu File={folder}/gpu[0-{_GPUS - 1}]\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    with ExitStack() as running:
        _start(
            running, folder, environment, "munged", "--foreground", "--force", f"--key-file={key}",
            f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munge.seed",
        )  # fmt: skip
        _until(lambda: (folder / "munge.socket").exists(), "munged", folder)
        _start(running, folder, environment, "slurmctld", "-D", "-i")
        for node in ("n0", "n1"):
            _start(running, folder, environment, *named(node), "slurmd", "-D", "-N", node)
        _until(lambda: _idle(environment) == 2, "two idle nodes", folder)
        yield environment
        subprocess.run(["scancel", "--state=RUNNING"], env=environment, check=False)
        subprocess.run(["scancel", "--state=PENDING"], env=environment, check=False)


def _start(running: ExitStack, folder: Path, environment: dict[str, str], *command: str) -> None:
    log = running.enter_context((folder / f"{command[0]}.{command[-1]}.out".replace("/", "_")[-60:]).open("wb"))
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    running.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _idle(environment: dict[str, str]) -> int:
    told = subprocess.run(
        ["sinfo", "-h", "-N", "-o", "%N %t"], env=environment, capture_output=True, text=True, check=False
    ).stdout
    return sum(line.split()[-1] == "idle" for line in told.splitlines())


def node_of_task(_item: int, _advance: object) -> str:
    """A task that says on which node it ran; here, as what loads dask_jobqueue wants to be in a main thread."""
    time.sleep(0.3)
    return os.environ["SLURMD_NODENAME"]


def _until(true: object, what: str, folder: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            logs = "\n".join(f"{p.name}: {p.read_text()[-600:]}" for p in sorted(folder.glob("*.log")))
            raise RuntimeError(f"no {what} within {_START_S:g} s\n{logs}")
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
