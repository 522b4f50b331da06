"""Can this machine profile? Each finding comes with its fix."""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import ClassVar

from alltrace.capture.profilers.ncu import ask_ncu
from alltrace.capture.profilers.nsys import ask_nsys, lacks_nccl_trace, nccl_version
from alltrace.capture.profilers.tool import Tool, locate
from alltrace.capture.recover import find_importer
from alltrace.trace.errors import UsageError

_ROOM = 2 << 30
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
_TIME_ERROR, _STA_UNSYNC = 5, 0x40  # adjtimex(2)
_MOST_ERROR_US = 100_000
_LOCAL_ONLY = {"nfs", "nfs4", "lustre", "gpfs", "cifs", "fuse.sshfs", "beegfs"}


@dataclass(frozen=True)
class Finding:
    what: str  # what it is
    state: str  # `ok`, `limited` (some kinds of recording will fail) or `bad`
    found: str  # what was found
    fix: str = ""  # what to do; empty if nothing has to be done


def examine(root: Path = Path("/")) -> list[Finding]:
    """Every finding on this machine."""
    # `root`: where `proc` is; another folder for tests.
    return [
        *_tools(),
        *_nccl_trace(),
        *_driver(root),
        *_permissions(root),
        *_container(root),
        *_clock(),
        *_temporary(root),
        *_locks(),
        *_nvtx(),
        *_byte_code(),
    ]


def _tools() -> Iterator[Finding]:
    asks: tuple[tuple[str, Callable[[Path], Tool], str], ...] = (("nsys", ask_nsys, "bad"), ("ncu", ask_ncu, "limited"))
    for name, ask, state in asks:
        try:
            tool = ask(locate(name))
        except UsageError as error:
            yield Finding(name, state, str(error), f"install it, or set its folder in ALLTRACE_{name.upper()}")
        else:
            yield Finding(name, "ok", f"{tool.label} at {tool.path}")
            if name == "nsys":
                yield _importer(tool)


def _importer(tool: Tool) -> Finding:
    """What makes a report of what nsys recorded; without it, the recording stays raw."""
    try:
        return Finding("importer", "ok", f"QdstrmImporter at {find_importer(tool.path)}")
    except UsageError as error:
        return Finding(
            "importer", "limited", str(error), "install all of Nsight Systems, or mount all of it into the container"
        )


def _nccl_trace() -> Iterator[Finding]:
    """Whether nsys traces NCCL itself; without it, communicators and sizes are those of NCCL's own ranges or logs."""
    try:
        tool = ask_nsys(locate("nsys"))
    except UsageError:
        return
    reason = lacks_nccl_trace(tool, os.environ)
    if reason is None:
        version = nccl_version(os.environ)
        yield Finding(
            "NCCL trace", "ok", f"{tool.label} traces NCCL{f' {version}' if version else ', from version 2.28'}"
        )
    else:
        fix = (
            "use Nsight Systems 2025.6 and NCCL 2.28 or newer, or import the job's NCCL logs (capture exec --nccl-log)"
        )
        yield Finding("NCCL trace", "limited", reason, fix)


def _driver(root: Path) -> Iterator[Finding]:
    version = _read(root / "proc/driver/nvidia/version")
    if version is None:
        yield Finding(
            "driver",
            "limited",
            "no NVIDIA driver is loaded here",
            "run it on a node with GPUs, or give the container --gpus all",
        )
        return
    yield Finding("driver", "ok", version.splitlines()[0])
    params = _read(root / "proc/driver/nvidia/params") or ""
    if "RmProfilingAdminOnly: 1" in params and not _may(root, _CAP_SYS_ADMIN):
        fix = "set the kernel module option NVreg_RestrictProfilingToAdminUsers=0, or give the container CAP_SYS_ADMIN"
        yield Finding(
            "counters",
            "limited",
            "only administrators may read the GPUs' counters, so ncu and --gpu-metrics do not work",
            fix,
        )
    else:
        yield Finding("counters", "ok", "the GPUs' counters can be read")


