"""The verbs: a literal list, so that `alltrace --help` imports none of them."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import NamedTuple, Protocol, cast


class Command(Protocol):
    """A verb, mostly a module: declares its arguments and runs; imports what is heavy only when it runs."""

    EXAMPLE: str

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Verb(NamedTuple):
    """A verb: its name, the module in `alltrace.cli` that does it, and one line of help."""

    name: str
    module: str
    help: str

    def command(self) -> Command:
        """What does it: the module, or the recipe that the verb is a short name of."""
        module = import_module(f"alltrace.cli.{self.module}")
        return cast("Command", module.RecipeCommand(self.name, RECIPES[self.name]) if self.name in RECIPES else module)


SHELVES: dict[str, tuple[Verb, ...]] = {
    "start": (
        Verb("demo", "verbs.demo", "simulate, import, analyze and report in one go"),
        Verb("capture", "verbs.capture", "profile every rank under any launcher, and manage the reports"),
        Verb("import", "verbs.import_", "import reports into a run directory"),
        Verb("info", "recipe_verb", "what ran where: ranks, hosts, devices, what was captured, what is missing"),
        Verb(
            "diagnose", "recipe_verb", "what costs time, which rank or host is responsible, what to do: ranked findings"
        ),
        Verb(
            "hang",
            "verbs.hang",
            "which rank a hanging or dead job waits for, and why: a sentence from dumps, logs and stacks",
        ),
        Verb("watch", "verbs.watch", "a job while it runs: step time, slow and stopped ranks, alerts, metrics"),
        Verb("ui", "verbs.ui", "explore a run, or two side by side, in a browser: heat map, timeline, tables, SQL"),
        Verb("report", "verbs.report", "one file to read and share: findings, charts and tables of the main questions"),
    ),
    "ask about a run": (
        Verb(
            "breakdown",
            "recipe_verb",
            "where the time goes: compute, exposed communication and copies, idle, per device",
        ),
        Verb(
            "steps",
            "recipe_verb",
            "the training steps of every rank: start, duration, and which are warm-up or checkpoint",
        ),
        Verb(
            "overlap",
            "recipe_verb",
            "whether communication is hidden: how much of it, and of the copies, overlaps compute",
        ),
        Verb("stragglers", "recipe_verb", "which rank the others wait for, how much, and why it is late"),
        Verb(
            "collectives",
            "recipe_verb",
            "whether the network is slow: transfer and bandwidth without waits, by communicator",
        ),
        Verb(
            "kernels",
            "recipe_verb",
            "GPU kernels: count, total, exact median and quartiles, over all ranks or per rank",
        ),
        Verb("gaps", "recipe_verb", "the longest idle times of devices, with the work before and after"),
        Verb("critical-path", "recipe_verb", "the chain of work over all ranks that decided how long the run took"),
        Verb(
            "whatif",
            "recipe_verb",
            "how long the run would take if a rank, operation or kernel performed like its peers",
        ),
        Verb("efficiency", "recipe_verb", "the POP efficiencies of devices and hosts, per run, step or range"),
        Verb(
            "recipe",
            "verbs.recipe",
            "any recipe by name, such as memory; `alltrace recipe --list` lists them by subject",
        ),
        Verb("sql", "verbs.sql", "answer an SQL query over the canonical tables"),
        Verb("explain", "verbs.explain", "what a kind of finding, a recipe, a table or a column means"),
    ),
    "compare runs": (
        Verb(
            "diff", "verbs.diff", "whether a change helped: what is slower or faster in run B, and what replaced what"
        ),
        Verb(
            "check", "verbs.check", "a gate for CI: whether a run is as fast as a baseline, or keeps a budget of limits"
        ),
        Verb(
            "history",
            "verbs.history",
            "runs of a job over time: step time, recurring findings, hosts that are often slow",
        ),
    ),
    "more": (
        Verb("stats", "verbs.stats", "the `nsys stats` report of that name, column for column, over all ranks"),
        Verb(
            "nsys",
            "verbs.nsys",
            "command lines of `nsys stats`, `analyze`, `recipe` and `export`, answered by alltrace",
        ),
        Verb("ncu", "verbs.ncu", "reports of Nsight Compute: one row per kernel launch"),
        Verb("logs", "verbs.logs", "analyze NCCL logs, nccl-tests tables, training logs and flight recorder dumps"),
        Verb(
            "export",
            "verbs.export",
            "export a run to another tool: Paraver, Perfetto, Chrome, TALP, Parquet, CSV, Arrow",
        ),
        Verb(
            "notebook", "verbs.notebook", "a Jupyter notebook that opens the run and plots the answers of its recipes"
        ),
        Verb("mcp", "verbs.mcp", "a Model Context Protocol server, for programs that ask questions about runs"),
        Verb(
            "skill", "verbs.skill", "instructions for programs that ask alltrace on your behalf, to print or to install"
        ),
        Verb("verify", "verbs.verify", "read all files of a run and list the damaged ones"),
        Verb("synth", "verbs.synth", "write a simulated run with known faults"),
        Verb("completion", "verbs.completion", "a completion script for bash, zsh or fish"),
    ),
}
"""The verbs as `alltrace --help` groups them."""
VERBS = tuple(verb for shelf in SHELVES.values() for verb in shelf)

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
        "run a program as one rank and profile it if the rank is chosen; works under any launcher",
    ),
    Verb("arm", "capturing.arm", "run a program as one rank that records on request (`capture now`) or by a rule"),
    Verb("now", "capturing.now", "have an armed job record its next steps, the same on all ranks"),
    Verb(
        "plan",
        "capturing.plan",
        "which ranks to record, what it costs, how large the reports get, and which commands to run",
    ),
    Verb("recover", "capturing.recover", "turn leftover raw captures into reports, and list the incomplete ones"),
    Verb("scrub", "capturing.scrub", "copy reports, runs and logs without what must not be shared"),
    Verb("script", "capturing.script", "write a job script or manifest that profiles every rank"),
    Verb("upload", "capturing.upload", "copy the reports of a job to s3://, gs:// and the like"),
    Verb("doctor", "capturing.doctor", "whether this machine can profile, with a fix for each problem"),
)
"""The verbs of `alltrace capture`."""
