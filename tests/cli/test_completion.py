"""What real shells complete, by the scripts that the command line's parsers make."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from alltrace.cli import completion
from alltrace.cli.main import main
from alltrace.cli.registry import CAPTURE_VERBS, VERBS

TYPED = {
    "di": {"diagnose", "diff"},
    "diagnose run --format c": {"cards", "csv"},
    "diagnose --uni": {"--units"},
    "capture e": {"exec"},
    "capture exec --profiler-": {"--profiler-arg"},
    "recipe kernel-": {"kernel-counters", "kernel-origins", "kernel-sequences"},
    "recipe kernels run --names s": {"short"},
    "recipe kernels --by": {"--by-rank"},
    "stats nvtx_pushpop_t": {"nvtx_pushpop_trace"},
    "export pa": {"paraver", "parquet"},
    "logs tr": {"training"},
    "logs nccl file --vie": {"--view"},
    "completion f": {"fish"},
    "--versio": {"--version"},
}
BASH = """
source "$0"
while IFS= read -r line; do
  COMP_WORDS=(alltrace $line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
  _alltrace; echo "${COMPREPLY[@]}"
done
"""
# as zsh calls functions of bash
ZSH = BASH.replace('source "$0"', 'source "$SCRIPT"; emulate -L ksh').replace("$line)", "${(s: :)line})")
FISH = """
source $argv[1]
while read -l line
  echo (complete -C "alltrace $line" | string replace -r '\\t.*' '')
end
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(completion.script(shell))
    return folder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_real_shell_completes_what_is_typed(shell, scripts, tmp_path):
    program = os.environ.get(f"ALLTRACE_{shell.upper()}") or shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    script = str(scripts / shell)
    command = {
        "bash": [program, "--norc", "-c", BASH, script],
        "zsh": [program, "-f", "-c", ZSH],
        "fish": [program, "-N", "-c", FISH, script],
    }[shell]
    environment = {**os.environ, "HOME": str(tmp_path), "SCRIPT": script}
    typed = "".join(f"{line}\n" for line in TYPED)
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, timeout=60, check=True, env=environment, cwd=tmp_path
    )
    said = [set(line.split()) for line in done.stdout.splitlines()]
    if shell == "zsh":  # leaves out what begins otherwise after it has asked
        said = [{w for w in words if w.startswith(line.split()[-1])} for words, line in zip(said, TYPED, strict=True)]
    assert dict(zip(TYPED, said, strict=True)) == TYPED


def test_every_verb_and_option_can_be_completed():
    found = {c.path: c for c in completion.commands()}
    assert set(found[()].words) == {v.name for v in VERBS}
    assert {p[1] for p in found if p[:1] == ("capture",) and len(p) == 2} == {v.name for v in CAPTURE_VERBS}
    assert all(not o.choices or o.takes_value for c in found.values() for o in c.options)


@pytest.mark.parametrize("verb", ["diagnose", "import", "ui", "export", "recipe"])
def test_the_options_are_those_of_the_help(verb, capsys):
    assert main([verb, "--help"]) == 0
    helped = set(re.findall(r"(?<=[ \[])--?[a-zA-Z][a-z-]*", capsys.readouterr().out.partition("example:")[0]))
    found = next(c for c in completion.commands() if c.path == (verb,))
    flags = {f for option in found.options for f in option.flags}
    assert flags <= helped


def test_text_with_quotes_stays_text():
    assert completion._fish_text("a'b\\c") == "'a\\'b\\\\c'"


def test_the_verb_prints_the_script(capsys):
    assert main(["completion", "fish"]) == 0
    assert capsys.readouterr().out == completion.script("fish")
    assert main(["completion", "csh"]) == 2
    assert "csh" in capsys.readouterr().err
