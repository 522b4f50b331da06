import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.making import kernel, make_run
from tests.together import together
from tools.make_docs import verb_options

from alltrace import __version__
from alltrace.cli import main as entry
from alltrace.cli.registry import CAPTURE_VERBS, VERBS
from alltrace.trace.errors import StrictError
from alltrace.trace.spans import RANKS_WORDS, STEPS_WORDS, WINDOW_WORDS

EVERY_VERB = pytest.mark.parametrize("verb", [v.name for v in VERBS])


def test_the_version_and_the_verbs_without_one(alltrace):
    done = alltrace()
    assert done.code == 2
    assert all(f"  {v.name} " in done.out for v in VERBS)
    assert alltrace("--help").code == 0
    for flag in ("-V", "--version"):
        done = alltrace(flag)
        assert (done.code, done.out, done.err) == (0, f"alltrace {__version__}\n", "")


@EVERY_VERB
def test_every_verb_has_help_with_an_example_that_parses(alltrace, verb):
    done = alltrace(verb, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"example:\n  alltrace {verb} " in done.out


@pytest.mark.parametrize("name", ["breakdown", "stats:cuda_gpu_kern_sum"])
def test_help_of_a_recipe_shows_its_own_options(alltrace, name):
    done = alltrace("recipe", name, "--help")
    assert done.code == 0
    assert "the question:" in done.out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["overlp"], "unknown verb 'overlp'; did you mean overlap"),
        (["overlap"], "the following arguments are required: RUN"),
        (["overlap", "RUN", "--no-such"], "unrecognized arguments: --no-such"),
        (["overlap", "RUN", "--form", "json"], "unrecognized arguments: --form"),
        (["overlap", "RUN", "--format", "xml"], "invalid choice: 'xml'"),
        (
            ["overlap", "RUN", "--limit", "-1"],
            "argument --limit/--top: it is '-1', expected a whole number of 0 or more",
        ),
        (["overlap", "RUN", "--jobs", "0"], "--jobs: it is '0', expected a whole number of 1 or more"),
        (["overlap", "RUN", "--format", "parquet"], "--format parquet is not text; give -o FILE"),
        (["sql", "RUN", "select 1", "--format", "parquet"], "--format parquet is not text; give -o FILE"),
        (["overlap", "RUN", "--format", "csv", "-o", "."], "expected the name of a file"),
        (["overlap", "RUN", "--ranks", "a"], "--ranks is 'a'; expected numbers and spans such as 0-7,64"),
        (["overlap", "RUN", "--ranks", "9"], "rank 9 is not in the run; it has 0-1"),
        (["gaps", "RUN", "--rows", "-2"], "--rows of gaps is -2; expected 0 or more"),
        (["gaps", "RUN", "--rows", "many"], "invalid int value: 'many'"),
        (["recipe"], "recipe needs a name"),
        (["recipe", "nothing", "RUN"], "unknown recipe 'nothing'"),
        (["recipe", "gaps", "RUN", "--min", "3"], "unrecognized arguments: --min"),
        (["stats"], "stats needs the name of a report"),
        (["stats", "nothing", "RUN"], "unknown stats report 'nothing'"),
        (["sql", "RUN", "drop table ranks"], "not a single statement that only reads"),
        (["synth", "--ideal", "healthy"], "synth needs a scenario and -o DIR"),
        (["synth", "--ideal", "healty", "-o", "d"], "did you mean healthy"),
        (["import", "RUN", "-o", "d", "--only", "kernel"], "unknown table for --only 'kernel'; did you mean kernels"),
    ],
)
def test_bad_usage_is_a_sentence_and_exit_code_2(alltrace, run, line, says):
    done = alltrace(*(run if a == "RUN" else a for a in line))
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("verb", ["info", "breakdown", "overlap", "kernels", "gaps"])
def test_an_input_that_cannot_be_read_is_exit_code_3(alltrace, verb, tmp_path):
    (tmp_path / "here" / "x.sqlite").write_bytes(b"SQLite format 3\0 and then nothing of it")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    for given in ("nothing-here", "x.sqlite", tmp_path / "broken"):
        done = alltrace(verb, given, "--format", "json")
        assert (done.code, done.out) == (3, ""), given
        assert Path(given).name in done.err
        assert done.err.startswith("alltrace: ")
        assert "Traceback" not in done.err


