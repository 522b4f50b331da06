"""The request to `capture exec`, and its plan for one rank: a pure function of the variables."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from alltrace.capture.check import ENDINGS, find_reports
from alltrace.capture.identity import Identity, find_identity
from alltrace.capture.profilers.ncu import NcuOptions, ask_ncu, ncu_command
from alltrace.capture.profilers.nsys import LeftOut, NsysOptions, ask_nsys, nsys_command
from alltrace.capture.profilers.tool import locate
from alltrace.capture.selection import NAME, Selection, expand, fill_in, report_name
from alltrace.capture.variables import (
    ARMED,
    ARMED_FOLDER,
    ARMED_RANK,
    HEARD_RANK,
    JOB,
    LEADS,
    MEMORY,
    REQUEST,
    RULE,
    STEPS,
    STEPS_BY,
    TRACES,
    WINDOW,
)
from alltrace.trace.errors import InputError, UsageError


class Then(NamedTuple):
    """What is done with reports once they are written."""

    imports: bool = False  # whether each rank imports its own as a part of a run, which the last one finishes
    diagnoses: bool = False  # whether the run is then diagnosed, for the job's log
    url: str | None = None  # where copies go; None for nowhere
    scrub: bool = False  # whether only scrubbed exports are copied
    run: str | None = None  # the run directory; may hold fields. None for `{job}.run` in the folder of reports
    max_writers: int = 16  # how many ranks import or copy at once
    wait_s: float = 300.0  # seconds that the first rank waits for the others, after the last one that was done

    @property
    def asked(self) -> bool:
        return self.imports or self.url is not None


class Request(NamedTuple):
    """The request to `capture exec`, as its options (`alltrace.capture.options`) say it."""

    output: str = "reports"  # may hold fields
    name: str = NAME  # without ending, with fields
    job: str | None = None
    selection: Selection = Selection()
    profiler: str = "nsys"
    tool: str | None = None  # the profiler's program, as passed by the user; None to search for it
    nsys: NsysOptions = NsysOptions()
    ncu: NcuOptions = NcuOptions()
    # returns the filter for ncu if `ncu` has none; called only if this rank is profiled
    kernels: Callable[[], str] | None = None
    tmp: str | None = None
    force: bool = False
    on_error: str = "drop"
    strict: bool = False
    verbose: bool = False
    grace_s: float = 60.0
    end_after_s: float = 10.0
    rule: str = ""  # with `nsys.armed`, the rule for a window without a request, see `alltrace.capture.armed`; or empty
    gpu_log: bool = False
    flight_recorder: bool = False
    then: Then = Then()
    memory_snapshot: bool = False
    nccl_log: bool = False


class Plan(NamedTuple):
    who: Identity  # its place
    command: tuple[str, ...] | None  # the profiler's switches, without the program; None to run the program plainly
    report: Path | None  # the report that there should be afterwards; None for none
    notes: tuple[str, ...]  # what a reader must know
    traces: Path | None = None  # the folder in which `torch_profile` writes; None if it records nothing
    left_out: tuple[LeftOut, ...] = ()  # each option that this node cannot have, with the reason
    gpu_log: tuple[str, ...] | None = None  # the command that records the GPUs' clocks; None if this rank does not


def plan_rank(request: Request, environment: Mapping[str, str], host: str, left_out: Sequence[LeftOut] = ()) -> Plan:
    """Whether and how this rank is profiled; creates no files."""
    who = find_identity(environment, host)
    notes = list(who.notes)
    chosen = request.selection.holds(who)
    outside = request.selection.outside(who.world_size)
    if outside:
        notes.append(f"--ranks names {outside}, which a world of {who.world_size} does not have")
    if not chosen:
        return Plan(who, None, None, tuple(notes))
    folder = Path(expand(request.output, "--output", who, environment, request.job, folder=True)).absolute()
    node_wide = records_node(request.selection, who)
    log, without_log = _gpu_log(request, node_wide=node_wide)
    if request.profiler == "torch":
        return Plan(who, None, None, tuple(notes), folder, without_log, log)
    name = report_name(request.name, who, environment, request.job)
    ending = ENDINGS[request.profiler]
    report = folder / (name if name.endswith(ending) else name + ending)
    reports = find_reports(report)
    if not request.force and (reports.whole or reports.faults):
        raise InputError(
            (reports.whole or tuple(p for p, _ in reports.faults))[0],
            found="the report already exists",
            advice="give another --output or --job, or --force to replace it",
        )
    extra = tuple(fill_in(switch, who, environment) for switch in request.nsys.extra)
    path = locate(request.profiler, request.tool)
    if request.profiler == "ncu":
        options = request.ncu._replace(extra=extra)
        if request.kernels is not None:
            options = options._replace(kernels=request.kernels())
        peers = request.selection.chosen(who)
        if peers != 1 and options.lockstep is None:
            notes.append(
                "several ranks replay kernels independently, which hangs if a chosen kernel waits for another rank"
            )
        command = ncu_command(ask_ncu(path), report, options, force=request.force, peers=peers)
    else:
        drops = request.on_error == "drop"
        command, unknown = nsys_command(
            ask_nsys(path),
            report,
            request.nsys._replace(extra=extra),
            node_wide=node_wide,
            force=request.force,
            left_out=left_out,
            drops=drops,
            environment=environment,
        )
        left_out = (*left_out, *unknown)
    left_out = (*(one for one in left_out if one.option != "--gpu-log"), *without_log)
    return Plan(who, tuple(command), report, tuple(notes), left_out=left_out, gpu_log=log)


def _gpu_log(request: Request, *, node_wide: bool) -> tuple[tuple[str, ...] | None, tuple[LeftOut, ...]]:
    """The command that records the clocks of the node's GPUs; and the option, if the node cannot run it."""
    if not (request.gpu_log and node_wide):
        return None, ()
    from alltrace.capture.gpu_log import gpu_log_command  # other ranks do without

    try:
        return tuple(gpu_log_command()), ()
    except UsageError as error:
        if request.on_error != "drop":
            raise
        return None, (LeftOut("--gpu-log", str(error)),)


