"""What the host's work is called: names of ranges, calls and Python functions, each with the source of the name.

Each table is one kind of work. Upper and lower case are equal; names longer than 200 characters have arguments and text
of the program, which can be anything, and match nothing.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple


class Pattern(NamedTuple):
    regex: str
    source: str


WAITING = (
    Pattern(
        r"enumerate\(DataLoader\)#\w+\.__next__",
        "PyTorch, torch/utils/data/dataloader.py: `_BaseDataLoaderIter.__next__`",
    ),
    Pattern(r"enumerate\(DataPipe\)#", "PyTorch, torch/utils/data/datapipes/_hook_iterator.py"),
    Pattern(r"\[_\w+Loop\S*\]\.\w*(?:dataloader|data_fetcher)\w*next", "Lightning, actions of its profilers"),
    Pattern(
        r"DALI\w*Iterator\.__next__|daliShareOutput|daliOutput|pipeline\.share_outputs",
        "DALI, C API and framework iterators",
    ),
    Pattern(r"IteratorGetNext", "TensorFlow, guide on the performance of tf.data: `IteratorGetNext::DoCompute`"),
    Pattern(r"(?:^|:)(?:device_put_)?prefetch_to_device(?:$|\W)", "Flax, flax.jax_utils"),
)
"""Ranges of a thread that waits for, or makes, the next batch: what runs within belongs to loading."""

WAITING_QUEUES = (
    Pattern(r"(?:^|[./(: ])(?:simple)?queue\.get(?:$|[^a-z_])", "Python, queue and multiprocessing.queues"),
)
"""Ranges of a thread that takes something from a queue, which on any thread but the launching one means nothing."""

RECORDED_WAITS = (
    Pattern(r" \(waits\)$|^cpu wait$", "alltrace, the record of steps: waits for other ranks, and for a processor"),
)
"""Ranges in which a thread waits for other ranks or for a processor."""

WAITING_FRAMES = (
    Pattern(r"torch/utils/data/dataloader\.py\(\d+\): __next__$", "PyTorch's profiler with `with_stack`"),
    Pattern(r"nvidia/dali/plugin/[\w./]+\.py\(\d+\): __next__$", "DALI's iterators"),
    Pattern(r"(?:^|/)(?:multiprocessing/queues|queue)\.py\(\d+\): get$", "Python, queue and multiprocessing.queues"),
)
"""The same as functions of Python, as PyTorch's profiler names them: file, line and function."""

NAMED_DATA = (
    Pattern(
        r"(?:^|[^a-z])(?:data|data[-_]?load(?:er|ing)?|(?:next|load|get)[-_]?batch|batch[-_]?(?:load|generator)|"
        r"fetch)(?:[^a-z]|$)",
        "names of ranges that users write; `batch-generator` of Megatron-LM's timers",
    ),
)
"""Ranges that a user named after data. They often hold the copy to the device too: blocking calls are a separate
kind."""

LOADING = (
    Pattern(
        r"^\[DALI\]\[(?:Executor\] Run(?:CPU|$)|CPU op\])", "DALI, NVTX ranges of its executors (exec_node_task.cc)"
    ),
    Pattern(r"^Iterator::", "TensorFlow, tf.data's iterators on threads of the input pipeline"),
)
"""Ranges in which a batch is prepared, usually on a separate thread."""

OS_READS = (Pattern(r"^(?:p?read(?:64|v)?|fread|recv(?:from|msg)?)$", "POSIX and C standard library"),)
"""Calls of the operating-system runtime that read."""

OS_WAITS = (
    Pattern(r"^sem_(?:timed|clock)?wait$", "POSIX: what Python's locks and queues are made of"),
    Pattern(
        r"^p?(?:poll|select)$|^epoll_p?wait2?$",
        "POSIX and Linux: waiting for a pipe or a socket, such as that of a loader's worker",
    ),
)
"""Calls of the operating-system runtime that wait for another thread or process; a launching thread that calls nothing
of CUDA meanwhile waits for its work. Condition variables are left out: Python's interpreter lock is made of them."""

OS_CONDITIONS = (Pattern(r"^pthread_cond_(?:timed|clock)?wait$|^futex$", "POSIX and Linux: condition variables"),)
"""Calls of the operating-system runtime that wait for a lock, or for another thread's work."""

