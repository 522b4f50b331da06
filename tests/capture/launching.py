"""Real launchers over two emulated nodes of this machine, emulated ones where no package has them, and a program for
them.

A node is a UTS namespace with its own name: what Open MPI and MPICH would start by ssh is started in one. Slurm has
emulated nodes itself. Where namespaces cannot be made, all ranks are on one node.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from tests.slurm_cluster import named

NODES = ("n0", "n1")

_REMOTE = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
node=$1
shift
unset SLURMD_NODENAME  # ssh would not pass it on
exec @NODE@ sh -c "$*"
"""

# What each of them sets for a process, from its rank r, world w, local rank l, local size k and node n.
EMULATED = {
    "pals": {
        "PALS_APID": "a1b2", "PALS_RANKID": "{r}", "PALS_LOCAL_RANKID": "{l}", "PALS_NODEID": "{n}", "PMI_RANK": "{r}",
        "PMI_SIZE": "{w}", "PMI_LOCAL_RANK": "{l}", "PMI_LOCAL_SIZE": "{k}", "PBS_JOBID": "7.pbs", "PBS_O_WORKDIR": "/",
    },
    "jsm": {
        "JSM_NAMESPACE_RANK": "{r}", "JSM_NAMESPACE_LOCAL_RANK": "{l}", "JSM_NAMESPACE_SIZE": "{w}",
        "JSM_NAMESPACE_LOCAL_SIZE": "{k}", "PMIX_RANK": "{r}", "OMPI_COMM_WORLD_RANK": "{r}",
        "OMPI_COMM_WORLD_LOCAL_RANK": "{l}", "OMPI_COMM_WORLD_SIZE": "{w}", "LSB_JOBID": "7",
    },
    "flux": {"FLUX_TASK_RANK": "{r}", "FLUX_TASK_LOCAL_ID": "{l}", "FLUX_JOB_SIZE": "{w}", "FLUX_JOB_ID": "f7"},
    "mvapich2": {
        "MV2_COMM_WORLD_RANK": "{r}", "MV2_COMM_WORLD_LOCAL_RANK": "{l}", "MV2_COMM_WORLD_SIZE": "{w}",
        "MV2_COMM_WORLD_LOCAL_SIZE": "{k}",
    },
    "torchrun-like": {
        "RANK": "{r}", "LOCAL_RANK": "{l}", "WORLD_SIZE": "{w}", "LOCAL_WORLD_SIZE": "{k}", "GROUP_RANK": "{n}",
        "TORCHELASTIC_RUN_ID": "none",
    },
}  # fmt: skip
RANK_VARIABLES = "RANK OMPI_COMM_WORLD_RANK MV2_COMM_WORLD_RANK PALS_RANKID PMI_RANK JSM_NAMESPACE_RANK FLUX_TASK_RANK SLURM_PROCID".split()  # noqa: E501

PROGRAM = f"""
import os, signal, sys, time
from pathlib import Path
rank = next((os.environ[n] for n in {RANK_VARIABLES!r} if n in os.environ), "0")
what, *rest = sys.argv[1:]
def note(kind):
    Path(f"{{kind}}.{{rank}}.new").write_text(str(os.getpid()))
    os.rename(f"{{kind}}.{{rank}}.new", f"{{kind}}.{{rank}}")
note("ran")
if what == "steps":
    from alltrace.instrument import annotate, steps
    with steps() as window:
        for n in range(6):
            with annotate(f"step {{n}}"): time.sleep(0.01)
            window.step()
elif what == "gloo":
    import torch
    from alltrace.instrument import annotate, steps
    torch.distributed.init_process_group("gloo")
    with steps() as window:
        for n in range(6):
            one = torch.ones(1)
            with annotate(f"step {{n}}"): torch.distributed.all_reduce(one)
            assert one.item() == int(os.environ["WORLD_SIZE"])
            window.step()
    torch.distributed.destroy_process_group()
elif what == "wait":
    def saves(*_):
        note("saved")
        os._exit(7)
    signal.signal(signal.SIGTERM, saves)
    signal.signal(signal.SIGINT, saves)
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(8))
    note("ready")
    until = time.monotonic() + float(rest[0])
    while time.monotonic() < until and not Path("go").exists(): time.sleep(0.02)
    os._exit(6)
elif what == "sleep":
    note("ready")
    time.sleep(30)
elif what == "big":
    import nvtx
    for n in range(200000):
        with nvtx.annotate(f"step {{n}} " + "x" * 50): pass
elif what == "fork":
    if not os.fork():
        os.setsid()
        time.sleep(1)
        note("outlived")
        os._exit(0)
elif what == "kill":
    os.kill(os.getpid(), int(rest[0]))
elif what == "exit":
    until = time.monotonic() + 60
    while len(rest) > 1 and len(list(Path().glob("ran.?"))) < 2 and time.monotonic() < until: time.sleep(0.02)
    if len(rest) < 2 or rest[1] == rank: sys.exit(int(rest[0]))
    time.sleep(1)
"""


