"""A Dask cluster with workers on emulated nodes: each node has its own name and disk, in namespaces of Linux.

The disk of a node is a folder that its processes see in the place of another one, so that two nodes have different
files under one path, and that this process sees neither.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.slurm_cluster import free_ports

_NODE = ("unshare", "--uts", "--mount", "sh", "-c", 'hostname "$0" && mount --bind "$1" "$2" && shift 2 && exec "$@"')
_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")  # without a scheduler workers end by themselves
_START_S = 60.0


@cache
def why_no_nodes() -> str | None:
    """Why nodes cannot be emulated here; None where they can."""
    try:
        done = subprocess.run(
            [*_NODE, "n0", "/tmp", "/tmp", "uname", "-n"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "unshare is not installed"
    return None if done.stdout == "n0\n" else "no names and mounts of a process's own here"


class Nodes:
    """The scheduler, and the nodes with their workers.

    Args:
        folder: For what is written about them.
        names: The nodes.
        workers: How many workers each has.

    Attributes:
        disks: For each node the folder that is its own disk.
        local: Where every node sees its own disk.
        address: The scheduler's.
    """

    def __init__(self, folder: Path, names: Sequence[str] = ("n0", "n1"), workers: int = 1) -> None:
        self.local = folder / "local"
        self.disks = {name: folder / f"disk-{name}" for name in names}
        for place in (self.local, *self.disks.values()):
            place.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._workers = workers
        self._port = free_ports(1)[0]
        self.address = f"tcp://127.0.0.1:{self._port}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the scheduler and all workers, and wait for them."""
        self._run(
            "scheduler",
            _WITH_PARENT,
            "dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            str(self._port),
            "--no-dashboard",
        )
        for name in self.disks:
            for number in range(self._workers):
                self.start_worker(name, number)
        from distributed import Client

        connect: Any = Client
        with connect(self.address, timeout=_START_S, set_as_default=False) as client:
            client.wait_for_workers(len(self.disks) * self._workers, timeout=_START_S)

    def start_worker(self, node: str, number: int = 0) -> None:
        """Start a worker on a node; its nanny starts it again when it is killed."""
        before = (*_NODE, node, str(self.disks[node]), str(self.local))
        self._run(
            f"{node}-{number}", before, "dask_worker", self.address, "--nthreads", "1", "--no-dashboard",
            "--memory-limit", "0", "--host", "127.0.0.1", "--local-directory",
            str(self._folder / f"work-{node}-{number}"), "--death-timeout", "60",
        )  # fmt: skip

    def kill_all(self) -> None:
        """Kill the scheduler and all workers at once."""
        for process in self._running.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()

    def _run(self, name: str, before: Sequence[str], module: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*before, sys.executable, "-m", f"distributed.cli.{module}", *arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@contextmanager
def dask_nodes(folder: Path, names: Sequence[str] = ("n0", "n1"), workers: int = 1) -> Iterator[Nodes]:
    """Emulated nodes that run until the end of the block."""
    nodes = Nodes(folder, names, workers)
    with ExitStack() as stack:
        stack.callback(nodes.kill_all)
        nodes.start()
        yield nodes


def until(true: object, seconds: float = _START_S) -> None:
    """Wait until `true()` is."""
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)