def _permissions(root: Path) -> Iterator[Finding]:
    text = (_read(root / "proc/sys/kernel/perf_event_paranoid") or "").strip()
    try:
        level = int(text)
    except ValueError:
        yield Finding("CPU samples", "limited", "perf_event_paranoid cannot be read", "leave out --sample")
        return
    allowed = level <= 2 or _may(root, _CAP_SYS_ADMIN) or _may(root, _CAP_PERFMON)
    fix = (
        ""
        if allowed
        else "sysctl kernel.perf_event_paranoid=2, or CAP_PERFMON or CAP_SYS_ADMIN for the container, or no --sample"
    )
    yield Finding("CPU samples", "ok" if allowed else "limited", f"perf_event_paranoid is {level}", fix)


def _container(root: Path) -> Iterator[Finding]:
    """Whether this is a container, and what it may not do."""
    kind = _container_kind(root)
    if kind is None:
        return
    rights = [n for n, bit in (("SYS_ADMIN", _CAP_SYS_ADMIN), ("PERFMON", _CAP_PERFMON)) if _may(root, bit)]
    if rights:
        yield Finding("container", "ok", f"{kind}, with {' and '.join(f'CAP_{r}' for r in rights)}")
        return
    status = _read(root / "proc/self/status") or ""
    filtered = ", and its seccomp filter is on" if re.search(r"^Seccomp:\s*2", status, re.MULTILINE) else ""
    without = f"{kind}, without CAP_SYS_ADMIN and CAP_PERFMON{filtered}"
    limits = f"{without}: CUDA and NVTX can be traced, but --sample, --gpu-metrics and ncu do not work"
    fix = "docker run --cap-add=SYS_ADMIN; in Kubernetes securityContext.capabilities.add: [SYS_ADMIN]"
    yield Finding("container", "limited", limits, fix)


def _container_kind(root: Path) -> str | None:
    if (root / ".dockerenv").exists():
        return "a container of Docker"
    if (root / "run/.containerenv").exists():
        return "a container of Podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "a container of Kubernetes"
    groups = _read(root / "proc/1/cgroup") or ""
    name = next((k for k in ("kubepods", "docker", "containerd", "lxc", "enroot") if k in groups), None)
    return None if name is None else f"a container ({name})"


def _clock() -> Iterator[Finding]:
    """Whether the kernel says its clock is synchronised; logs have no other clock."""
    state = _adjtimex()
    if state is None:
        yield Finding(
            "clock",
            "limited",
            "cannot determine whether the clock is synchronised",
            "see chronyc tracking or timedatectl",
        )
        return
    code, status, error_us = state
    if code == _TIME_ERROR or status & _STA_UNSYNC:
        fault = "the clock is not synchronised: times of this host and others may be seconds apart"
        yield Finding("clock", "limited", fault, "start chronyd, ntpd or systemd-timesyncd on the host")
    elif error_us > _MOST_ERROR_US:
        fault = f"the clock may be wrong by {error_us / 1000:.0f} ms"
        yield Finding(
            "clock",
            "limited",
            fault,
            "configure a nearer server for chronyd or ntpd; alltrace aligns hosts by their collectives",
        )
    else:
        yield Finding("clock", "ok", f"synchronised, at most {error_us / 1000:.1f} ms off")


class _Timex(ctypes.Structure):
    """The beginning of `struct timex` of adjtimex(2), with space for the rest."""

    _fields_: ClassVar = [
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    ]


def _adjtimex() -> tuple[int, int, int] | None:
    """State, status bits and largest error in us of the kernel's clock, from adjtimex(2); None if not available."""
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
    except (AttributeError, OSError):
        return None
    answer = _Timex()  # modes 0: ask, change nothing
    code = call(ctypes.byref(answer))
    return None if code < 0 else (code, answer.status, answer.maxerror)


