"""The cluster engine: the same tasks on the workers of a Dask cluster: a running one, or one of Slurm or PBS.

Workers read and write the same paths as this process, so the run directory must be on a file system that all see; a
task that reads what only one host has runs on the workers of that host. What goes between this process, scheduler and
workers is pickled: the address must be of a scheduler that one trusts.
"""

import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from alltrace.engine.outcome import Outcome
from alltrace.engine.seen import Mark, host_names, mark_of
from alltrace.trace.errors import AlltraceError, UsageError, printable

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_WAIT_S = 1.0
_RETRIES = 2  # of a task with a worker that fails for an unknown reason
_AHEAD = 4  # tasks per worker that are submitted at once
_TASK_S = 0.5  # a task costs some 15 ms of the cluster's CPU time, so short items share one
_LISTED = 4

LOST_S = 30.0
"""How long to wait for a worker, or for a scheduler that went away."""


# `wait_s`: how long to wait for a worker before giving up; None to wait without limit, as a queue may be slow.
# `connect`: reconnects to a lost scheduler within this many seconds; None if it cannot come back.
class ClusterEngine:
    """Runs tasks on the workers of a Dask scheduler."""

    def __init__(
        self, client: Any, place: str, wait_s: float | None = LOST_S, connect: Callable[[float], Any] | None = None
    ) -> None:
        self.client: Any = client  # as above
        self.place: str = place  # as above
        self._wait_s = wait_s
        self._connect = connect
        self._names: dict[str, frozenset[str]] = {}
        self._shared: tuple[Mark, ...] = ()

    def run_tasks(
        self,
        function: Callable[[_Item, Callable[[int], None]], _Result],
        items: Sequence[_Item],
        progress: Callable[[int], None] | None = None,
        *,
        hosts: Sequence[str | None] | None = None,
        needs: Sequence[Path] = (),
    ) -> Iterator[Outcome[_Result]]:
        """`function(item, advance)` for each item; see `alltrace.engine.tasks.run_tasks`."""
        # A task with a killed worker goes to another one; a task that has killed several workers is an error. After a
        # scheduler has been started again, only the tasks that had not ended run again.
        from distributed.protocol import pickle

        from alltrace.engine.cluster_worker import Call

        self._check_hosts({h for h in hosts or () if h is not None})
        marks = (*self._shared, *(mark_of(path) for path in needs))
        call = Call(f"alltrace-{uuid.uuid4().hex}", pickle.dumps(function), marks)  # type: ignore[no-untyped-call]
        yield from _Running(self, call, items, hosts, progress).outcomes()

    @contextmanager
    def sharing(self, paths: Sequence[Path]) -> Iterator[None]:
        """A block whose tasks need files that this process sees; see `alltrace.engine.tasks.sharing`."""
        marks = tuple(mark_of(path) for path in paths)
        self._check_seen(marks)
        before, self._shared = self._shared, (*self._shared, *marks)
        try:
            yield
        finally:
            self._shared = before

    def _check_seen(self, marks: tuple[Mark, ...]) -> None:
        """See that all workers that are there see some files as this process does."""
        from alltrace.engine.cluster_worker import unseen_here

        self._await_worker()
        unseen: dict[str, list[str]] = self.client.run(unseen_here, marks, on_error="ignore")
        where: dict[str, set[str]] = {}
        for address, missing in unseen.items():
            for path in missing:
                where.setdefault(path, set()).add(self.name_of(address))
        if where:
            raise self.unseen(where)

    def unseen(self, where: Mapping[str, Collection[str]]) -> UsageError:
        paths = "; ".join(f"{printable(path)} (from {_listed(hosts)})" for path, hosts in sorted(where.items()))
        return UsageError(
            f"{self.place}: not every worker sees the same files here: {paths}; put the run on a file system that all"
            " nodes share, and name reports that only one node has as HOST:/PATH"
        )

    def workers(self, host: str | None = None) -> list[str]:
        workers: Mapping[str, Any] = self.client.scheduler_info(n_workers=-1).get("workers", {})
        if host is None:
            return list(workers)
        new = [address for address in workers if address not in self._names]
        if new:
            names_of: dict[str, list[str]] = self.client.run(host_names, workers=new, on_error="ignore")
            for address, names in names_of.items():
                own_names = (*names, workers[address].get("host"), workers[address].get("name"))
                self._names[address] = frozenset(str(name) for name in own_names if name)
        return [address for address in workers if host in self._names.get(address, ())]

    def name_of(self, address: str) -> str:
        names_of: dict[str, list[str]] = self.client.run(host_names, workers=[address], on_error="ignore")
        return next((names[0] for names in names_of.values() if names), address)

    def lacking(self, lacking_s: float, hosts: Collection[str]) -> float:
        """How long the cluster has been without a worker, or without one on a host that tasks need."""
        there = self.workers()
        without = sorted(host for host in hosts if not self.workers(host)) if there else []
        if there and not without:
            return 0.0
        lacking_s += _WAIT_S
        if self._wait_s is not None and lacking_s >= self._wait_s:
            on = f" on {_listed(without)}" if without else ""
            raise AlltraceError(
                f"{self.place}: no worker is left{on}, or none came within {self._wait_s:g} s; "
                "start workers (`dask worker ADDRESS`) and run it again"
            )
        return lacking_s

    def reconnect(self) -> bool:
        """Connect to a scheduler that went away and came back; whether it did."""
        if self._connect is None:
            return False
        with suppress(Exception):
            self.client.close(timeout=_WAIT_S)
        client = self._connect(self._wait_s or LOST_S)
        if client is None:
            return False
        self.client, self._names = client, {}
        return True

    def gone(self) -> AlltraceError:
        return AlltraceError(
            f"{self.place} disconnected; finished work is kept, so run it again when the scheduler is back"
        )

    def _await_worker(self) -> None:
        lacking_s = 0.0
        while not self.workers():
            with suppress(TimeoutError):
                self.client.wait_for_workers(1, timeout=_WAIT_S)
            lacking_s = self.lacking(lacking_s, ())

    def _check_hosts(self, hosts: Collection[str]) -> None:
        if not hosts or self._wait_s is None:  # if a queue starts workers, they come later
            return
        self._await_worker()
        without = sorted(host for host in hosts if not self.workers(host))
        if without:
            there = {self.name_of(address) for address in self.workers()}
            raise UsageError(
                f"{self.place}: reports are on {_listed(without)}, where there is no worker (workers are on"
                f" {_listed(there)}); start one there (`dask worker ADDRESS`)"
            )


