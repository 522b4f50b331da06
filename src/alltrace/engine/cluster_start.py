"""Clusters for `alltrace.engine.cluster`: one that runs at an address, or the workers that Slurm or PBS starts."""

import logging
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from alltrace.engine.cluster import LOST_S, ClusterEngine
from alltrace.trace.errors import UsageError

_CONNECT_S = 10.0
_AGAIN_S = 1.0
_SUBMIT_S = 60.0
_LOOPS = ("tornado.application", "asyncio")

SYSTEMS = {"slurm": "sbatch", "pbs": "qsub"}
"""What each batch system takes jobs with."""


@contextmanager
def dask_engine(address: str, wait_s: float = LOST_S) -> Iterator[ClusterEngine]:
    """The engine of the Dask scheduler at `address`, such as `tcp://host:8786`."""
    # `wait_s`: how long to wait for workers, or for the scheduler when it went away.
    distributed = _distributed()
    _quiet()

    def connect(within_s: float) -> Any:
        until = time.monotonic() + within_s
        while True:
            with suppress(OSError, ValueError, TypeError):
                return distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
            if time.monotonic() >= until:
                return None
            time.sleep(_AGAIN_S)

    client = connect(0.0)
    if client is None:
        raise UsageError(
            f"--dask {address}: no scheduler answered within {_CONNECT_S:g} s; expected the address that `dask"
            " scheduler` prints, such as tcp://host:8786"
        )
    engine = ClusterEngine(client, f"the Dask cluster at {address}", wait_s, connect)
    try:
        yield engine
    finally:
        with suppress(Exception):
            engine.client.close(timeout=_CONNECT_S)


@contextmanager
def queue_engine(
    system: str, jobs: int, settings: Mapping[str, Any], logs: Path, hosts: Sequence[str] = ()
) -> Iterator[ClusterEngine]:
    """The engine of workers that a batch system starts; they end with the block."""
    # `jobs`: how many jobs to submit, a worker each. `settings`: of `dask_jobqueue.SLURMCluster` or `PBSCluster`, such
    # as queue, account, walltime, cores, memory. `logs`: where the jobs' output goes; must be seen by all nodes.
    # `hosts`: the nodes that must have a worker, as reports are there.
    distributed = _distributed()
    command = SYSTEMS[system]
    if hosts and system != "slurm":
        raise UsageError(
            f"--{system} cannot choose nodes, and reports are on {hosts[0]}; start a worker there yourself and give"
            " --dask ADDRESS"
        )
    if jobs < len(hosts):
        raise UsageError(
            f"--{system} {jobs} is fewer than the {len(hosts)} hosts with reports; give --{system} {len(hosts)}"
        )
    if shutil.which(command) is None:
        raise UsageError(
            f"--{system} submits jobs with {command}, which is not on PATH; run alltrace where the batch system is"
            " installed"
        )
    try:
        import dask_jobqueue
    except ImportError as error:
        raise UsageError(
            f"--{system} needs dask-jobqueue, which is not installed; pip install 'alltrace[dask]'"
        ) from error
    _quiet()
    kind: Any = getattr(dask_jobqueue, {"slurm": "SLURMCluster", "pbs": "PBSCluster"}[system])
    defaults = {
        "cores": 1,
        "processes": 1,
        "memory": "4GiB",
        "walltime": "01:00:00",
        "python": sys.executable,
        "log_directory": str(logs),
        "scheduler_options": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    }
    try:
        cluster = kind(**{**defaults, **settings})
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"--{system}: {error}; --cluster accepts the settings of dask_jobqueue.{kind.__name__}"
        ) from error
    try:
        _place(cluster, hosts)
        _submit(cluster, system, jobs)
        client = distributed.Client(cluster, timeout=_CONNECT_S, set_as_default=False)
        try:
            yield ClusterEngine(client, f"the {jobs} {system} workers", wait_s=None)
        finally:
            with suppress(Exception):
                client.close(timeout=_CONNECT_S)
    finally:
        with suppress(Exception):
            cluster.close(timeout=_CONNECT_S)


def _place(cluster: Any, hosts: Sequence[str]) -> None:
    for host in hosts:
        for name, spec in cluster.new_worker_spec().items():
            options = spec["options"]
            directives = [*(options.get("job_extra_directives") or ()), f"--nodelist={host}"]
            cluster.worker_spec[name] = {**spec, "options": {**options, "job_extra_directives": directives}}


def _submit(cluster: Any, system: str, jobs: int) -> None:
    """Submit the workers' jobs; what the batch system says against it comes only as a message of the event loop."""
    refusals = _Refusals()
    for name in _LOOPS:
        logging.getLogger(name).addFilter(refusals)
    try:
        cluster.scale(jobs=jobs)
        deadline = time.monotonic() + _SUBMIT_S
        while (taken := _taken(cluster)) < jobs and refusals.first is None and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        for name in _LOOPS:
            logging.getLogger(name).removeFilter(refusals)
    if taken < jobs:
        cluster.worker_spec.clear()  # else closing would submit them once more
        why = (refusals.first or f"no answer within {_SUBMIT_S:g} s").strip().splitlines()
        raise UsageError(f"--{system} {jobs}: the batch system rejected the job ({why[-1].strip()}); check --cluster")


def _taken(cluster: Any) -> int:
    return sum(getattr(w, "job_id", None) is not None for w in list(cluster.workers.values()))


class _Refusals(logging.Filter):
    """Keeps what the event loop would log of a submission that failed."""

    first: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the error's text; nothing is logged."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and self.first is None:
            self.first = str(error) or type(error).__name__
        return error is None


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise UsageError("Dask is not installed; pip install 'alltrace[dask]'") from error
    return distributed


def _quiet() -> None:
    """Dask describes every connection that ends; what matters comes back as an error."""
    for name in ("distributed", "distributed.client", "distributed.comm", "distributed.core", "distributed.deploy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