def records_node(selection: Selection, who: Identity) -> bool:
    """Whether this rank is the first one of its node that is profiled, if a node's ranks follow each other."""
    if not who.local_rank:
        return True
    return not any(
        selection.holds(who._replace(rank=who.rank - lower, local_rank=who.local_rank - lower))
        for lower in range(1, min(who.local_rank, who.rank) + 1)
    )


def say_notes(request: Request, plan: Plan, say: Callable[[str], None]) -> None:
    """Say what a reader must know: on rank 0 what all ranks would say, and everywhere what is its own."""
    me = f"rank {plan.who.rank}"
    if plan.who.rank == 0 or request.verbose:
        for note in plan.notes:
            say(f"{me}: {note}")


def window_variables(request: Request, plan: Plan, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that `alltrace.instrument.steps` finds; none if no steps are named, and the rank is not armed."""
    steps, who = request.nsys.steps, plan.who
    variables = (
        {STEPS_BY: request.nsys.begun_by} if request.profiler == "nsys" and (steps or request.nsys.armed) else {}
    )
    if steps is not None:
        variables[STEPS] = f"{steps[0]}:{steps[1]}"
    if request.nsys.armed:
        folder = Path(expand(request.output, "--output", who, environment, request.job, folder=True)).absolute()
        job = expand("{job}", "--job", who, environment, request.job)
        variables[ARMED] = str(folder / ARMED_FOLDER / job)
        if request.selection.is_first(who):
            variables.update({LEADS: "1", RULE: request.rule})
    return variables


def torch_variables(request: Request, plan: Plan, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which PyTorch's flight recorder is on, and memory snapshots; those already set stay."""
    # Source: PyTorch's documentation, "Flight Recorder for Debugging Stuck Jobs"; PyTorch adds the rank to the name of
    # the file.
    if not (request.flight_recorder or request.memory_snapshot):
        return {}
    job = expand("{job}", "--job", plan.who, environment, request.job)
    memory = {MEMORY: str(folder / f"{job}_rank{plan.who.rank}_memory")} if request.memory_snapshot else {}
    if not request.flight_recorder:
        return memory
    recorder = {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",  # as it was called before PyTorch 2.9
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / f"{job}_flight_rank"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / f"{job}_flight_rank"),
    }
    return {**{name: value for name, value in recorder.items() if name not in environment}, **memory}


def instrument_variables(request: Request, plan: Plan, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that `alltrace.instrument` and PyTorch find; makes the files for requests to an armed rank."""
    variables = window_variables(request, plan, environment)
    arm(request, plan, variables)
    variables.update(torch_variables(request, plan, folder, environment))
    if plan.traces is not None:
        variables[TRACES] = str(folder)
        if request.job is not None:
            variables[JOB] = request.job
    return variables


def arm(request: Request, plan: Plan, variables: Mapping[str, str]) -> None:
    """Make the files for requests to an armed rank, and its description, if `variables` arm it."""
    folder = Path(variables.get(ARMED, ""))
    if ARMED not in variables:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (REQUEST, WINDOW):
            # earlier requests to a job of the same name do not count
            with (folder / name).open("w" if LEADS in variables else "a"):
                pass
        (folder / f"{HEARD_RANK}{plan.who.rank}").unlink(missing_ok=True)
        (folder / f"{ARMED_RANK}{plan.who.rank}").write_text(
            f"{request.selection.chosen(plan.who) or 0}\n", encoding="ascii"
        )
    except OSError as error:
        raise InputError.cannot_be("created", folder, error, advice="give another --output") from error
