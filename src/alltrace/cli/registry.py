"""The verbs: a literal list, so that `alltrace --help` imports none of them."""

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
_MODULES = {"import": "verbs.import_", "exec": "capturing.exec_"}


def _verbs(folder: str, helps: dict[str, str]) -> tuple[Verb, ...]:
    """The verbs with these lines of help: short names of recipes, or modules of a folder."""
    modules = {name: _MODULES.get(name, f"{folder}.{name}") for name in helps} | dict.fromkeys(RECIPES, "recipe_verb")
    return tuple(Verb(name, modules[name], text) for name, text in helps.items())


_SHELVES = {
    "start": {
        "demo": "simulate, import, analyze and report in one go",
        "capture": "profile every rank under any launcher, and manage the reports",
        "import": "import reports into a run directory",
        "info": "what ran where: ranks, hosts, devices, what was captured, what is missing",
        "diagnose": "what costs time, which rank or host is responsible, what to do: ranked findings",
        "hang": "which rank a hanging or dead job waits for, and why: a sentence from dumps, logs and stacks",
        "watch": "a job while it runs: step time, slow and stopped ranks, alerts, metrics",
        "ui": "explore a run, or two side by side, in a browser: heat map, timeline, tables, SQL",
        "report": "one file to read and share: findings, charts and tables of the main questions",
    },
    "ask about a run": {
        "breakdown": "where the time goes: compute, exposed communication and copies, idle, per device",
        "steps": "the training steps of every rank: start, duration, and which are warm-up or checkpoint",
        "overlap": "whether communication is hidden: how much of it, and of the copies, overlaps compute",
        "stragglers": "which rank the others wait for, how much, and why it is late",
        "collectives": "whether the network is slow: transfer and bandwidth without waits, by communicator",
        "kernels": "GPU kernels: count, total, exact median and quartiles, over all ranks or per rank",
        "gaps": "the longest idle times of devices, with the work before and after",
        "critical-path": "the chain of work over all ranks that decided how long the run took",
        "whatif": "how long the run would take if a rank, operation or kernel performed like its peers",
        "efficiency": "the POP efficiencies of devices and hosts, per run, step or range",
        "recipe": "any recipe by name, such as memory; `alltrace recipe --list` lists them by subject",
        "sql": "answer an SQL query over the canonical tables",
        "explain": "what a kind of finding, a recipe, a table or a column means",
    },
    "compare runs": {
        "diff": "whether a change helped: what is slower or faster in run B, and what replaced what",
        "check": "a gate for CI: whether a run is as fast as a baseline, or keeps a budget of limits",
        "history": "runs of a job over time: step time, recurring findings, hosts that are often slow",
    },
    "more": {
        "stats": "the `nsys stats` report of that name, column for column, over all ranks",
        "nsys": "command lines of `nsys stats`, `analyze`, `recipe` and `export`, answered by alltrace",
        "ncu": "reports of Nsight Compute: one row per kernel launch",
        "logs": "analyze NCCL logs, nccl-tests tables, training logs and flight recorder dumps",
        "export": "export a run to another tool: Paraver, Perfetto, Chrome, TALP, Parquet, CSV, Arrow",
        "notebook": "a Jupyter notebook that opens the run and plots the answers of its recipes",
        "mcp": "a Model Context Protocol server, for programs that ask questions about runs",
        "skill": "instructions for programs that ask alltrace on your behalf, to print or to install",
        "verify": "read all files of a run and list the damaged ones",
        "synth": "write a simulated run with known faults",
        "completion": "a completion script for bash, zsh or fish",
    },
}
SHELVES = {shelf: _verbs("verbs", helps) for shelf, helps in _SHELVES.items()}
"""The verbs as `alltrace --help` groups them."""
VERBS = tuple(verb for shelf in SHELVES.values() for verb in shelf)
CAPTURE_VERBS = _verbs(
    "capturing",
    {
        "exec": "run a program as one rank and profile it if the rank is chosen; works under any launcher",
        "arm": "run a program as one rank that records on request (`capture now`) or by a rule",
        "now": "have an armed job record its next steps, the same on all ranks",
        "plan": "which ranks to record, what it costs, how large the reports get, and which commands to run",
        "recover": "turn leftover raw captures into reports, and list the incomplete ones",
        "scrub": "copy reports, runs and logs without what must not be shared",
        "script": "write a job script or manifest that profiles every rank",
        "upload": "copy the reports of a job to s3://, gs:// and the like",
        "doctor": "whether this machine can profile, with a fix for each problem",
    },
)
"""The verbs of `alltrace capture`."""
