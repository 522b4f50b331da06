"""What real shells complete, by the scripts that the command line's parsers make."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from alltrace.cli.main import main
from alltrace.cli.registry import CAPTURE_VERBS, VERBS
from alltrace.cli.verbs import completion

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
  COMP_WORDS=(alltrace $line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); COMP_LINE="alltrace $line"
  _shtab_alltrace alltrace "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null; echo "${COMPREPLY[@]}"
done
"""
FISH = """
source $argv[1]
while read -l line
  echo (complete -C "alltrace $line" | string replace -r '\\t.*' '')
end
"""
# what a widget would insert is written down instead, as the words are handed over for it
ZSH = r"""
source $SCRIPT
_listed() {
  compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
    local -a hits; builtin compadd -A hits "$@"; print -rn -- "$hits " >>$SAID
    builtin compadd "$@"
  }
  _main_complete
  compstate[insert]= compstate[list]=
  print >>$SAID
}
zle -C listed complete-word _listed
bindkey '^T' listed
print >>$SAID
"""


def zsh_completes(program, folder, script):
    """What zsh offers for each line that is typed at its prompt."""
    said = folder / "said"
    (folder / "listing.zsh").write_text(ZSH)
    said.touch()
    os.environ.update(SAID=str(said), SCRIPT=str(script))
    process, terminal = pty.fork()
    if process == 0:
        os.execv(program, [program, "-f", "-i"])
    lines = [f"source {folder}/listing.zsh\n", *(f"\x15alltrace {line}\x14" for line in TYPED)]
    for number, line in enumerate(lines, 1):
        os.write(terminal, line.encode())
        until = time.monotonic() + 30
        while said.read_text().count("\n") < number:
            assert time.monotonic() < until, line
            if select.select([terminal], [], [], 0.05)[0]:
                os.read(terminal, 1 << 16)
    os.close(terminal)
    os.waitpid(process, 0)
    return said.read_text().splitlines()[1:]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(completion.script(shell))
    return folder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_real_shell_completes_what_is_typed(shell, scripts, tmp_path, monkeypatch):
    program = os.environ.get(f"ALLTRACE_{shell.upper()}") or shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    if shell == "zsh":
        said = zsh_completes(program, tmp_path, scripts / shell)
    else:
        command = [program, *(["--norc", "-c", BASH] if shell == "bash" else ["-N", "-c", FISH]), str(scripts / shell)]
        typed = "".join(f"{line}\n" for line in TYPED)
        done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=60, check=True)
        said = done.stdout.splitlines()
    assert {line: set(words.split()) for line, words in zip(TYPED, said, strict=True)} == TYPED


@pytest.mark.parametrize(
    "verb", [("diagnose",), ("import",), ("ui",), ("export",), ("recipe", "kernels"), ("capture", "exec")]
)
def test_the_options_are_those_of_the_help(verb, scripts, capsys):
    assert main([*verb, "--help"]) == 0
    text = capsys.readouterr().out
    if "--help-all" in text:
        assert main([*verb, "--help-all"]) == 0
        text = capsys.readouterr().out
    helped = set(re.findall(r"(?<=[ \[])--?[a-zA-Z][a-z-]*", text.partition("example:")[0]))
    pattern = rf"_shtab_alltrace_{'_'.join(verb)}_option_strings=\((.*?)\)"
    flags = set(re.search(pattern, (scripts / "bash").read_text())[1].split())
    assert flags - {"--show-sql"} <= helped
    assert len(flags) > 5


def test_every_verb_can_be_completed(scripts):
    text = (scripts / "bash").read_text()
    for name, verbs in (("", VERBS), ("_capture", CAPTURE_VERBS)):
        words = re.search(rf"_shtab_alltrace{name}_subparsers=\((.*?)\)", text)[1].split()
        assert words == [v.name for v in verbs]


def test_the_verb_prints_the_script(capsys):
    assert main(["completion", "fish"]) == 0
    assert capsys.readouterr().out == completion.script("fish")
    assert main(["completion", "csh"]) == 2
    assert "csh" in capsys.readouterr().err
