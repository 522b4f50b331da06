"""The build backend, and what it puts into the archives."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

_PROJECT = Path(__file__).parents[1]
_PACKAGING = _PROJECT / "tools" / "packaging"


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _PACKAGING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def backend() -> ModuleType:
    return _loaded("build_backend")


@pytest.fixture
def compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Makes a machine on which only these commands are found, and whose Python was built with `python_cc`."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("LDSHARED", raising=False)

    def have(*commands: str, python_cc: str | None = "x86_64-linux-gnu-gcc -pthread") -> None:
        for command in commands:
            (tmp_path / command).write_text("#!/bin/sh\n")
            (tmp_path / command).chmod(0o755)
        monkeypatch.setattr(sysconfig, "get_config_var", {"CC": python_cc}.get)

    return have


@pytest.fixture
def ziglang(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    def there(installed: bool) -> None:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: object() if installed and name == "ziglang" else None
        )

    return there


@pytest.fixture
def built_with(backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Builds a wheel with a setuptools that only looks at the environment; returns what it saw of the backend's
    variables."""
    seen: dict[str, str] = {}
    monkeypatch.chdir(tmp_path)

    def build_wheel(*_arguments: object) -> str:
        seen.update({k: v for k, v in os.environ.items() if k in ("CC", "LDSHARED") or k.startswith("ZIG_")})
        return "a.whl"

    monkeypatch.setattr(backend.build_meta, "build_wheel", build_wheel)

    def build() -> dict[str, str]:
        before_build = dict(os.environ)
        assert backend.build_wheel("dist") == "a.whl"
        assert dict(os.environ) == before_build
        return seen

    return build


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["x86_64-linux-gnu-gcc", "cc"], "x86_64-linux-gnu-gcc -pthread"),
        (["cc", "gcc"], "cc"),
        (["gcc"], "gcc"),
        (["clang"], "clang"),
        ([], None),
    ],
)
def test_the_compiler_is_the_one_of_python_or_another_on_the_path(
    backend: ModuleType, compilers: Callable[..., None], found: list[str], expected: str | None
) -> None:
    compilers(*found)
    assert backend.compiler() == expected


def test_a_compiler_that_the_user_names_is_taken_as_it_is(
    backend: ModuleType,
    compilers: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    built_with: Callable[[], dict[str, str]],
) -> None:
    compilers("gcc")
    monkeypatch.setenv("CC", "ccache clang")
    assert backend.compiler() == "ccache clang"
    assert built_with() == {"CC": "ccache clang"}


def test_a_python_that_does_not_say_what_built_it(backend: ModuleType, compilers: Callable[..., None]) -> None:
    compilers(python_cc=None)
    assert backend.compiler() is None


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"])
def test_zig_is_asked_for_only_where_there_is_no_compiler(
    backend: ModuleType,
    compilers: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hook: str,
) -> None:
    monkeypatch.setattr(backend.build_meta, hook, lambda _settings: ["wheel"])
    compilers()
    plain, zig = getattr(backend, hook)()
    assert plain == "wheel"
    assert zig.startswith("ziglang>=0.13")
    assert "install.gcc.or.clang" in zig  # pip shows the requirement where it cannot be had
    assert "install gcc or clang" in capsys.readouterr().err
    compilers("gcc")
    assert getattr(backend, hook)() == ["wheel"]
    assert capsys.readouterr().err == ""


def test_the_requirement_lets_every_version_of_zig_pass(backend: ModuleType, compilers: Callable[..., None]) -> None:
    requirements = pytest.importorskip("packaging.requirements")
    compilers()
    zig = requirements.Requirement(backend._compiler_requirements()[0])
    assert zig.name == "ziglang"
    assert all(zig.specifier.contains(version) for version in ("0.13", "0.13.0.post1", "0.17.1", "1.0"))
    assert not zig.specifier.contains("0.12.1")


def test_setuptools_keeps_the_compiler_of_python(
    compilers: Callable[..., None], built_with: Callable[[], dict[str, str]]
) -> None:
    compilers("x86_64-linux-gnu-gcc")
    assert built_with() == {}


def test_setuptools_is_given_another_compiler(
    compilers: Callable[..., None], built_with: Callable[[], dict[str, str]]
) -> None:
    compilers("clang")
    assert built_with() == {"CC": "clang", "LDSHARED": "clang -shared"}


def test_setuptools_is_given_zig(
    compilers: Callable[..., None],
    ziglang: Callable[[bool], None],
    built_with: Callable[[], dict[str, str]],
    tmp_path: Path,
) -> None:
    compilers()
    ziglang(True)
    variables = built_with()
    assert shlex.split(variables["CC"]) == [sys.executable, str(_PACKAGING / "zig_cc.py")]
    assert variables["LDSHARED"] == f"{variables['CC']} -shared"
    assert variables["ZIG_GLOBAL_CACHE_DIR"] == str(tmp_path / "build" / "zig")


