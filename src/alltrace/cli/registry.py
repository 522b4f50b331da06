"""The verbs: a literal list, so that `alltrace --help` imports none of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    import argparse


class Command(Protocol):
    """A verb, mostly a module: declares its arguments and runs; imports what is heavy only when it runs."""

    EXAMPLE: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code."""
        ...


class Verb(NamedTuple):
    """A verb: its name, the module in `alltrace.cli` that does it, and one line of help."""

    name: str
    module: str
    help: str

    def command(self) -> Command:
        """What does it: the module, or the recipe that the verb is a short name of."""
        module = import_module(f"alltrace.cli.{self.module}")
        return cast("Command", module.RecipeCommand(self.name, RECIPES[self.name]) if self.name in RECIPES else module)


VERBS: tuple[Verb, ...] = (
    Verb("import", "verbs.import_", "make a run directory from reports"),
    Verb("verify", "verbs.verify", "read all files of a run and name those that are damaged"),
    Verb("info", "recipe_verb", "who ran where: ranks, hosts, devices, what was captured, what is missing"),
    Verb("diagnose", "recipe_verb", "what costs the run time, who is to blame, what to do: ranked findings"),
    Verb("breakdown", "recipe_verb", "compute, exposed communication, exposed copies and idle time per device"),
    Verb("overlap", "recipe_verb", "how much of the communication and of the copies runs under compute"),
    Verb("kernels", "recipe_verb", "GPU kernels: count, total, exact median and quartiles, over all ranks or each"),
    Verb("gaps", "recipe_verb", "the longest times a device did nothing, with the work before and after"),
    Verb(
        "collectives",
        "recipe_verb",
        "per communicator, operation and size: arrival skew, transfer, bandwidth free of waiting",
    ),
    Verb("stragglers", "recipe_verb", "which rank the others wait for, how much, and why it is late"),
    Verb("critical-path", "recipe_verb", "the chain of work over all ranks that decided how long the run took"),
    Verb("whatif", "recipe_verb", "how long the run would take if a rank, operation or kernel were as its peers"),
    Verb("steps", "recipe_verb", "the training steps of every rank: when, how long, which are warm-up or checkpoint"),
    Verb("efficiency", "recipe_verb", "the POP efficiencies of devices and hosts, per run, step or range"),
    Verb("diff", "verbs.diff", "compare two runs: what became slower, faster, more or less, and is it chance"),
    Verb("check", "verbs.check", "judge a run by a budget of limits: a gate for CI"),
    Verb("history", "verbs.history", "runs of a job over time: step time, findings that come back, hosts that are slow in many"),
    Verb("recipe", "verbs.recipe", "ask any recipe by name; --list names them"),
    Verb("stats", "verbs.stats", "the report of `nsys stats` of that name, column for column, over all ranks"),
    Verb("nsys", "verbs.nsys", "command lines of `nsys stats`, `analyze`, `recipe` and `export`, answered by alltrace"),
    Verb("logs", "verbs.logs", "questions to NCCL logs, nccl-tests tables, training logs and flight recorders"),
    Verb("report", "verbs.report", "one file to read and to send: findings, charts and tables of the main questions"),
    Verb("notebook", "verbs.notebook", "a Jupyter notebook that opens the run and draws what its recipes answer"),
    Verb("sql", "verbs.sql", "answer an SQL query over the canonical tables"),
    Verb("explain", "verbs.explain", "what a kind of finding, a recipe, a table or a column means"),
    Verb("completion", "verbs.completion", "a script by which bash, zsh or fish completes command lines"),
    Verb("mcp", "verbs.mcp", "a server of the Model Context Protocol, for programs that ask questions about runs"),
    Verb("ui", "verbs.ui", "look at a run, or two side by side, in a browser: heat map, timeline, tables, SQL"),
    Verb("capture", "verbs.capture", "profile every rank under any launcher, and look after the reports"),
    Verb("ncu", "verbs.ncu", "reports of Nsight Compute: one row per kernel launch"),
    Verb("export", "verbs.export", "write a run for another tool: Paraver, Perfetto, Chrome, TALP, Parquet, CSV, Arrow"),
    Verb("synth", "verbs.synth", "write a simulated run with its truth"),
    Verb("demo", "verbs.demo", "simulate, import, ask and report, in one go"),
)

RECIPES = {
    "info": "alltrace info ./reports/",
    "diagnose": "alltrace diagnose ./reports/ --skip-warmup",
    "breakdown": "alltrace breakdown ./reports/ --format csv",
    "overlap": "alltrace overlap ./reports/ --ranks 0-7",
    "kernels": "alltrace kernels ./reports/ --by-rank --limit 20",
    "gaps": "alltrace gaps ./reports/ --min-ns 1000000",
    "collectives": "alltrace collectives ./reports/ --link-gb-per-s 450",
    "stragglers": "alltrace stragglers ./reports/",
    "critical-path": "alltrace critical-path ./reports/ --segments",
    "whatif": "alltrace whatif ./reports/ --rank 3",
    "steps": "alltrace steps ./reports/ --per-step --steps 10:50",
    "efficiency": "alltrace efficiency ./reports/ --per step --convention talp",
}
"""The verbs that are short names of recipes, each with a command line that shows it."""

CAPTURE_VERBS: tuple[Verb, ...] = (
    Verb(
        "exec",
        "capturing.exec_",
        "run a program as one rank, profiled where it is chosen; comes after any launcher",
    ),
    Verb("arm", "capturing.arm", "run a program as one rank that records when `capture now` asks for it, or by a rule"),
    Verb("now", "capturing.now", "have an armed job record its next steps, the same on all ranks"),
    Verb("plan", "capturing.plan", "which ranks to record, what it costs, how large reports get, and what to type"),
    Verb("recover", "capturing.recover", "make reports of raw captures that were left, and name those that are cut"),
    Verb("scrub", "capturing.scrub", "remove environment, command lines and output from an export before it is shared"),
    Verb("script", "capturing.script", "write a job script or manifest that profiles every rank"),
    Verb("upload", "capturing.upload", "copy the reports of a job to s3://, gs:// and the like"),
    Verb("doctor", "capturing.doctor", "can this machine profile? each finding with its fix"),
)
"""The verbs of `alltrace capture`."""