def test_a_report_that_cannot_be_read_is_noted_or_with_strict_exit_code_4(alltrace, tmp_path):
    folder = tmp_path / "here" / "reports"
    assert alltrace("synth", "--ideal", "tiny", "-o", folder).code == 0
    report = folder / "tiny_rank1.sqlite"
    report.write_bytes(report.read_bytes()[:200])
    done = alltrace("info", folder, "--format", "csv")
    assert done.code == 0
    assert "tiny_rank1.sqlite" in done.err
    assert alltrace("info", folder, "--strict", "--format", "csv").code == StrictError.exit_code == 4


def test_outputs_that_are_full_closed_or_without_unicode(run):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command("info", run), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert re.fullmatch(r"alltrace: No space left on device; .*\n", done.stderr)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command("info", run), stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    line = command("sql", run, "select '核' as c")
    done = subprocess.run(line, capture_output=True, env=environment, check=True)
    assert b"\\u6838" in done.stdout


@pytest.mark.parametrize("how", [KeyboardInterrupt(), RuntimeError("Query interrupted")])  # the latter of DuckDB
def test_an_interruption_says_that_the_import_goes_on(monkeypatch, capsys, how):
    def interrupted(arguments):
        raise how

    monkeypatch.setattr(entry, "_run", interrupted)
    assert entry.main(["info"]) == 130
    assert "continues from there" in capsys.readouterr().err


@pytest.mark.parametrize("error", [MemoryError(), SystemError("error return without exception set")])
def test_memory_that_runs_out_is_a_sentence(monkeypatch, capsys, error):
    def full(arguments):
        raise error

    monkeypatch.setattr(entry, "_run", full)
    assert entry.main(["info"]) == 3
    assert "memory ran out; select fewer ranks" in capsys.readouterr().err


def test_a_defect_is_told_from_a_breached_gate(monkeypatch, capsys):
    def fails(arguments):
        raise KeyError("a name\x1b[2J")

    monkeypatch.setattr(entry, "_run", fails)
    assert entry.main(["check"]) == 70
    *lines, last = capsys.readouterr().err.splitlines()
    assert (
        last
        == f"alltrace: alltrace {__version__} hit an internal error (KeyError); report it with the lines above and the"
        " command"
    )
    assert lines[0].startswith("Traceback")
    assert all(line.isprintable() for line in lines)


def test_help_loads_no_data_library():
    code = "import sys, alltrace.cli.main as m; m.main(['--help'])"
    code += "; print(sorted({'numpy', 'pyarrow', 'duckdb', 'rich', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def command(*arguments):
    return [sys.executable, "-m", "alltrace.cli.main", *arguments]


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("operators", "unknown verb 'operators'; it is a recipe: `alltrace recipe operators RUN`"),
        ("kernel", "unknown verb 'kernel'; did you mean kernels?"),
    ],
)
def test_a_recipe_that_is_no_verb_is_pointed_to(capsys, verb, said):
    assert entry.main([verb, "somewhere"]) == 2
    assert said in capsys.readouterr().err


def test_lists_are_in_groups_and_within_80_columns(alltrace):
    from alltrace.cli.registry import SHELVES
    from alltrace.recipes.registry import groups, names

    verbs, recipes = alltrace("--help").out, alltrace("recipe", "--list").out
    assert max(map(len, f"{recipes}{alltrace('stats', '--list').out}{verbs}".splitlines())) <= 80
    assert [line[:-1] for line in verbs.splitlines() if line.endswith(":") and line[:-1] in SHELVES] == list(SHELVES)
    assert len(SHELVES) == 4
    assert [line[:-1] for line in recipes.splitlines() if not line.startswith(" ")] == list(groups())
    listed = [line.split()[0] for line in recipes.splitlines() if line.startswith("  ") and line[2] != " "]
    assert sorted(listed) == names()


@pytest.mark.parametrize("arguments", [("overlap",), ("recipe", "launches"), ("diff",), ("recipe", "all")])
def test_the_help_shows_how_reports_are_read_only_when_asked(alltrace, arguments):
    brief, whole = alltrace(*arguments, "--help").out, alltrace(*arguments, "--help-all").out
    assert "--dask" not in brief
    assert "--help-all" in brief
    assert "--dask" in whole
    assert whole.index("--ranks LIST  ") < whole.index("--dask ADDRESS  ")


