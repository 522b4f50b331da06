"""Who is this process? Rank, local rank, world size, node and job, from the launcher's variables: a pure function."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from alltrace.capture.launchers import JOB_VARIABLES, LAUNCHERS, RESTART_VARIABLES, Launcher, slurm_local_size

_NUMBER = re.compile(r"[0-9]{1,9}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 64


class Identity(NamedTuple):
    launcher: str | None  # the launcher with the variables in use; None if there were none
    rank: int  # its number in the world; 0 without a launcher
    local_rank: int | None  # its number on its node; None if it is unknown
    world_size: int | None  # how many there are; None if it is unknown
    local_size: int | None  # how many its node has; None if it is unknown
    node: int | None  # the number of its node; None if it is unknown
    job: str | None  # the job's name, fit for a file's name; None if it is unknown
    host: str  # the node's name, fit for a file's name
    notes: tuple[str, ...] = ()  # what a reader must know: sources that disagree, or no source
    restart: str = ""  # the end of a job's name if the job, or its workers, were started again; part of `job`


def find_identity(environment: Mapping[str, str], host: str) -> Identity:
    """The identity from `environment`, from the first complete source in the order of `LAUNCHERS`."""
    # `host`: the machine's own name; a scheduler's name for the node takes precedence.
    present = [source for launcher in LAUNCHERS if (source := _ask(launcher, environment)) is not None]
    host = safe(environment.get("SLURMD_NODENAME") or host.split(".")[0]) or "host"
    restart = _restart(environment)
    job = _job(environment, restart)
    if not present:
        note = (
            "no launcher variables are set, so this process is rank 0 of 1; start it under srun, mpiexec, torchrun,"
            " jsrun or flux"
        )
        return Identity(None, 0, 0, 1, 1, 0, job, host, (note,), restart)
    won = present[0]
    notes = [
        f"{won.launcher} says {_place(won)} and {other.launcher} says {_place(other)}; {won.launcher} is used"
        for other in present[1:]
        if other.rank != won.rank or (other.world_size is not None and won.world_size not in (None, other.world_size))
    ]
    if won.world_size is not None and won.rank >= won.world_size:
        notes.append(
            f"{won.launcher} says rank {won.rank} in a world of {won.world_size}, which is impossible; the rank is used"
        )
    return won._replace(job=job, host=host, notes=tuple(notes), restart=restart)


def _place(source: Identity) -> str:
    return f"rank {source.rank}" + ("" if source.world_size is None else f" of {source.world_size}")


def _ask(launcher: Launcher, environment: Mapping[str, str]) -> Identity | None:
    if launcher.needs and not any(v in environment for v in launcher.needs):
        return None
    rank = _number(environment, launcher.rank)
    if rank is None:
        return None
    node = _number(environment, launcher.node)
    local_size = _number(environment, launcher.local_size)
    if launcher.name == "Slurm":
        local_size = slurm_local_size(environment, node)
    local_rank = _number(environment, launcher.local_rank)
    world_size = _number(environment, launcher.world_size)
    return Identity(launcher.name, rank, local_rank, world_size or None, local_size or None, node, None, "")


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = environment.get(name, "").strip()
        if _NUMBER.fullmatch(value):
            return int(value)
    return None


def _job(environment: Mapping[str, str], restart: str) -> str | None:
    for name in JOB_VARIABLES:
        value = safe(environment.get(name, ""))
        if value and value != "none":  # what torchrun calls a run without --rdzv-id
            break
    else:
        return None
    step = environment.get("SLURM_STEP_ID", "")
    if name == "SLURM_JOB_ID" and _NUMBER.fullmatch(step) and int(step) and "SLURM_STEP_NUM_TASKS" in environment:
        value += f"-step{step}"  # a batch script may run several steps
    return value + restart


def _restart(environment: Mapping[str, str]) -> str:
    counts = (environment.get(name, "") for name in RESTART_VARIABLES)
    return "".join(f"-restart{int(n)}" for n in counts if _NUMBER.fullmatch(n) and int(n))


def safe(text: str) -> str:
    """`text` with only what every file system and shell takes."""
    return _UNSAFE.sub("-", text).strip("-.")[:_LONGEST]
