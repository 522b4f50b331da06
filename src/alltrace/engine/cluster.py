"""The cluster engine: the same tasks on the workers of a Dask cluster, whether one that runs or one that Slurm or PBS starts.

Workers read and write the same paths as this process, so reports and the run directory must lie on a file system that all see.
What goes between this process, scheduler and workers is pickled: the address must be of a scheduler that one trusts.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from alltrace.trace.errors import AlltraceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from alltrace.engine.outcome import Outcome

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_CONNECT_S = 10.0
_WAIT_S = 1.0
_RETRIES = 2  # of a task whose worker fails in a way that is not ours to name
_AHEAD = 4  # tasks per worker that are handed out at once
_SUBMIT_S = 60.0
_LOOPS = ("tornado.application", "asyncio")
_LOST_S = 30.0  # without a worker, once there were some

SYSTEMS = {"slurm": "sbatch", "pbs": "qsub"}
"""What each batch system takes jobs with."""


class ClusterEngine:
    """Runs tasks on the workers of a Dask scheduler.

    Args:
        client: The `distributed.Client`.
        place: What the cluster is called in messages.
        wait_s: How long to wait for a worker before giving up; None for ever, as a queue may take its time.
    """

    def __init__(self, client: Any, place: str, wait_s: float | None = _LOST_S) -> None:
        self._client = client
        self._place = place
        self._wait_s = wait_s

    def run_tasks(
        self,
        function: Callable[[_Item, Callable[[int], None]], _Result],
        items: Sequence[_Item],
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[Outcome[_Result]]:
        """`function(item, advance)` for each item; see `alltrace.engine.local.run_tasks`.

        A task whose worker is killed is given to another one.

        Raises:
            AlltraceError: The scheduler or all workers went away, or a task was the end of several workers.
        """
        topic = f"alltrace-{uuid.uuid4().hex}"
        if progress is not None:
            lock = threading.Lock()

            def hear(event: tuple[float, Any]) -> None:
                with lock:
                    progress(int(event[1]))

            self._client.subscribe_topic(topic, hear)
        from distributed.protocol import pickle

        try:
            yield from self._outcomes(topic, pickle.dumps(function), list(items))  # type: ignore[no-untyped-call]
        finally:
            if progress is not None:
                with suppress(Exception):  # the scheduler may be what went away
                    self._client.unsubscribe_topic(topic)

    def _outcomes(self, topic: str, function: bytes, items: list[Any]) -> Iterator[Outcome[Any]]:
        from distributed import CancelledError, KilledWorker

        waiting: dict[Any, int] = {}
        ready: SimpleQueue[Any] = SimpleQueue()
        left = iter(enumerate(items))
        lacking_s = 0.0
        failed: OSError | None = None
        try:
            while True:
                self._hand_out(topic, function, left, waiting, ready)
                if not waiting:
                    return
                try:
                    future = ready.get(timeout=_WAIT_S)
                except Empty:
                    lacking_s = self._lacking(lacking_s)
                    continue
                lacking_s = 0.0
                index = waiting.pop(future)
                try:
                    outcome = future.result()
                except KilledWorker as error:
                    raise AlltraceError(
                        f"{self._place}: task {index} killed several workers, most likely because memory ran out; give "
                        "workers more memory, or start fewer per node"
                    ) from error
                except OSError as error:
                    if future.status == "error":  # the task's own, such as that a disk is full
                        failed = error
                    raise
                future.release()
                yield outcome
        except (OSError, CancelledError) as error:
            if error is failed:
                raise
            raise self._gone() from error
        finally:
            if waiting:
                with suppress(Exception):  # the scheduler may be what went away
                    self._client.cancel(list(waiting), force=True)

    def _hand_out(
        self,
        topic: str,
        function: bytes,
        left: Iterator[tuple[int, Any]],
        waiting: dict[Any, int],
        ready: SimpleQueue[Any],
    ) -> None:
        """Keep the workers busy, and no more: what is handed out is held by the scheduler until it is fetched."""
        from alltrace.engine.cluster_worker import on_worker

        for index, item in islice(left, max(0, max(2, _AHEAD * len(self._workers())) - len(waiting))):
            future = self._client.submit(on_worker, topic, function, index, item, pure=False, retries=_RETRIES)
            waiting[future] = index
            future.add_done_callback(ready.put)

    def _workers(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._client.scheduler_info(n_workers=-1).get("workers", {})
        return found

    def _lacking(self, lacking_s: float) -> float:
        """How long the cluster has been without a worker."""
        if self._client.status != "running":
            raise self._gone()
        if self._workers():
            return 0.0
        lacking_s += _WAIT_S
        if self._wait_s is not None and lacking_s >= self._wait_s:
            raise AlltraceError(
                f"{self._place}: no worker is left, or none connected within {self._wait_s:g} s; start "
                f"workers (`dask worker ADDRESS`) "
                "and run it again"
            )
        return lacking_s

    def _gone(self) -> AlltraceError:
        return AlltraceError(f"{self._place} disconnected; finished work is kept, so run it again when the scheduler is back")


@contextmanager
def dask_engine(address: str) -> Iterator[ClusterEngine]:
    """The engine of the Dask scheduler at `address`, such as `tcp://host:8786`.

    Raises:
        UsageError: Dask is not installed, the address is none, or no scheduler answers there.
    """
    distributed = _distributed()
    _quiet()
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"--dask {address}: no scheduler answered within {_CONNECT_S:g} s; expected the address that `dask scheduler` "
            "prints, such as tcp://host:8786"
        ) from error
    try:
        yield ClusterEngine(client, f"the Dask cluster at {address}")
    finally:
        with suppress(Exception):
            client.close(timeout=_CONNECT_S)


@contextmanager
def queue_engine(system: str, jobs: int, settings: Mapping[str, Any], logs: Path) -> Iterator[ClusterEngine]:
    """The engine of workers that a batch system starts; they end with the block.

    Args:
        system: One of `SYSTEMS`.
        jobs: How many jobs to submit, a worker each.
        settings: Of `dask_jobqueue.SLURMCluster` or `PBSCluster`, such as queue, account, walltime, cores, memory.
        logs: Where the jobs' output goes; must be seen by all nodes.

    Raises:
        UsageError: Dask is not installed, the settings are not understood, or jobs cannot be submitted.
    """
    distributed = _distributed()
    command = SYSTEMS[system]
    if shutil.which(command) is None:
        raise UsageError(
            f"--{system} submits jobs with {command}, which is not on PATH; run alltrace where the batch system is installed"
        )
    try:
        import dask_jobqueue
    except ImportError as error:
        raise UsageError(f"--{system} needs dask-jobqueue, which is not installed; pip install 'alltrace[dask]'") from error
    _quiet()
    kind: Any = getattr(dask_jobqueue, {"slurm": "SLURMCluster", "pbs": "PBSCluster"}[system])
    known = {
        "cores": 1,
        "processes": 1,
        "memory": "4GiB",
        "walltime": "01:00:00",
        "python": sys.executable,
        "log_directory": str(logs),
        "scheduler_options": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    }
    try:
        cluster = kind(**{**known, **settings})
    except (TypeError, ValueError) as error:
        raise UsageError(f"--{system}: {error}; --cluster accepts the settings of dask_jobqueue.{kind.__name__}") from error
    try:
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
    """How many jobs have a number of the batch system."""
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
    """Dask tells of every connection that ends; what matters comes back as an error."""
    for name in ("distributed", "distributed.client", "distributed.comm", "distributed.core", "distributed.deploy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