def test_no_compiler_and_no_zig_is_said_in_a_sentence(
    backend: ModuleType,
    compilers: Callable[..., None],
    ziglang: Callable[[bool], None],
    built_with: Callable[[], dict[str, str]],
) -> None:
    compilers()
    ziglang(False)
    with pytest.raises(SystemExit, match="no C compiler was found; install gcc or clang, or PyPI's ziglang"):
        built_with()


@pytest.mark.parametrize("error", [SystemExit("error: command 'gcc' failed"), OSError("broken")])
def test_a_build_without_the_headers_of_python_says_what_to_install(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    def build_editable(*_arguments: object) -> str:
        raise error

    monkeypatch.setattr(backend.build_meta, "build_editable", build_editable)
    monkeypatch.setenv("CC", "gcc")
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    with pytest.raises(SystemExit, match=r"headers of Python are missing .*Python\.h does not exist.*python3-dev"):
        backend.build_editable("dist")
    (tmp_path / "Python.h").write_text("")
    with pytest.raises(type(error)) as raised:
        backend.build_editable("dist")
    assert raised.value is error


def test_zig_gets_the_flags_that_it_understands() -> None:
    understood = _loaded("zig_cc").understood
    compiling = (
        "-pthread -specs=/usr/lib/rpm/redhat/redhat-hardened-cc1 -flto=auto -Wp,-D_FORTIFY_SOURCE=3 -mtune=generic"
        " -march=native -DNDEBUG -g -fwrapv -O3 -Wall -fPIC -D Py_LIMITED_API=0x030B0000 -I/usr/include/python3.11 -I"
        " include -c build/a.c -o build/a.o -g0"
    )
    assert (
        understood(compiling.split())
        == (
            "-DNDEBUG -g -fwrapv -O3 -fPIC -D Py_LIMITED_API=0x030B0000 -I/usr/include/python3.11 -I include "
            "-c build/a.c -o build/a.o -g0"
        ).split()
    )
    linking = "-shared -Wl,-z,relro -L/opt/python/lib -Wl,-rpath,/opt/python/lib build/a.o -o build/a.abi3.so"
    assert understood(linking.split()) == "-shared build/a.o -o build/a.abi3.so".split()


@pytest.fixture
def tree(backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A source tree with two compiled modules, where building compiles nothing, and `builds` counts how often."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC", "gcc")
    core = tmp_path / "src" / "alltrace" / "core"
    core.mkdir(parents=True)
    (tmp_path / "build").mkdir()
    for name in ("a.pyx", "b.pyx", "shared.pxd"):
        (core / name).write_text("")

    def built(command: list[str]) -> None:
        assert command == [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        for name in ("a", "b", "cython_shared"):
            (core / f"{name}.abi3.so").touch()
        with (tmp_path / "builds").open("a") as builds:
            builds.write("x")

    monkeypatch.setattr(subprocess, "check_call", built)
    (tmp_path / "setup.py").write_text("")
    for path in [tmp_path / "setup.py", *core.iterdir()]:
        os.utime(path, (1, 1))
    return tmp_path


def test_make_builds_again_what_changed(backend: ModuleType, tree: Path) -> None:
    core = tree / "src" / "alltrace" / "core"

    def builds() -> int:
        backend.build_in_place()
        return len((tree / "builds").read_text())

    assert builds() == 1
    assert builds() == 1
    for name in ("b", "cython_shared"):
        (core / f"{name}.abi3.so").unlink()
        before = builds()
    assert before == 3
    for name in ("b.pyx", "shared.pxd"):
        for built in core.glob("*.so"):
            os.utime(built, (2, 2))
        os.utime(core / name, (3, 3))
        before = builds()
        assert builds() == before
    assert before == 5
    assert (tree / "build").exists()
    for built in core.glob("*.so"):
        os.utime(built, (2, 2))
    os.utime(tree / "setup.py", (3, 3))
    assert builds() == 6
    assert not (tree / "build").exists()  # everything is compiled with the new flags


@pytest.mark.parametrize("installed", [True, False])
def test_make_installs_zig_where_there_is_no_compiler(
    backend: ModuleType,
    tree: Path,
    compilers: Callable[..., None],
    ziglang: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
    installed: bool,
) -> None:
    commands = []

    def run(command: list[str]) -> None:
        commands.append(command)
        ziglang("pip" in command or installed)
        if "setup.py" in command:
            assert "zig_cc.py" in os.environ["CC"]
            for name in ("a", "b"):
                (tree / "src" / "alltrace" / "core" / f"{name}.abi3.so").touch()

    compilers()
    ziglang(installed)
    monkeypatch.setattr(subprocess, "check_call", run)
    backend.build_in_place()
    assert [c[1] for c in commands] == (["setup.py"] if installed else ["-m", "setup.py"])
    assert installed or commands[0][-1].startswith("ziglang")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source archive of the project, with one compiled module to save time, and a wheel that is built from it."""
    project = tmp_path_factory.mktemp("project")
    for name in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(_PROJECT / name, project)
    shutil.copytree(_PACKAGING, project / "tools" / "packaging", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(_PROJECT / "src", project / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copytree(_PROJECT / "docs" / "man", project / "docs" / "man")
    (project / "tests").mkdir()
    (project / "tests" / "test_it.py").write_text("")
    core = project / "src" / "alltrace" / "core"
    for source in core.glob("*.pyx"):
        if source.stem != "intervals":
            source.unlink()
    sdist = _build(project, "sdist")
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(
            unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )  # 3.11.4 and newer
    (source_folder,) = unpacked.iterdir()
    gone = (
        source_folder
        / "build"
        / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        / "alltrace"
        / "gone.py"
    )
    gone.parent.mkdir(parents=True)
    gone.write_text("")  # as an earlier build leaves it
    return sdist, _build(source_folder, "wheel")


def _build(project: Path, kind: str) -> Path:
    backend = (
        "import sys; sys.path.insert(0, 'tools/packaging'); import build_backend;"
        f" print(build_backend.build_{kind}('dist'))"
    )
    done = subprocess.run([sys.executable, "-c", backend], cwd=project, check=True, capture_output=True, text=True)
    return project / "dist" / done.stdout.split()[-1]


_SOURCE_FILES = {
    str(path.relative_to(_PROJECT / "src"))
    for path in (_PROJECT / "src" / "alltrace").rglob("*")
    if path.is_file()
    and path.parent.name != "__pycache__"
    and path.suffix != ".so"
    and (path.suffix != ".pyx" or path.stem == "intervals")
}


@pytest.mark.slow
def test_the_source_archive_has_what_a_build_needs(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        "setup.py",
        "docs/man/alltrace.1",
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "tools/packaging/build_backend.py",
        "tools/packaging/zig_cc.py",
    }
    assert needed <= names
    assert {f"src/{name}" for name in _SOURCE_FILES} <= names
    assert not [name for name in names if name.startswith("tests/") or name.endswith((".so", ".c", ".pyc"))]


@pytest.mark.slow
def test_the_wheel_serves_every_python_from_3_11_and_has_all_files(archives: tuple[Path, Path], tmp_path: Path) -> None:
    wheel = archives[1]
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-cp311-abi3-{platform}.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        archive.extractall(tmp_path)
    (facts,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    page = f"{facts.removesuffix('.dist-info')}.data/data/share/man/man1/alltrace.1"
    compiled = {f"alltrace/core/{name}.abi3.so" for name in ("intervals", "cython_shared")}
    meta = {
        f"{facts}/{name}"
        for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE")
    }
    assert names == _SOURCE_FILES | meta | compiled | {page}
    for name in (
        "py.typed",
        "core/intervals.pyi",
        "capture/scripts/templates/slurm.sh.jinja",
        "ui/static/index.html",
        "ui/static/main.js",
    ):
        assert f"alltrace/{name}" in names
    imported = (
        "import sys; sys.path.insert(0, sys.argv[1]); from alltrace.core import intervals; print(intervals.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", imported, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(tmp_path / "alltrace/core/intervals.abi3.so")


@pytest.mark.slow
def test_the_line_that_the_documents_install_a_wheel_with_installs_it(
    archives: tuple[Path, Path], tmp_path: Path
) -> None:
    page = (_PROJECT / "docs" / "start.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("pip install") and ".whl" in line]
    shutil.copy(archives[1], tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    (packages,) = (tmp_path / "env" / "lib").glob("*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():  # what it needs is here already
        if "alltrace" not in path.name and not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    environment = {**os.environ, "PATH": f"{tmp_path / 'env' / 'bin'}:{os.environ['PATH']}", "PIP_NO_INDEX": "1"}
    subprocess.run(["bash", "-ec", line], cwd=tmp_path, env=environment, check=True, capture_output=True)
    # the archive has one compiled module, to save time, so nothing is analyzed here
    programs = tmp_path / "env" / "bin"
    assert (
        "diagnose"
        in subprocess.run([programs / "alltrace", "--help"], check=True, capture_output=True, text=True).stdout
    )
    imported = (
        "import alltrace.core.intervals as i; from alltrace.mcp.skill import skill_text as t; print(i.__file__,"
        " t()[:3])"
    )
    done = subprocess.run([programs / "python", "-I", "-c", imported], check=True, capture_output=True, text=True)
    assert str(tmp_path) in done.stdout
    assert done.stdout.endswith("---\n")