class _Handed(NamedTuple):
    places: tuple[int, ...]  # the positions of its items, which are of one host
    workers: frozenset[str] | None  # the only workers that may run it; None for any
    apart: bool  # whether it has one item, and workers have no more tasks than they can run


class _Ended(NamedTuple):
    future: Any  # what Dask calls it
    # the outcomes of its items and how many seconds they took, or what was raised instead
    result: tuple[list[Outcome[Any]], float] | BaseException
    failed: bool  # whether the task raised that, and not the way to the cluster


class _Running:
    """One call of the engine: which items wait, and which tasks workers have."""

    def __init__(
        self,
        engine: ClusterEngine,
        call: Any,
        items: Sequence[Any],
        hosts: Sequence[str | None] | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._engine = engine
        self._call = call
        self._items = list(items)
        self._hosts: list[str | None] = [None] * len(self._items) if hosts is None else list(hosts)
        self._progress = progress
        self._left: dict[str | None, deque[int]] = {host: deque() for host in self._hosts}
        for index, host in enumerate(self._hosts):
            self._left[host].append(index)
        self._handed: dict[Any, _Handed] = {}
        self._ready: SimpleQueue[_Ended] = SimpleQueue()
        self._done, self._took_s = 0, 0.0
        self._apart = False

    def outcomes(self) -> Iterator[Outcome[Any]]:
        self._listen()
        try:
            while any(self._left.values()) or self._handed:
                yield from self._next()
        finally:
            with suppress(Exception):  # the scheduler may be what went away
                if self._handed:
                    self._engine.client.cancel(list(self._handed), force=True)
                if self._progress is not None:
                    self._engine.client.unsubscribe_topic(self._call.topic)

    def _next(self) -> Iterator[Outcome[Any]]:
        """The outcomes up to the next time that the scheduler is gone."""
        from distributed import CancelledError

        lacking_s = 0.0
        failed = False
        try:
            while True:
                self._hand_out()
                if not self._handed:
                    return
                try:
                    ended = self._ready.get(timeout=_WAIT_S)
                except Empty:
                    lacking_s = self._look(lacking_s)
                    continue
                lacking_s = 0.0
                # of before the scheduler was started again, or given to another worker
                if ended.future not in self._handed:
                    continue
                failed = ended.failed
                outcomes = self._outcomes(ended)
                failed = False
                del self._handed[ended.future]
                yield from outcomes
        except (OSError, CancelledError) as error:
            if failed:  # the task itself, such as by a full disk
                raise
            self._again(error)

    def _fetch(self, future: Any) -> None:
        """Fetch the result of a task that has ended, and let the cluster forget it: else it may run again."""
        try:
            result = future.result()
        except BaseException as error:  # noqa: BLE001  it is raised where results are asked for
            result = error
        failed = future.status == "error"
        future.release()
        self._ready.put(_Ended(future, result, failed))

    def _outcomes(self, ended: _Ended) -> list[Outcome[Any]]:
        from distributed import KilledWorker

        from alltrace.engine.cluster_worker import UnseenError

        result = ended.result
        if not isinstance(result, BaseException):
            outcomes, took_s = result
            self._done += len(outcomes)
            self._took_s += took_s
            return outcomes
        if isinstance(result, KilledWorker):
            handed = self._handed[ended.future]
            if not handed.apart and (self._apart or len(handed.places) > 1 or len(self._handed) > 1):
                self._apart = True  # Dask blames all that the worker had
                self._wait_again(handed)
                return []
            index = handed.places[0]
            return [Outcome(index, None, AlltraceError(
                f"{self._engine.place}: task {index} killed several workers, most often because memory ran out; "
                "give workers more memory, or start fewer on a node"
            ))]  # fmt: skip
        if isinstance(result, UnseenError):
            raise self._engine.unseen({path: [result.host] for path in result.paths}) from result
        raise result

    def _wait_again(self, handed: _Handed) -> None:
        self._left[self._hosts[handed.places[0]]].extend(handed.places)

    def _items_of_task(self, left: int, workers: int) -> int:
        """How many items the next task has: not too few, but some are left for each worker."""
        if self._apart or not self._done:
            return 1
        enough = _TASK_S * self._done / max(self._took_s, 1e-6)
        return max(1, min(int(enough), left // (_AHEAD * max(workers, 1))))

    def _hand_out(self) -> None:
        """Submit only enough tasks to keep workers busy: the scheduler stores tasks until they are fetched."""
        from alltrace.engine.cluster_worker import on_worker

        busy = Counter(self._hosts[handed.places[0]] for handed in self._handed.values())
        for host, left in self._left.items():
            if not left:
                continue
            workers = self._engine.workers(host)
            if host is not None and not workers:
                continue
            most = max(1, len(workers)) if self._apart else max(2, _AHEAD * len(workers))
            for _ in range(most - busy[host]):
                if not left:
                    break
                places = tuple(left.popleft() for _ in range(self._items_of_task(len(left), len(workers))))
                bound = {} if host is None else {"workers": workers, "allow_other_workers": False}
                items = [(index, self._items[index]) for index in places]
                future = self._engine.client.submit(on_worker, self._call, items, pure=False, retries=_RETRIES, **bound)
                self._handed[future] = _Handed(places, None if host is None else frozenset(workers), self._apart)
                future.add_done_callback(self._fetch)

    def _look(self, lacking_s: float) -> float:
        """Check tasks that have not ended for a while; returns how long there has been no worker for them."""
        if self._engine.client.status != "running":
            raise ConnectionError
        there = set(self._engine.workers())
        for future, handed in list(self._handed.items()):
            # their workers are gone; others may come to that host
            if handed.workers is not None and not handed.workers & there:
                del self._handed[future]
                self._wait_again(handed)
                self._engine.client.cancel([future], force=True)
        wanted = {host for host, left in self._left.items() if left and host is not None}
        return self._engine.lacking(lacking_s, wanted)

    def _again(self, error: BaseException) -> None:
        """Continue with a scheduler that came back: submit unfinished tasks once more."""
        if not self._engine.reconnect():
            raise self._engine.gone() from error
        fetched = []
        with suppress(Empty):
            while True:
                ended = self._ready.get_nowait()
                if not isinstance(ended.result, BaseException) and ended.future in self._handed:
                    fetched.append(ended)
        fetched_tasks = {ended.future: self._handed.pop(ended.future) for ended in fetched}
        for handed in self._handed.values():
            self._wait_again(handed)
        self._handed = fetched_tasks
        for ended in fetched:
            self._ready.put(ended)
        self._listen()

    def _listen(self) -> None:
        progress = self._progress
        if progress is None:
            return
        lock = threading.Lock()

        def hear(event: tuple[float, Any]) -> None:
            with lock:
                progress(int(event[1]))

        self._engine.client.subscribe_topic(self._call.topic, hear)


def _listed(names: Collection[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _LISTED} more" if len(ordered) > _LISTED else ""
    return ", ".join(map(printable, ordered[:_LISTED])) + more
