"""The files of a release: versions agree, workflows run what the project has, shell in them and the image are clean."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tools import release_notes

import alltrace
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
    text = "# Changelog\n\n## [Unreleased]\n\n## [2.0.0] - 2030-01-01\n\n### Added\n\n- two\n\n## [1.0.0] - 2029-01-01\n\n- one\n"
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
        done = subprocess.run([checker, "-s", "bash", tmp_path / "step.sh"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_clean_and_has_a_user_of_its_own():
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if not linter:
        pytest.skip("no hadolint for this machine")
    done = subprocess.run([linter, ROOT / "packaging/container/Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(r"^USER 1000$", (ROOT / "packaging/container/Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_action_judges_a_run_and_writes_the_report(tmp_path):
    step = next(s for s in read("action.yml")["runs"]["steps"] if s.get("id") == "check")
    (tmp_path / "alltrace" / "bin").mkdir(parents=True)
    program = tmp_path / "alltrace" / "bin" / "alltrace"
    starts = "import sys; from alltrace.cli.main import main; sys.exit(main())"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{starts}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    write_run("tiny", tmp_path / "reports", ideal=True)
    names = {"RUNNER_TEMP": tmp_path, "GITHUB_OUTPUT": tmp_path / "output", "GITHUB_STEP_SUMMARY": tmp_path / "summary"}
    names |= {"RUN": tmp_path / "reports", "BUDGET": tmp_path / "budget.toml", "BASELINE": "", "ALLTRACE_CACHE_DIR": tmp_path / "c"}
    for limit, code in (("step_ns.median <= 1", 1), ("step_ns.median >= 1", 0), ("nonsense", 2)):
        (tmp_path / "budget.toml").write_text(f'limits = ["{limit}"]\n', encoding="utf-8")
        command = ["bash", "-eo", "pipefail", "-c", step["run"]]
        environment = {"PATH": "/usr/bin:/bin", **{k: str(v) for k, v in names.items()}}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    summary = (tmp_path / "summary").read_text(encoding="utf-8")
    assert "breached" in summary
    assert "## What costs time" in summary