def test_the_help_of_import_shows_how_reports_are_read(alltrace):
    assert "--dask" in alltrace("import", "--help").out


def test_two_clusters_are_refused(alltrace, tmp_path):
    done = alltrace("overlap", tmp_path, "--dask", "tcp://h:1", "--slurm", "2")
    assert done.code == 2
    assert "--dask and --slurm name different clusters" in done.err


INTERRUPTS = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
from alltrace.cli.start import command
sys.argv = ["alltrace", "info", "nothing"]
command()
"""


@pytest.mark.parametrize("module", ["alltrace.cli.main", "argparse", "alltrace.cli.command", "alltrace.run.resolve"])
def test_ctrl_c_leaves_no_traceback(module):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTS.format(module=module)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (-signal.SIGINT, 130), done
    assert "Traceback" not in done.stderr


def test_an_ignored_interrupt_stays_ignored():
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);" + INTERRUPTS.format(
        module="alltrace.cli.main"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3


SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
SCRIPT = (
    "import gc, os, sys; from alltrace.cli.startup import configure_process; configure_process();assert not {'numpy',"
    " 'pyarrow'} & set(sys.modules);import pyarrow as pa; print(os.environ['OPENBLAS_NUM_THREADS'],"
    " pa.default_memory_pool().backend_name, gc.get_threshold()[0])"
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "1 system 100000"),
        ({"OPENBLAS_NUM_THREADS": "3", "ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "3 mimalloc 100000"),
    ],
)
def test_settings_of_the_user_stay(given, expected):
    environment = {k: v for k, v in os.environ.items() if k not in SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**environment, **given}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


CLOSED = "alltrace: standard output is closed; write the answer to a file with -o, or open it\n3\n"


@pytest.mark.parametrize(("output", "said"), [(">&-", CLOSED), ("| true", "0\n")])
def test_an_output_that_nobody_reads_is_no_traceback(output, said):
    command = f"{{ sleep 0.2; {sys.executable} -m alltrace.cli.main --version; echo $? >&2; }} {output}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == said


def test_a_report_of_a_run_loads_neither_filters_nor_the_importer(tmp_path):
    """Each takes as long to load as a short report takes to answer."""
    make_run(tmp_path / "run", {0: {"kernels": [kernel(0, 40)]}})
    code = (
        "import sys; from alltrace.cli.main import main; main(sys.argv[1:]);"
        "print(sorted({'alltrace.run.importer', 'alltrace.nvidia.filters'} & set(sys.modules)))"
    )
    for given, loaded in (([], "[]"), (["--filter-time", "0/1s"], "['alltrace.nvidia.filters']")):
        command = [
            sys.executable,
            "-c",
            code,
            *"nsys stats -r cuda_gpu_kern_sum".split(),
            *given,
            str(tmp_path / "run"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == loaded


COUNTS = ("synth", "demo", "capture now", "capture plan")  # how many steps and ranks there shall be
SETTINGS_OPTIONS = ("capture script",)  # refers to the settings
ASKED = [v.name for v in VERBS if v.name not in ("logs", "capture", *COUNTS)] + ["logs nccl", "logs training"]
EVERY = ASKED + [name for v in CAPTURE_VERBS if (name := f"capture {v.name}") not in (*SETTINGS_OPTIONS, *COUNTS)]
WORDS = {"--steps STEPS": STEPS_WORDS, "--ranks LIST": RANKS_WORDS, "--window WINDOW": WINDOW_WORDS}


def said():
    """The verb, the option, and its help, of every option that names steps, ranks or time."""
    return [
        (verb, option.strip("`"), text)
        for verb in EVERY
        for option, text in verb_options(verb)
        if option.strip("`").split(" ")[0] in ("--steps", "--ranks", "--window")
    ]


@together(("verb", "option", "text"), said())
def test_the_help_has_the_same_words(verb, option, text):
    assert WORDS[option] in text


def test_the_verbs_that_have_them_are_found():
    found = {(verb, option.split(" ")[0]) for verb, option, _text in said()}
    assert {("export", "--steps"), ("export", "--window"), ("logs nccl", "--steps"), ("efficiency", "--steps")} <= found
    assert {
        ("capture exec", "--steps"),
        ("capture exec", "--ranks"),
        ("diff", "--steps"),
        ("report", "--ranks"),
    } <= found
