"""Where the work runs: this machine's processes, or a cluster that the arguments name."""

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from alltrace.trace.errors import UsageError
from alltrace.trace.options import Option, count

LASTING = ExitStack()
"""What was entered for the whole command; `main` closes it."""


# fmt: off
_ENGINES = (
    Option("dask", str, None,
        "run on the workers of this Dask scheduler, tcp://host:8786; needs `alltrace[dask]`", metavar="ADDRESS"),
    count("slurm", None, "run on N workers that Slurm starts; needs `alltrace[dask]`"),
    count("pbs", None, "run on N workers that PBS starts; needs `alltrace[dask]`"),
)
_CLUSTER = Option("cluster", list, None,
    "with --slurm or --pbs: a setting of dask-jobqueue, such as queue=debug, account=me, walltime=00:30:00, "
    "memory=8GiB", metavar="KEY=VALUE")
# fmt: on


def add_engine_options(group: argparse._ActionsContainer, hidden: Mapping[str, str]) -> None:
    """Which cluster does the work; `hidden` replaces what argparse is told."""
    for option in (*_ENGINES, _CLUSTER):
        option.add_to(group, **hidden)


def start_engine(args: argparse.Namespace) -> None:
    """Use the engine that `args` name until the command ends."""
    named = [option.flag for option in _ENGINES if getattr(args, option.name, None) is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} name different clusters; give one of them")
    system = next((s for s in ("slurm", "pbs") if getattr(args, s, None) is not None), None)
    address = getattr(args, "dask", None)
    settings = getattr(args, "cluster", None)
    if settings and system is None:
        raise UsageError(f"--cluster {settings[0]} works only with --slurm N or --pbs N")
    if system is None and address is None:
        return
    if getattr(args, "jobs", None) is not None:
        raise UsageError("--jobs sets the number of local processes; give either --jobs or a cluster")
    from alltrace.engine.tasks import remote, using

    if remote():  # a command that opens two runs has started it already
        return
    if system is None:
        from alltrace.engine.cluster_start import dask_engine

        LASTING.enter_context(using(LASTING.enter_context(dask_engine(str(address)))))
        return
    from alltrace.engine.cluster_start import queue_engine
    from alltrace.trace.cache_dir import default_folder, own_folder

    logs = own_folder(getattr(args, "cache_dir", None) or default_folder()) / "jobs"
    logs.mkdir(exist_ok=True)
    jobs, hosts = getattr(args, system), _hosts(args)
    LASTING.enter_context(using(LASTING.enter_context(queue_engine(system, jobs, _settings(settings), logs, hosts))))


def _hosts(args: argparse.Namespace) -> list[str]:
    from alltrace.run.host_paths import host_path

    paths = getattr(args, "reports", None) or getattr(args, "run", None) or []
    texts = [paths] if isinstance(paths, str) else paths
    return list(dict.fromkeys(host for text in texts if (host := host_path(str(text)).host) is not None))


def _settings(texts: list[str] | None) -> dict[str, Any]:
    """KEY=VALUE texts as settings; whole numbers are numbers."""
    settings: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"--cluster is {text!r}; expected KEY=VALUE, such as queue=debug")
        settings[key] = int(value) if value.isascii() and value.isdigit() else value
    return settings
