"""The files of a release: versions agree, workflows run what the project has, shell in them and the image are clean."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from tools import release, release_notes

import alltrace
from alltrace.capture.scripts.registry import render
from alltrace.capture.scripts.settings import Job
from alltrace.synth import write_run

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_all_files_name_one_version():
    version = PROJECT["version"]
    assert alltrace.__version__ == version
    assert read("CITATION.cff")["version"] == version
    assert read("packaging/conda/recipe.yaml")["context"]["version"] == version
    assert release_notes.notes(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def test_notes_of_a_release_are_its_part_of_the_changelog():
    text = (
        "# Changelog\n\n## [Unreleased]\n\n## [2.0.0] - 2030-01-01\n\n### Added\n\n- two\n\n## [1.0.0] -"
        " 2029-01-01\n\n- one\n"
    )
    assert release_notes.notes("2.0.0", text) == "### Added\n\n- two\n"
    assert release_notes.notes("1.0.0", text) == "- one\n"
    with pytest.raises(SystemExit, match="no part about 3"):
        release_notes.notes("3", text)


def test_the_recipe_of_conda_needs_what_the_package_needs():
    names = {re.match(r"[\w-]+", need)[0] for need in PROJECT["dependencies"]}
    renamed = {"python-duckdb": "duckdb", "python-xxhash": "xxhash"}
    needs = {need.split()[0] for need in read("packaging/conda/recipe.yaml")["requirements"]["run"]}
    assert {renamed.get(need, need) for need in needs} - {"python"} == names


def test_the_extra_all_has_all_that_users_want():
    (everything,) = PROJECT["optional-dependencies"]["all"]
    named = set(re.search(r"\[(.*)\]", everything)[1].split(","))
    assert named == set(PROJECT["optional-dependencies"]) - {"all", "bench", "dev", "docs"}


def test_workflows_call_targets_of_make_and_every_python():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called = [t for path in WORKFLOWS for t in re.findall(r"\bmake ([a-z-]+)", path.read_text(encoding="utf-8"))]
    assert called
    assert set(called) <= targets
    matrix = read(".github/workflows/test.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert matrix[0] == PROJECT["requires-python"].removeprefix(">=")


def shell_of(steps):
    return [step["run"] for step in steps if "run" in step]


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda p: p.stem)
def test_shell_in_workflows_is_clean(path, tmp_path):
    made = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs = made["jobs"].values() if "jobs" in made else [made["runs"]]
    scripts = [script for job in jobs for script in shell_of(job["steps"])]
    checker = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    assert checker
    assert scripts or path.stem == "site"
    for script in scripts:
        # expressions of GitHub stand in the environment of a step, never in its script, where they would be run
        assert "${{" not in script
        (tmp_path / "step.sh").write_text(script, encoding="utf-8")
        done = subprocess.run(
            [checker, "-s", "bash", tmp_path / "step.sh"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_clean_and_has_a_user_of_its_own():
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if not linter:
        pytest.skip("no hadolint for this machine")
    done = subprocess.run(
        [linter, ROOT / "packaging/container/Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(
        r"^USER 1000$", (ROOT / "packaging/container/Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )


def test_the_action_judges_a_run_and_writes_the_report(tmp_path):
    step = next(s for s in read("action.yml")["runs"]["steps"] if s.get("id") == "check")
    (tmp_path / "alltrace" / "bin").mkdir(parents=True)
    program = tmp_path / "alltrace" / "bin" / "alltrace"
    starts = "import sys; from alltrace.cli.main import main; sys.exit(main())"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{starts}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    write_run("tiny", tmp_path / "reports", ideal=True)
    names = {"RUNNER_TEMP": tmp_path, "GITHUB_OUTPUT": tmp_path / "output", "GITHUB_STEP_SUMMARY": tmp_path / "summary"}
    names |= {"RUN": tmp_path / "reports", "ALLTRACE_CACHE_DIR": tmp_path / "c"}
    for limit, code in (("step_ns.median <= 1", 1), ("step_ns.median >= 1", 0), ("nonsense", 2), ("", 0)):
        (tmp_path / "budget.toml").write_text(f'limits = ["{limit}"]\n', encoding="utf-8")
        # without a budget, the baseline is the limit
        names |= (
            {"BUDGET": tmp_path / "budget.toml", "BASELINE": ""}
            if limit
            else {"BUDGET": "", "BASELINE": tmp_path / "reports"}
        )
        command = ["bash", "-eo", "pipefail", "-c", step["run"]]
        environment = {"PATH": "/usr/bin:/bin", **{k: str(v) for k, v in names.items()}}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    summary = (tmp_path / "summary").read_text(encoding="utf-8")
    assert "breached" in summary
    assert "The run is as fast as the baseline" in summary
    assert "## What costs time" in summary


def named_of_registries(text):
    """The packages of ours that a command would ask a registry for: neither a path nor an address, and not without an
    index."""
    for command in re.findall(r"pip3? install ([^\n`]*)", text):
        if "--no-index" not in command and "-e" not in command.split():
            yield from re.findall(r"(?<![\w./:*@-])alltrace(?:\[[\w,]+\])?(?:[=<>~]=?[\w.]+)?(?=['\"\s]|$)", command)


def test_what_a_command_asks_a_registry_for_is_recognized():
    asked = {
        "pip install alltrace": 1, "pip install 'alltrace[ui]' numpy": 1, "pip install alltrace==0.2.0": 1,
        "pip install '.[ui]'": 0,
        "pip install --no-index 'alltrace[ui]'": 0, "pip install /tmp/wheels/*.whl": 0, "pip install alltrace-*.whl": 0,
        "pip install git+https://example.org/alltrace": 0, 'pip install "$(ls alltrace-*.whl)[ui]"': 0,
    }  # fmt: skip
    assert {command: len(list(named_of_registries(command))) for command in asked} == asked


def test_nothing_asks_a_registry_for_the_package_that_it_does_not_have():
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "action.yml",
        *(ROOT / "docs").rglob("*.md"),
        *WORKFLOWS,
    ]
    pages += [path for path in (ROOT / "packaging").rglob("*") if path.is_file()]
    texts = {
        path.name: re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))
        for path in [*pages, *(ROOT / "examples").rglob("*.md")]
    }
    # an extra of a package that is installed needs no registry to know the package
    texts["start.md"] = texts["start.md"].replace(
        "Once alltrace is installed, `pip install 'alltrace[mcp]'` adds one", ""
    )
    texts |= {
        f"docker {changes}": render("docker", Job(changes)) for changes in ({}, {"image.alltrace": "git+https://x/y"})
    }
    assert {name: found for name, text in texts.items() if (found := list(named_of_registries(text)))} == {}


def test_the_generated_image_takes_a_wheel_that_is_beside_it():
    text = render("docker", Job({}))
    assert 'COPY ["alltrace-*.whl", "/tmp/wheels/"]' in text
    assert "pip install --no-cache-dir /tmp/wheels/*.whl" in text
    assert "COPY" not in render("docker", Job({"image.alltrace": "git+https://x/y"}))


def test_a_release_cuts_the_changelog_once(tmp_path):
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(
        "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [1.0.0] - 2029-01-01\n\n- one\n", encoding="utf-8"
    )
    assert release.cut("1.1.0", "2030-02-03", changelog)
    assert not release.cut("1.1.0", "2030-02-04", changelog)
    text = changelog.read_text(encoding="utf-8")
    assert text.startswith("# Changelog\n\n## [Unreleased]\n\n## [1.1.0] - 2030-02-03\n\n- new\n")
    assert release_notes.notes("1.1.0", text) == "- new\n"


def elf(machine, rest=b""):
    return b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little") + rest


def test_a_release_refuses_what_is_of_another_machine_or_needs_a_newer_glibc(tmp_path):
    x86, arm = release.ARCHITECTURES
    release.check_elf("a.so", elf(62, b"GLIBC_2.2.5 GLIBC_2.17"), x86)
    release.check_elf("a.so", elf(183), arm)
    for data, said in (
        (elf(62), "machine 62; expected 183"),
        (elf(183, b"GLIBC_2.34"), "needs glibc 2.34"),
        (b"MZ", "no ELF"),
    ):
        with pytest.raises(SystemExit, match=said):
            release.check_elf("a.so", data, arm)
    sources = {"alltrace/a.py", "alltrace/core/b.pyx"}
    release.check_source({"x/src/alltrace/a.py", "x/src/alltrace/core/b.pyx"}, sources)
    with pytest.raises(SystemExit, match=r"lacks src/alltrace/a\.py and also has src/b\.so"):
        release.check_source({"x/src/alltrace/core/b.pyx", "x/src/b.so"}, sources)
    built = {
        **dict.fromkeys(sources, b""),
        "alltrace/core/b.abi3.so": elf(62),
        "alltrace/core/cython_shared.abi3.so": elf(62),
    }
    for name, leave, add, said in (
        ("whole", (), (), None),
        ("old", (), ("alltrace/old.py",), "also has alltrace/old.py"),
        ("poor", ("alltrace/core/b.abi3.so",), (), "lacks alltrace/core/b.abi3.so"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for file, data in {**built, **dict.fromkeys(add, b"")}.items():
                if file not in leave:
                    archive.writestr(file, data)
        if said is None:
            release.check_wheel(tmp_path / name, x86, sources)
            continue
        with pytest.raises(SystemExit, match=said):
            release.check_wheel(tmp_path / name, x86, sources)


def test_a_release_says_what_it_could_not_try(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(release.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(release, "try_wheel", lambda wheel, folder: ran.append(wheel.name))
    monkeypatch.setattr(release.shutil, "which", lambda name: None)
    archives = [tmp_path / "a.tar.gz", tmp_path / "a-x86_64.whl", tmp_path / "a-aarch64.whl"]
    assert release.tried(archives, image=True) == [
        "a-x86_64.whl, since this machine is aarch64",
        "the container image, since no container daemon answers",
    ]
    assert ran == ["a-aarch64.whl"]
    assert release.tried(archives, image=False)[1] == "the container image, as asked"
    assert release.compiling_for(release.ARCHITECTURES[1])["ALLTRACE_ZIG_TARGET"] == "aarch64-linux-gnu.2.17"