def find_mpirun() -> str | None:
    """Open MPI's, also where another MPI's is the default."""
    return shutil.which("mpirun.openmpi") or shutil.which("mpirun")


def find_hydra() -> str | None:
    """MPICH's launcher."""
    return shutil.which("mpiexec.hydra")


@functools.cache
def find_torch() -> str | None:
    """A Python that has PyTorch: the one that ALLTRACE_TORCH_PYTHON names, or this one."""
    named = os.environ.get("ALLTRACE_TORCH_PYTHON")
    python = named or sys.executable
    asked = [python, "-c", "import torch.distributed"]
    return python if subprocess.run(asked, capture_output=True, check=False).returncode == 0 else None


def launch(launcher: str, ranks: int, command: list[str], folder: Path) -> list[str]:
    """The command that starts `command` as so many ranks under this launcher, half of them on each node.

    Args:
        launcher: Such as `openmpi`; `sbatch+openmpi` puts it into a batch script whose output is `folder`/batch.err.
        ranks: How many; an even number.
        command: What each rank runs.
        folder: Where files that a launcher needs are made.
    """
    outer, _, inner = launcher.rpartition("+")
    if outer:
        script = folder / "job.sbatch"
        script.write_text(f"#!/bin/sh\nexec {shlex.join(launch(inner, ranks, command, folder))}\n")
        return [
            "sbatch",
            "--wait",
            "-N2",
            f"--ntasks-per-node={ranks // 2}",
            *"-o batch.out -e batch.err".split(),
            str(script),
        ]
    each = str(ranks // 2)
    hosts = ",".join(f"{n}:{each}" for n in NODES)
    if launcher == "openmpi":
        return [
            str(find_mpirun()), "--mca", "plm", "rsh", "--mca", "ras", "^slurm", "--mca", "plm_rsh_agent",
            remote(folder), "--mca", "odls_base_sigkill_timeout", "5",
            # else it kills a second after SIGTERM; it always waits so long
            "--host", hosts, "-np", str(ranks), *command,
        ]  # fmt: skip
    if launcher == "mpich":
        agent = ["-launcher", "ssh", "-launcher-exec", remote(folder), "-localhost", "127.0.0.1", "-rmk", "user"]
        return [str(find_hydra()), *agent, "-hosts", ",".join(NODES), "-ppn", each, "-n", str(ranks), *command]
    if launcher == "srun":
        return ["srun", "-N2", f"-n{ranks}", f"--ntasks-per-node={each}", *command]
    if launcher == "torchrun":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        run = [
            str(find_torch()),
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            f"--nproc-per-node={each}",
            "--no-python",
        ]
        run += ["--master-addr=127.0.0.1", f"--master-port={port}"]
        nodes = [[*named(node), *run, f"--node-rank={n}", *command] for n, node in enumerate(NODES)]
        # gloo would look up the node's name
        first, second = map(shlex.join, nodes)
        both = f"{first} & {second}; code=$?; wait $! && exit $code"
        return ["env", "GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1", "sh", "-c", both]
    if launcher == "none":
        return command
    return [sys.executable, "-m", __name__, launcher, str(ranks), *command]


def remote(folder: Path) -> str:
    """A program in place of ssh, which starts commands on emulated nodes."""
    path = folder / "remote"
    path.write_text(_REMOTE.replace("@NODE@", shlex.join(named("NODE")).replace("NODE", '"$node"')))
    path.chmod(0o755)
    return str(path)


def processes(rank: int, folder: Path) -> dict[str, int]:
    """The parts of nsys around one rank: `agent`, `front end`, `launcher`, by their process ids."""
    mark = f"TMPDIR={folder}/alltrace-{rank}-".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdecimal() or mark not in (entry / "environ").read_bytes():
                continue
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--start-agent" in words:
            found["agent"] = int(entry.name)
        elif words[0].endswith((b"/nsys", b"nsys")) and b"profile" in words:
            found["front end"] = int(entry.name)
        elif words[0].endswith(b"nsys-launcher"):
            found["launcher"] = int(entry.name)
    return found


def main() -> int:
    """Start every rank of an emulated launcher, pass SIGTERM on, wait, and give the largest exit code."""
    import signal

    family, ranks, command = EMULATED[sys.argv[1]], int(sys.argv[2]), sys.argv[3:]
    size = ranks // 2
    running = []
    for rank in range(ranks):
        node, local = divmod(rank, size)
        values = {"r": rank, "w": ranks, "l": local, "k": size, "n": node}
        variables = {**os.environ, **{name: text.format(**values) for name, text in family.items()}}
        if "SLURMD_NODENAME" in variables:
            variables["SLURMD_NODENAME"] = NODES[node]
        running.append(subprocess.Popen([*named(NODES[node]), *command], env=variables))
    signal.signal(signal.SIGTERM, lambda *_: [p.terminate() for p in running])
    codes = [p.wait() for p in running]
    return max(c if c >= 0 else 128 - c for c in codes)


if __name__ == "__main__":
    sys.exit(main())