OS_SLEEPS = (
    *OS_CONDITIONS,
    Pattern(r"^(?:u|nano|clock_nano)?sleep$", "POSIX"),
    Pattern(r"^pthread_join$", "POSIX: waiting for another thread"),
)
"""Calls of the operating-system runtime in which a thread computes nothing."""

COMPILING = (
    Pattern(
        r"\(dynamo_timed\)$|^entire_frame_compile$|^backend_compile$|^_compile\.compile_inner$",
        "PyTorch, torch/_dynamo/utils.py",
    ),
    Pattern(
        r"^(?:TSL:)?Xla(?:Compile|PassPipeline|EmitLlvmIr|CreateGpuExecutable|AutotunerMeasurement)",
        "XLA, TSL's profiler ranges",
    ),
    Pattern(r"(?:^|[^a-z])triton[._:]*(?:jit)?[._:]*compile", "Triton, triton.compiler.compile"),
)
"""Ranges in which a program is compiled for the device."""

COMPILING_FUNCTIONS = (
    Pattern(r"triton/compiler/compiler\.py(?:\(\d+\))?: compile$", "Triton"),
    Pattern(r"torch/_dynamo/convert_frame\.py(?:\(\d+\))?: (?:_compile|compile_inner)$", "PyTorch's dynamo"),
    Pattern(r"torch/_inductor/compile_fx\.py(?:\(\d+\))?: \w*compile\w*$", "PyTorch's inductor"),
)
"""The same as functions of Python, with or without their line."""

COMPILED_REGIONS = (
    Pattern(r"^Torch-Compiled Region", "PyTorch, torch/_dynamo/eval_frame.py"),
    Pattern(r"^(?:## Call )?CompiledFxGraph\b", "PyTorch, torch/_inductor"),
)
"""Ranges around code that was compiled. One that loads its own code is run for the first time, and the host's silence
in it is compilation: inductor compiles its kernels at their first call."""

COMPILING_CALLS = (Pattern(r"^(?:nvrtc|hiprtc)(?:Compile|Create)Program", "NVRTC and HIPRTC"),)
"""Calls that compile source text."""

CODE_CALLS = (Pattern(r"^(?:cu|hip)(?:Module|Library)Load", "CUDA's driver API and HIP, modules and libraries"),)
"""Calls that load code."""

MODULE_CALLS = (
    *CODE_CALLS,
    Pattern(r"^(?:cu|hip)(?:Module|Library)Unload", "CUDA's driver API and HIP, modules and libraries"),
    Pattern(r"^cuLink(?:Create|Add\w+|Complete)", "CUDA driver API, the linker of PTX"),
    Pattern(
        r"^(?:cu|hip)(?:ModuleGetFunction|LibraryGetKernel|KernelGetFunction|FuncLoad)",
        "CUDA's driver API and HIP, lazy loading",
    ),
    Pattern(
        r"^(?:cuda|hip)(?:FuncGetAttributes|FuncSetAttribute|GetFuncBySymbol)|^(?:cu|hip)Func[GS]etAttribute",
        "CUDA and HIP, the first use of a function",
    ),
    Pattern(r"^(?:cu(?:da)?|hip)GraphInstantiate", "graphs of CUDA and HIP"),
)
"""Calls that bring code to the device, or make a graph ready to be launched."""

MODULE_OVERHEADS = (Pattern(r"lazy function loading|runtime triggered module loading", "CUPTI, kinds of overhead"),)
"""What CUPTI itself calls the loading of code that a launch had to wait for."""

SYNCS = (Pattern(r"^(?:cu(?:da)?|hip)(?:Device|Stream|Event|Ctx|Thread)Synchronize", "CUDA and HIP"),)
ALLOCATIONS = (
    Pattern(
        r"^(?:cu(?:da)?|hip)(?:Malloc|Free|HostAlloc|HostMalloc|HostFree|Mem(?:Alloc|Free|HostAlloc|Create|Release|"
        r"Map|Unmap))(?!.*async)",
        "CUDA and HIP",
    ),
)
COPIES = (Pattern(r"^(?:cu(?:da)?|hip)Memcpy", "CUDA and HIP"),)

_LONGEST_NAME = 200


def matching(texts: Iterable[str], patterns: Iterable[Pattern]) -> list[int]:
    """The places of the texts that one of the patterns is found in, in any case."""
    either = re.compile("|".join(f"(?:{p.regex})" for p in patterns), re.IGNORECASE)
    return [n for n, text in enumerate(texts) if len(text) < _LONGEST_NAME and either.search(text)]
