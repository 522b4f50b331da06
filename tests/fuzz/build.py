"""The package with sanitizers, in a separate folder, and the environment to run it in."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SANITIZED = ROOT / "build" / "sanitized"
SANITIZERS = "address,undefined,float-cast-overflow"
_RUNTIMES = ("libasan.so", "libubsan.so")
_STAMP = ".built"


class NoSanitizersError(Exception):
    """There is no compiler, or it has no sanitizers."""


def runtimes() -> tuple[str, ...]:
    """The shared libraries of the compiler's sanitizers, that for addresses first.

    Raises:
        NoSanitizersError: There are none.
    """
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        raise NoSanitizersError(f"there is no compiler {compiler[0]!r}; install gcc")
    found = []
    for name in _RUNTIMES:
        command = [*compiler, f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if not Path(path).is_absolute() or not Path(path).is_file():
            raise NoSanitizersError(
                f"the compiler {compiler[0]!r} has no {name} for its sanitizers; install gcc and set CC=gcc"
            )
        found.append(path)
    return tuple(found)


def build(root: Path = ROOT, target: Path = SANITIZED) -> Path:
    """The package of `root`, built with sanitizers into the folder `target` unless that is newer than all its sources.

    Raises:
        NoSanitizersError: The compiler has none.
        subprocess.CalledProcessError: The package does not compile.
    """
    runtimes()
    target.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it
        package, stamp = root / "src" / "alltrace", target / _STAMP
        sources = [p for p in package.rglob("*") if p.is_file() and p.suffix not in (".pyc", ".so")]
        names = "\n".join(sorted(str(p.relative_to(package)) for p in sources))
        built = stamp.stat().st_mtime if stamp.is_file() and stamp.read_text() == names else 0.0
        if max(p.stat().st_mtime for p in (root / "setup.py", *sources)) < built:
            return target
        stamp.unlink(missing_ok=True)
        flags = ["--force"] if (root / "setup.py").stat().st_mtime >= built else []
        for path in list(target.rglob("*")):
            # compiled modules stay, so that only those with newer sources are compiled again
            source = package.parent / path.relative_to(target).with_name(f"{path.name.partition('.')[0]}.pyx")
            if path.is_file() and not (path.suffix == ".so" and source.is_file()):
                path.unlink()
        command = [sys.executable, "setup.py", "--quiet", "build", *flags, "--build-lib", str(target)]
        command += ["--build-temp", str(target.with_name(f"{target.name}-objects"))]
        subprocess.run(command, cwd=root, env={**os.environ, "ALLTRACE_SANITIZE": SANITIZERS}, check=True)
        stamp.write_text(names)
    return target


def plain_environment(scratch: Path) -> dict[str, str]:
    """The environment variables of a Python that runs the package as it is installed, without sanitizers: several times
    faster.

    Args:
        scratch: A folder for temporary files.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))), "TMPDIR": str(scratch)}


def environment(scratch: Path, target: Path = SANITIZED) -> dict[str, str]:
    """The environment variables of a Python that runs the package in the folder `target`.

    Args:
        scratch: A folder for temporary files.
        target: What `build` gave.
    """
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(target), str(ROOT))),
        "LD_PRELOAD": runtimes()[0],
        # Python does not free all when it ends; an allocation of 2 GB is refused, which Python reports as a MemoryError
        "ASAN_OPTIONS": (
            "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2048:hard_rss_limit_mb=8192:"
            "quarantine_size_mb=1:malloc_context_size=8"
        ),
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        # every allocation on its own, so that one byte beyond it is found
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OMP_NUM_THREADS": "1",  # Arrow's threads too: the inputs are small
        "TMPDIR": str(scratch),
    }
