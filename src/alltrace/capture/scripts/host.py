"""Scripts that run on the nodes themselves: the frame that Slurm, PBS, mpirun and torchrun have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alltrace.capture.scripts import parts
from alltrace.capture.scripts.shell import Expression, array, comment, continued, word
from alltrace.capture.scripts.workloads import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from alltrace.capture.scripts.settings import Job

NAME = Expression('"$job"')


def script(
    job: Job, about: Sequence[str], directives: Sequence[str], start: Sequence[str], launch: Callable[[str], list[str]]
) -> str:
    """A script of bash.

    Args:
        job: The settings.
        about: Its header: what it is, and how to start it.
        directives: The lines for a batch system.
        start: The lines that come first; they set `job`, the job's name.
        launch: Returns the pieces of the command that starts a rank's wrapper and program, from the words before the program.
    """
    lines = ["#!/bin/bash", *(c for line in about for c in comment(line)), *directives, "set -euo pipefail", "", *start]
    lines += ["# One folder for this job, made once and not by every rank", f"output={word(job.text('job.output'))}"]
    lines += ["case $output in /*) ;; *) output=$PWD/$output ;; esac", "reports=$output/$job", 'mkdir -p "$reports"', ""]
    if job.text("job.setup"):
        lines += [*job.text("job.setup").rstrip("\n").split("\n"), ""]
    lines += [*parts.environment_lines(job), *parts.wrapper_file(job), "code=0"]
    for program in programs(job):
        name = Expression(f'"$job-{program.label}"') if program.label else NAME
        found = {**parts.wrapper_variables(job, name)}
        lines += [*([f"# {program.label}"] if program.label else []), *parts.exports(found)]
        lines += [*array("capture", parts.wrapper(job, name)), *array("program", program.words)]
        command = launch('"${capture[@]}" "${program[@]}"')
        lines += [*command[:-1], f"{command[-1]} || code=$?"]
    lines += ["", *parts.upload_lines(job, "$job")]
    lines += ['# What the ranks recorded: alltrace info "$reports"', 'exit "$code"']
    return "\n".join(lines) + "\n"


def torchrun(job: Job, meeting: Sequence[str], ranks: str, before: Sequence[str] = ()) -> list[str]:
    """`torchrun` around each rank's wrapper: one report a rank, where nsys around torchrun would give one a node.

    Args:
        job: The settings.
        meeting: How the nodes find each other, as words of a shell.
        ranks: The wrapper and the program.
        before: What starts it on every node.
    """
    processes = f"--nproc-per-node={job.number('job.ranks_per_node')}"
    return continued([*before, "torchrun", *meeting, processes, "--no-python", ranks])


def rendezvous(job: Job, nodes: object, name: str, host: str) -> list[str]:
    """How the nodes of torchrun find each other if each runs the same command; of shell, `name` in quotes, `host` without."""
    endpoint = f'--rdzv-endpoint="{host}:{job.number("job.port")}"'
    return [f"--nnodes={nodes}", f"--rdzv-id={name}", "--rdzv-backend=c10d", endpoint]