def _locks() -> Iterator[Finding]:
    """Whether ncu's lock, which all users of a machine share, belongs to another one."""
    for folder in dict.fromkeys((Path(os.environ.get("TMPDIR") or tempfile.gettempdir()), Path("/tmp"))):  # noqa: S108
        lock = folder / "nsight-compute-lock"
        if lock.exists() and not os.access(lock, os.W_OK):
            fault = f"{lock} belongs to another user, and ncu waits for it or fails"
            yield Finding(
                "ncu lock",
                "limited",
                fault,
                "`alltrace capture exec` gives each rank its own TMPDIR; otherwise set TMPDIR yourself",
            )
            return


def _temporary(root: Path) -> Iterator[Finding]:
    folder = Path(os.environ.get("TMPDIR") or tempfile.gettempdir())
    fix = "set --tmp or TMPDIR to a local folder with enough space, such as the node's disk"
    try:
        import fcntl

        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield Finding("TMPDIR", "bad", f"{folder} cannot be written and locked ({error.strerror})", fix)
        return
    kind = _file_system(root, folder)
    if kind in _LOCAL_ONLY:
        yield Finding("TMPDIR", "limited", f"{folder} is on {kind}, which all nodes share", fix)
    elif free < _ROOM:
        yield Finding(
            "TMPDIR",
            "limited",
            f"{folder} has {free >> 20} MiB free; a raw capture stays there until it becomes a report",
            fix,
        )
    else:
        yield Finding("TMPDIR", "ok", f"{folder}, {free >> 30} GiB free")


def _nvtx() -> Iterator[Finding]:
    try:
        version = metadata.version("nvtx")
    except metadata.PackageNotFoundError:
        yield Finding(
            "nvtx",
            "limited",
            "the package nvtx is not installed here",
            "pip install 'nvtx<=0.2.11' for `annotate` without PyTorch",
        )
        return
    numbers = [int(n) if n.isdecimal() else 0 for n in version.split(".")[:3]]
    try:
        tool = ask_nsys(locate("nsys"))
    except UsageError:
        return
    if numbers >= [0, 2, 12] and (0, 0, 0) < tool.version < (2024, 1, 1):
        fault = f"nvtx {version} writes ranges that {tool.label} does not record"
        yield Finding("nvtx", "bad", fault, "pip install 'nvtx<=0.2.11', or use a newer nsys")
    else:
        yield Finding("nvtx", "ok", f"nvtx {version}")


def _byte_code(sources: Iterable[str] | None = None) -> Iterator[Finding]:
    """Whether Python keeps what it compiles: where it cannot, every command compiles its modules again."""
    # `sources`: a module of each folder of packages; default: Python's own, this package, and NumPy.
    numpy = find_spec("numpy")
    sources = sources or [argparse.__file__, __file__, *([numpy.origin] if numpy and numpy.origin else [])]
    uncompiled = {str(Path(source).parent) for source in sources if not Path(cache_from_source(source)).exists()}
    if uncompiled:
        folders = " ".join(sorted(uncompiled))
        fix = f"python -m compileall -q {folders}, or set PYTHONPYCACHEPREFIX to a folder that you may write"
        sentence = f"Python keeps no byte code in {folders}, so each command takes a second more"
        yield Finding("byte code", "limited", sentence, fix)
    else:
        yield Finding("byte code", "ok", "Python keeps byte code of its packages")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def _may(root: Path, capability: int) -> bool:
    for line in (_read(root / "proc/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


def _file_system(root: Path, folder: Path) -> str | None:
    best, kind = "", None
    here = str(folder.resolve())
    for line in (_read(root / "proc/mounts") or "").splitlines():
        fields = line.split()
        # of two at one place, such as what automounts and what it mounted, the later one is seen
        if len(fields) > 2 and len(fields[1]) >= len(best) and f"{here}/".startswith(fields[1].rstrip("/") + "/"):
            best, kind = fields[1], fields[2]
    return kind
