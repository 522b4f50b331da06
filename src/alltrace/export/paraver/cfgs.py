"""Configurations for Paraver, which choose events by their labels; written for the types that a trace has."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from alltrace.export.atomic_output import Draft
from alltrace.readers.paraver import labels as ev
from alltrace.readers.paraver.labels import EventType, Profile


@dataclass(frozen=True)
class View:
    folder: str  # `basics`, `views`, `analysis` or `hwcounters`
    name: str  # its file's name, and its own if it has no title
    about: str  # what it shows
    labels: tuple[str, ...] = ()  # the event types that it is of; none for states and communications
    level: str = "thread"  # the level with the objects that are its lines
    function: str = "Last Evt Val"  # Paraver's function of a thread
    compose: str = "As Is"  # Paraver's functions that come after it
    units: str = "Value"  # what its values are
    top: str = "As Is"  # Paraver's function of a line, which comes last
    tags: tuple[int, ...] = ()  # the tags of the communications that it is of; none for all
    operation: str = ""  # how the timelines in `parts` are combined; none for a timeline that has no parts
    parts: "tuple[View, ...]" = ()  # two timelines of which it is made
    title: str = ""  # what Paraver calls it


_UNSAFE = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 60
_ACTIVE = "Nesting level"
_LAUNCHES = (ev.TAG_KERNEL, ev.TAG_COPY)
_USEFUL = View(
    "analysis",
    "useful_device",
    "Whether a compute kernel of the rank runs: its share of time is the efficiency of the rank's device.",
    ("CUDA kernel",),
    level="task",
    compose=_ACTIVE,
    top="Sign",
)
_NCCL = View(
    "analysis",
    "nccl_running",
    "Whether NCCL runs on the rank's device.",
    ("NCCL kernel",),
    level="task",
    compose=_ACTIVE,
    top="Sign",
)
_RUNNING = View(
    "analysis",
    "kernels_running",
    "Kernels of each rank that run at once.",
    ("CUDA kernel", "NCCL kernel"),
    level="task",
    compose=_ACTIVE,
)
_BURSTS = View(
    "analysis",
    "kernel_bursts",
    "From a begin or end of a kernel to the next.",
    ("CUDA kernel",),
    compose="Burst Time",
    units="ns",
)
_IN_KERNEL = View("analysis", "in_kernel", "Whether a kernel of the stream runs.", ("CUDA kernel",), compose="Sign")
_QUEUED = View(
    "analysis",
    "launches_queued",
    "Work of each rank that was launched and has not begun.",
    level="task",
    function="Recv Messages in Transit",
    tags=_LAUNCHES,
)
_VIEWS = (
    View("basics", "states", "The state of each thread.", function="State As Is"),
    View("basics", "cuda_calls", "CUDA calls of host threads.", ("CUDA library call",), compose="Stacked Val"),
    View("basics", "kernels", "Kernels of each stream.", ("CUDA kernel",), compose="Stacked Val"),
    View("basics", "nccl_kernels", "NCCL kernels of each stream.", ("NCCL kernel",), compose="Stacked Val"),
    View("basics", "memory_transfers", "Copies and fills of each stream.", ("CUDA memory transfer",),
        compose="Stacked Val"),
    View("basics", "nccl_operations", "NCCL operations.", ("NCCL operation",), compose="Stacked Val"),
    View("basics", "mpi", "MPI calls.", ("MPI Point-to-point", "MPI Collective Comm", "MPI Other"),
        compose="Stacked Val"),
    View("basics", "graphs", "Launches of whole CUDA graphs.", ("CUDA graph",)),
    View("basics", "nvtx", "Innermost NVTX range of each thread.", ("NVTX default",)),
    View("basics", "nvtx_depth", "Open NVTX ranges of each thread.", ("NVTX depth default",)),
    View("views", "device_activities", "Kernels, NCCL and copies in one timeline.",
        ("CUDA kernel", "NCCL kernel", "CUDA memory transfer"), compose="Stacked Val"),
    View("views", "all_activities", "Calls, kernels, NCCL and copies.",
        ("CUDA library call", "CUDA kernel", "NCCL kernel", "CUDA memory transfer"), compose="Stacked Val"),
    _USEFUL,
    _NCCL,
    _RUNNING,
    View("analysis", "overlap", "Where compute and NCCL kernels run at once: NCCL that is hidden.",
        ("CUDA kernel", "NCCL kernel"), level="task", operation="product", parts=(_USEFUL, _NCCL)),
    View("analysis", "exposed_nccl", "1 where NCCL runs and no compute kernel does, -1 where only compute does.",
        ("CUDA kernel", "NCCL kernel"), level="task", operation="substract", parts=(_NCCL, _USEFUL)),
    View("analysis", "kernels_in_flight", "Work that was launched and has not ended: queued or running.",
        ("CUDA kernel", "NCCL kernel"), level="task", operation="add", parts=(_QUEUED, _RUNNING)),
    _QUEUED,
    View("analysis", "launch_latency", "From each call to the start of what it launched.", function="Last Send Dur.",
        units="ns", tags=_LAUNCHES),
    View("analysis", "kernel_duration",
        "Length of each kernel, 0 where none runs; where kernels of a stream overlap, from one begin or end to the "
        "next.",
        ("CUDA kernel",), units="ns", operation="product", parts=(_BURSTS, _IN_KERNEL)),
    View("analysis", "copy_sizes", "Bytes of each copy.", ("CUDA memory transfer size (bytes)",), units="bytes"),
    View("analysis", "copy_bandwidth", "Bytes of each copy over its time.", ("CUDA memory transfer size (bytes)",),
        compose="Divide by Burst Time", units="bytes/ns"),
    View("analysis", "nccl_sizes", "Bytes of each NCCL operation.", ("NCCL size (bytes)",), units="bytes"),
    View("analysis", "mpi_sizes", "Bytes sent by each MPI collective.", ("MPI send size (bytes)",), units="bytes"),
)  # fmt: skip
_OF_METRICS = (
    (
        View("analysis", "occupancy", "Warps in flight, % of what the device holds: the occupancy that was reached."),
        "warps in flight",
    ),
    (View("analysis", "mfu", "Use of the tensor cores, % of their peak, which MFU cannot exceed."), "tensor active"),
)
"""Views of the sampled metrics of GPUs whose names have these words, in small letters."""


def views_of(events: Iterable[EventType], written: Collection[int] | None = None) -> list[tuple[View, dict[str, int]]]:
    """The views that a trace can show, with the labels and numbers of their types; one for each metric too."""
    # `events`: the types in its .pcf. `written`: the types of which it has events; None for all.
    numbers = {label: n for e in events for n, label in e.types.items() if written is None or n in written}
    views = []
    for view in _VIEWS:
        types = {label: numbers[label] for label in view.labels if label in numbers}
        if types or not view.labels:  # combined windows need the types of each of them
            if any(part.labels and not any(label in numbers for label in part.labels) for part in view.parts):
                continue
            views.append((view, types))
    for view, words in _OF_METRICS:
        types = {
            label: kind
            for label, kind in sorted(numbers.items())
            if label.startswith("GPU ") and words in label.lower()
        }
        if types:
            views.append((replace(view, labels=tuple(types)), types))
    for number, (label, kind) in enumerate(
        (n, t) for n, t in sorted(numbers.items()) if n.startswith(("GPU ", "NIC "))
    ):
        # the number keeps names apart that differ in other letters alone
        name = f"{number + 1:03}_{_UNSAFE.sub('_', label.lower()).strip('_')[:_LONGEST_NAME]}"
        views.append((View("hwcounters", name, f"{label}.", (label,), units="Value", title=label), {label: kind}))
    return views


def write_cfgs(
    draft: Draft, path: Path, events: Iterable[EventType], profile: Profile, written: Collection[int] | None = None
) -> Path:
    """Write the configurations of a trace into the folder `path`, replacing an existing one; returns it."""
    folder = draft.file(path)
    folder.mkdir()
    for view, types in views_of(events, written):
        (folder / view.folder).mkdir(exist_ok=True)
        (folder / view.folder / f"{view.name}.cfg").write_text(cfg_text(view, types, profile), encoding="utf-8")
    if path.is_dir():  # of an earlier export
        path.replace(draft.folder / "old-cfgs")
    return path


def cfg_text(view: View, types: dict[str, int], profile: Profile) -> str:
    """The text of a .cfg file with one timeline, and its component timelines."""
    # `types`: our labels of its event types, with their numbers; Paraver goes by the labels.
    windows = [*view.parts, view]
    lines = [
        "#ParaverCFG", "ConfigFile.Version: 3.4", f"ConfigFile.NumWindows: {len(windows)}",
        "ConfigFile.BeginDescription", f"{ev.label_of(view.about)} Written by alltrace.", "ConfigFile.EndDescription",
        "",
    ]  # fmt: skip
    for number, window in enumerate(windows, 1):
        own = {profile.label(label): types[label] for label in window.labels if label in types}
        lines += [*_window(window, number, own, shown=window is view), ""]
    return "\n".join(lines)


def _window(view: View, number: int, types: dict[str, int], *, shown: bool) -> list[str]:
    """The lines of one timeline; a derived one uses those with the numbers before its own."""
    title = view.title or view.name.replace("_", " ")
    color = "window_in_code_color" if view.folder in ("basics", "views") else "window_in_gradient_color"
    if view.parts:
        before = " ".join(str(number - len(view.parts) + n) for n in range(len(view.parts)))
        kind = ["window_type composed", f"window_id {number}",
                f"window_factors {' '.join(['1.000000000000'] * len(view.parts))}",
                f"window_operation {view.operation}", f"window_identifiers {before}"]  # fmt: skip
    else:
        kind = ["window_type single", f"window_id {number}"]
    composed = ", ".join(
        f"{{compose_{level}, {view.compose if level == 'thread' else 'As Is'}}}"
        for level in ("thread", "task", "appl", "workload", "cpu", "node", "system")
    )
    lines = [
        "################################################################################",
        f"< NEW DISPLAYING WINDOW {title} >",
        "################################################################################",
        f"window_name {title}", *kind, "window_position_x 100", "window_position_y 100", "window_width 900",
        "window_height 300", "window_comm_lines_enabled false", "window_flags_enabled false",
        "window_noncolor_mode true", f"window_color_mode {color}",
        "window_logical_filtered true", "window_physical_filtered false", "window_comm_fromto true",
        "window_comm_tagsize true", "window_comm_typeval true", f"window_units {view.units}",
        "window_maximum_y 100.000000000000", "window_minimum_y 0.000000000000", "window_compute_y_max true",
        f"window_level {view.level}", "window_scale_relative 1.000000000000",
        "window_end_time_relative 1.000000000000", "window_object appl { 1, { All } }",
        "window_begin_time_relative 0.000000000000", f"window_open {str(shown).lower()}", "window_drawmode 1",
        "window_drawmode_rows 1", "window_pixel_size 1", "window_labels_to_draw 1", _selected(view, types),
        f"window_compose_functions {{ 9, {{ {composed}, {{topcompose1, {view.top}}}, {{topcompose2, As Is}} }} }}",
    ]  # fmt: skip
    if view.parts:
        return lines
    if view.tags:
        lines.append(f"window_filter_module tag_msg {len(view.tags)} {' '.join(map(str, view.tags))}")
    if types:
        names = " ".join('"' + label.replace('"', "'") + '"' for label in types)
        lines.append(f"window_filter_module evt_type {len(types)} {' '.join(map(str, types.values()))}")
        lines.append(f"window_filter_module evt_type_label {len(types)} {names}")
    return lines


def _selected(view: View, types: dict[str, int]) -> str:
    adding = {level: f"{{{level}, Adding}}" for level in ("appl", "task", "node", "system", "workload")}
    if view.parts:
        return f"window_selected_functions {{ {len(adding)}, {{ {', '.join(adding.values())} }} }}"
    events = "=" if types else "None" if view.function == "State As Is" else "All"
    messages = "All" if "essage" in view.function or "Send" in view.function else "None"
    return (
        f"window_selected_functions {{ 14, {{ {{cpu, Active Thd}}, {adding['appl']}, {adding['task']}, "
        f"{{thread, {view.function}}}, {adding['node']}, {adding['system']}, {adding['workload']}, "
        f"{{from_obj, All}}, {{to_obj, All}}, {{tag_msg, {'=' if view.tags else 'All'}}}, {{size_msg, All}}, "
        f"{{bw_msg, {messages}}}, {{evt_type, {events}}}, "
        "{evt_value, All} } }"
    )
