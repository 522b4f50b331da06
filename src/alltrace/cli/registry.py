"""The verbs: a literal list, so that `alltrace --help` imports none of them."""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A verb: its name, the module that has it as `COMMAND`, and one line of help."""

    name: str
    module: str
    help: str


VERBS: tuple[Verb, ...] = (
    Verb("import", "alltrace.cli.verbs.import_", "make a run directory from reports"),
    Verb("info", "alltrace.cli.verbs.info", "who ran where: ranks, hosts, devices, what was captured, what is missing"),
    Verb("diagnose", "alltrace.cli.verbs.diagnose", "what costs the run time, who is to blame, what to do: ranked findings"),
    Verb("breakdown", "alltrace.cli.verbs.breakdown", "compute, exposed communication, exposed copies and idle time per device"),
    Verb("overlap", "alltrace.cli.verbs.overlap", "how much of the communication and of the copies runs under compute"),
    Verb("kernels", "alltrace.cli.verbs.kernels", "GPU kernels: count, total, exact median and quartiles, over all ranks or each"),
    Verb("gaps", "alltrace.cli.verbs.gaps", "the longest times a device did nothing, with the work before and after"),
    Verb(
        "collectives",
        "alltrace.cli.verbs.collectives",
        "per communicator, operation and size: arrival skew, transfer, bandwidth free of waiting",
    ),
    Verb("stragglers", "alltrace.cli.verbs.stragglers", "which rank the others wait for, how much, and why it is late"),
    Verb(
        "critical-path", "alltrace.cli.verbs.critical_path", "the chain of work over all ranks that decided how long the run took"
    ),
    Verb("whatif", "alltrace.cli.verbs.whatif", "how long the run would take if a rank, operation or kernel were as its peers"),
    Verb("steps", "alltrace.cli.verbs.steps", "the training steps of every rank: when, how long, which are warm-up or checkpoint"),
    Verb("efficiency", "alltrace.cli.verbs.efficiency", "the POP efficiencies of devices and hosts, per run, step or range"),
    Verb("diff", "alltrace.cli.verbs.diff", "compare two runs: what became slower, faster, more or less, and is it chance"),
    Verb("check", "alltrace.cli.verbs.check", "judge a run by a budget of limits: a gate for CI"),
    Verb("recipe", "alltrace.cli.verbs.recipe", "ask any recipe by name; --list names them"),
    Verb("stats", "alltrace.cli.verbs.stats", "the report of `nsys stats` of that name, column for column, over all ranks"),
    Verb("logs", "alltrace.cli.verbs.logs", "questions to NCCL logs, nccl-tests tables, training logs and flight recorders"),
    Verb("report", "alltrace.cli.verbs.report", "one file to read and to send: findings, charts and tables of the main questions"),
    Verb("notebook", "alltrace.cli.verbs.notebook", "a Jupyter notebook that opens the run and draws what its recipes answer"),
    Verb("sql", "alltrace.cli.verbs.sql", "answer an SQL query over the canonical tables"),
    Verb("ui", "alltrace.cli.verbs.ui", "look at a run, or two side by side, in a browser: heat map, timeline, tables, SQL"),
    Verb("capture", "alltrace.cli.verbs.capture", "profile every rank under any launcher, and look after the reports"),
    Verb("ncu", "alltrace.cli.verbs.ncu", "reports of Nsight Compute: one row per kernel launch"),
    Verb(
        "export", "alltrace.cli.verbs.export", "write a run for another tool: Paraver, Perfetto, Chrome, TALP, Parquet, CSV, Arrow"
    ),
    Verb("synth", "alltrace.cli.verbs.synth", "write a simulated run with its truth"),
    Verb("demo", "alltrace.cli.verbs.demo", "simulate, import, ask and report, in one go"),
)

CAPTURE_VERBS: tuple[Verb, ...] = (
    Verb(
        "exec",
        "alltrace.cli.capturing.exec_",
        "run a program as one rank, profiled where it is chosen; comes after any launcher",
    ),
    Verb("recover", "alltrace.cli.capturing.recover", "make reports of raw captures that were left, and name those that are cut"),
    Verb(
        "scrub", "alltrace.cli.capturing.scrub", "remove environment, command lines and output from an export before it is shared"
    ),
    Verb("script", "alltrace.cli.capturing.script", "write a job script or manifest that profiles every rank"),
    Verb("upload", "alltrace.cli.capturing.upload", "copy the reports of a job to s3://, gs:// and the like"),
    Verb("doctor", "alltrace.cli.capturing.doctor", "can this machine profile? each finding with its fix"),
)
"""The verbs of `alltrace capture`."""
