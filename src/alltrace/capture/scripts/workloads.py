"""What is run: NCCL tests, FSDP, Megatron-LM, NeMo or a command, as the words of a program."""

import re
from dataclasses import dataclass

from alltrace.capture.scripts.settings import Job
from alltrace.capture.selection import parse_selection
from alltrace.trace.errors import UsageError

_SCRIPTS = {"fsdp": "train.py", "megatron": "pretrain_gpt.py", "nemo": "megatron_gpt_pretraining.py"}
_BY_RANGE = ("megatron", "nemo")


@dataclass(frozen=True)
class Program:
    label: str  # what distinguishes it from the job's other programs; empty if there is only one
    words: tuple[str, ...]  # the program and its arguments


def programs(job: Job) -> list[Program]:
    kind, profiler = job.text("workload.kind"), job.text("profiler.kind")
    further = job.words("workload.arguments")
    if kind == "nccl-tests":
        return _nccl_tests(job, further)
    if kind == "command":
        words = [*job.words("workload.command"), *further]
        if not words or not words[0]:
            raise UsageError("workload.command is empty; expected the program and its arguments")
        return [Program("", tuple(words))]
    script = job.text("workload.script") or _SCRIPTS[kind]
    window_of = {"megatron": _megatron, "nemo": _nemo}.get(kind)
    window = window_of(job, profiler, *job.steps) if window_of and job.steps else []
    return [Program("", ("python", script, *window, *further))]


def uses_torchrun(job: Job) -> bool:
    """Whether torchrun starts the ranks of a node, if the target leaves the choice."""
    launch = job.text("workload.launch")
    return launch == "torchrun" or (launch == "auto" and job.text("workload.kind") in ("fsdp", "megatron", "nemo"))


def begun_by_program(job: Job) -> bool:
    """Whether the program's own arguments select the recorded steps; it calls cudaProfilerStart and Stop itself."""
    return job.text("workload.kind") in _BY_RANGE


def profiled_ranks(job: Job) -> list[int]:
    chosen = job.text("profiler.ranks") or ("0" if job.text("profiler.kind") == "ncu" else "all")
    selection = parse_selection(chosen, job.number("profiler.per_node") or None, job.number("profiler.cutoff") or None)
    ranks = [r for r in range(job.world_size) if selection.takes(r, r % job.number("job.ranks_per_node"))]
    if not ranks:
        raise UsageError(f"profiler.ranks is {chosen}, which contains none of the ranks 0-{job.world_size - 1}")
    return ranks


def command_pattern(job: Job) -> str:
    """A regular expression of the command line of what is profiled, but not of a shell or torchrun that starts it."""
    names = []
    for program in programs(job):
        first, *rest = program.words
        name = first.rsplit("/", 1)[-1]
        if not re.fullmatch(r"python[0-9.]*", name):
            names.append(rf"(\S*/)?{escaped(name)}( .*)?")
            continue
        at = next((n for n, w in enumerate(rest) if not w.startswith("-")), None)
        if at is None:
            raise UsageError(
                f"cannot derive what to profile from {' '.join(program.words)!r}; give injector.match or operator.match"
            )
        is_module = at > 0 and rest[at - 1] == "-m"
        script = f"-m {escaped(rest[at])}" if is_module else rf"(\S*/)?{escaped(rest[at].rsplit('/', 1)[-1])}"
        names.append(rf"(\S*/)?python[0-9.]* (-[XW] \S+ |-\S+ )*{script}( .*)?")
    return f"^({'|'.join(names)})$" if len(names) > 1 else f"^{names[0]}$"


def escaped(text: str) -> str:
    """`text` for a regular expression of any dialect: with a backslash before what has a meaning there."""
    return re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", text)


def _nccl_tests(job: Job, further: list[str]) -> list[Program]:
    if job.text("profiler.kind") == "torch":
        raise UsageError("nccl-tests are not Python programs, so torch cannot profile them; set profiler.kind to nsys")
    if job.text("profiler.kind") == "ncu":
        raise UsageError("nccl-tests run only NCCL's kernels, which ncu must not replay; set profiler.kind to nsys")
    if job.steps is not None:
        raise UsageError("nccl-tests have no steps; give profiler.delay and profiler.duration instead")
    folder = job.text("workload.tests_folder")
    tests = job.words("workload.tests")
    odd = next((t for t in tests if not re.fullmatch(r"[A-Za-z0-9_.-]+", t)), None)
    if not tests or odd is not None:
        raise UsageError(f"workload.tests names {odd!r}; expected programs such as all_reduce_perf")
    # -c 0: checks of the result are separate kernels; -g 1: one GPU per process
    sizes = ["-b", job.text("workload.min_bytes"), "-e", job.text("workload.max_bytes"), *"-f 2 -g 1 -c 0".split()]
    sizes += ["-n", str(job.number("workload.iterations"))]
    return [
        Program(test if len(tests) > 1 else "", (f"{folder.rstrip('/')}/{test}" if folder else test, *sizes, *further))
        for test in tests
    ]


def _megatron(job: Job, profiler: str, first: int, end: int) -> list[str]:
    switches = ["--profile", "--profile-step-start", str(first), "--profile-step-end", str(end)]
    if profiler == "torch":
        switches.append("--use-pytorch-profiler")
    return [*switches, "--profile-ranks", *map(str, profiled_ranks(job))]


def _nemo(job: Job, profiler: str, first: int, end: int) -> list[str]:
    if profiler == "torch":
        raise UsageError("NeMo has no argument for the PyTorch profiler; set profiler.kind to nsys")
    ranks = ",".join(map(str, profiled_ranks(job)))
    # NeMo's last step is part of the window
    values = {"enabled": "True", "start_step": first, "end_step": end - 1, "ranks": f"[{ranks}]", "gen_shape": "False"}
    return [f"model.nsys_profile.{key}={value}" for key, value in values.items()]
