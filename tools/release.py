"""Builds a release into a folder: `python tools/release.py [--output dist] [--skip-image]`, which is `make release`.

It cuts the changelog, if that has no part about the version yet: what is unreleased becomes that part. From the
committed files it builds the source archive, and from that a wheel for each architecture, with zig as the compiler and
for glibc 2.17: one machine builds them all. Each archive is looked at: its files, the architecture of what is compiled,
and the glibc it needs. The wheel of this machine is installed into an environment of its own and runs the demo; where a
container daemon answers, the image is built. `SHA256SUMS` and `notes.md`, the part of the changelog, are written next
to the archives. The last lines say what was not tried, and why.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tools.release_notes import CHANGELOG, notes

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]
_GIT = shutil.which("git") or "git"
_GLIBC = 17  # of CentOS 7, which manylinux2014 is named by
_NEEDED = re.compile(rb"GLIBC_2\.(\d+)")
_UNRELEASED = "## [Unreleased]\n"
_BUILD = (
    "import sys; sys.path.insert(0, 'tools/packaging'); import build_backend; print(getattr(build_backend,"
    " sys.argv[1])(sys.argv[2], {'--build-option': sys.argv[3:]} if sys.argv[3:] else None))"
)


class Architecture(NamedTuple):
    """An architecture that wheels are built for: its name, and its number in the header of an ELF file."""

    name: str
    machine: int


ARCHITECTURES = (Architecture("x86_64", 62), Architecture("aarch64", 183))


def main(arguments: list[str] | None = None) -> int:
    """Build, look at and try a release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "dist", help="the folder; what is in it is removed; default: dist"
    )
    parser.add_argument("--skip-image", action="store_true", help="do not build the container image")
    given = parser.parse_args(arguments)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if cut(version, datetime.now(UTC).date().isoformat()):
        raise SystemExit(f"CHANGELOG.md has a part about {version} now; read it, commit it, and run this again")
    shutil.rmtree(given.output, ignore_errors=True)
    given.output.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        archives = build(given.output.resolve(), Path(scratch))
    not_tried = tried(archives, image=not given.skip_image)
    (given.output / "notes.md").write_text(notes(version, CHANGELOG.read_text(encoding="utf-8")), encoding="utf-8")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in archives]
    (given.output / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    print("".join(lines), end="")
    print("".join(f"not tried: {what}\n" for what in not_tried) or "everything was tried\n", end="")
    return 0


def cut(version: str, date: str, changelog: Path = CHANGELOG) -> bool:
    """Make what is unreleased the part about a version, if the changelog has none; returns whether it did."""
    text = changelog.read_text(encoding="utf-8")
    if f"## [{version}]" in text:
        return False
    changelog.write_text(text.replace(_UNRELEASED, f"{_UNRELEASED}\n## [{version}] - {date}\n", 1), encoding="utf-8")
    return True


def build(output: Path, scratch: Path) -> list[Path]:
    """The source archive of what is committed, and a wheel of it for each architecture, each looked at."""
    tree, committed = scratch / "tree", scratch / "committed.tar"
    subprocess.run([_GIT, "archive", "--output", str(committed), "HEAD"], cwd=ROOT, check=True)
    with tarfile.open(committed) as archive:
        archive.extractall(tree, filter="data")
    source = output / _built(tree, "build_sdist", output, {})
    with tarfile.open(source) as archive:
        check_source(archive.getnames(), _committed_sources())
        archive.extractall(scratch, filter="data")
    archives = [source]
    for architecture in ARCHITECTURES:
        unpacked = scratch / architecture.name
        shutil.copytree(scratch / source.name.removesuffix(".tar.gz"), unpacked)
        tag = f"manylinux_2_{_GLIBC}_{architecture.name}"
        name = _built(unpacked, "build_wheel", output, compiling_for(architecture), f"--plat-name={tag}")
        check_wheel(output / name, architecture, _committed_sources())
        archives.append(output / name)
    return archives


def compiling_for(architecture: Architecture) -> dict[str, str]:
    """Variables with which setuptools compiles for an architecture."""
    zig = f"{sys.executable} {ROOT / 'tools' / 'packaging' / 'zig_cc.py'}"
    return {
        "CC": zig,
        "LDSHARED": f"{zig} -shared",
        "ALLTRACE_ZIG_TARGET": f"{architecture.name}-linux-gnu.2.{_GLIBC}",
        "_PYTHON_HOST_PLATFORM": f"linux-{architecture.name}",
    }


def _built(tree: Path, hook: str, output: Path, variables: dict[str, str], *options: str) -> str:
    """The name of the file that a hook of the build backend writes."""
    command = [sys.executable, "-c", _BUILD, hook, str(output), *options]
    done = subprocess.run(
        command, cwd=tree, env={**os.environ, **variables}, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{hook} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout.split()[-1]


def _committed_sources() -> set[str]:
    """The files of the package that are committed."""
    listed = subprocess.run([_GIT, "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name.removeprefix("src/") for name in listed.splitlines()}


def check_source(names: Iterable[str], sources: set[str]) -> None:
    """Whether a source archive has all files of the package, and none that were built; SystemExit if not."""
    held = {name.partition("/")[2] for name in names}
    _refuse(
        "the source archive",
        {f"src/{name}" for name in sources} - held,
        {n for n in held if n.endswith((".so", ".pyc"))},
    )


def check_wheel(wheel: Path, architecture: Architecture, sources: set[str]) -> None:
    """Whether a wheel has the files of the package and compiled ones, for this machine and glibc; else SystemExit."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("alltrace/")}
        modules = {name.removesuffix(".pyx") + ".abi3.so" for name in sources if name.endswith(".pyx")}
        wanted = sources | modules | {"alltrace/core/cython_shared.abi3.so"}
        _refuse(wheel.name, wanted - held, held - wanted)
        for name in sorted(held):
            if name.endswith(".so"):
                check_elf(f"{wheel.name}: {name}", archive.read(name), architecture)


def check_elf(what: str, data: bytes, architecture: Architecture) -> None:
    """Whether a compiled module is of an architecture and needs no glibc newer than 2.17; SystemExit if not."""
    if data[:4] != b"\x7fELF":
        raise SystemExit(f"{what} is no ELF file")
    machine = int.from_bytes(data[18:20], "little")
    if machine != architecture.machine:
        raise SystemExit(
            f"{what} is of machine {machine}; expected {architecture.machine}, which is {architecture.name}"
        )
    newest = max((int(number) for number in _NEEDED.findall(data)), default=0)
    if newest > _GLIBC:
        raise SystemExit(f"{what} needs glibc 2.{newest}; expected 2.{_GLIBC} or older")


def _refuse(what: str, missing: set[str], surplus: set[str]) -> None:
    problems = [
        f"{word} {', '.join(sorted(names)[:5])}" for word, names in (("lacks", missing), ("also has", surplus)) if names
    ]
    if problems:
        raise SystemExit(f"{what} {' and '.join(problems)}")


def tried(archives: list[Path], *, image: bool) -> list[str]:
    """Try what this machine can run; returns what was not tried, with the reason."""
    not_tried = []
    for wheel, architecture in zip(archives[1:], ARCHITECTURES, strict=True):
        if architecture.name != platform.machine():
            not_tried.append(f"{wheel.name}, since this machine is {platform.machine()}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try_wheel(wheel, Path(folder))
    if not image:
        return [*not_tried, "the container image, as asked"]
    docker = shutil.which("docker") or shutil.which("podman")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        return [*not_tried, "the container image, since no container daemon answers"]
    subprocess.run(
        [docker, "build", "-f", "packaging/container/Dockerfile", "-t", "alltrace", "."], cwd=ROOT, check=True
    )
    subprocess.run([docker, "run", "--rm", "alltrace", "--version"], check=True)
    return not_tried


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install a wheel into an environment of its own and run the demo there."""
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    subprocess.run(
        [str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", f"{wheel}[ui]"], check=True
    )
    demo = [str(programs / "alltrace"), "demo", "--output", str(folder / "demo"), "--ranks", "2"]
    subprocess.run(demo, check=True, stdout=subprocess.DEVNULL, cwd=folder)


if __name__ == "__main__":
    sys.exit(main())
