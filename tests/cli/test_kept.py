from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import HAND_MADE, MS
from tests.making import kernel, make_run

from alltrace.cli import kept
from alltrace.recipes import ask as asking

STATS = ("stats", "cuda_gpu_kern_sum")


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    """The runs of these tests are younger than what is kept otherwise."""
    monkeypatch.setattr(kept, "_SETTLED_NS", -(1 << 62))


@pytest.fixture
def answers(tmp_path):
    """The files of the answers kept so far."""
    return lambda: sorted((tmp_path / "cache" / "answers").glob("*"))


@pytest.fixture
def worked(monkeypatch):
    """The names of the recipes that were worked out, rather than found."""
    found = []
    real = asking.ask

    def ask(run, recipe, *args, **kwargs):
        found.append(recipe.name)
        return real(run, recipe, *args, **kwargs)

    monkeypatch.setattr(asking, "ask", ask)
    return found


@pytest.mark.parametrize("form", ["table", "csv", "json", "md"])
@pytest.mark.parametrize("verb", [STATS, ("recipe", "kernels")])
def test_the_same_question_is_worked_out_once(alltrace, run, worked, verb, form):
    first = alltrace(*verb, run, "--format", form)
    assert first.code == 0
    assert first.out
    assert "rank 2: no report" in (first.err if form == "csv" else first.out)
    assert alltrace(*verb, run, "--format", form) == first
    assert len(worked) == 1


def test_another_question_is_another_answer(alltrace, run, worked):
    seen = {
        alltrace(*STATS, run, *more).out for more in ([], ["--by-rank"], ["--limit", "1"], ["--ranks", "0"], ["--format", "md"])
    }
    assert len(seen) == len(worked) == 5
    alltrace("stats", "cuda_gpu_kern_sum:base", run)
    assert len(worked) == 6


def test_the_run_may_be_called_by_any_name(alltrace, run, worked, tmp_path):
    first = alltrace(*STATS, run)
    (tmp_path / "link").symlink_to(run)
    assert alltrace(*STATS, str(tmp_path / "link")) == alltrace(*STATS, "../run/") == first
    assert len(worked) == 1


def test_a_run_made_anew_is_asked_anew(alltrace, run, worked):
    first = alltrace(*STATS, run, "--format", "csv")
    shutil.rmtree(run)
    make_run(Path(run), {0: {"kernels": [kernel(0, 5 * MS)]}})
    second = alltrace(*STATS, run, "--format", "csv")
    assert second.out != first.out
    assert "5000000" in second.out
    assert len(worked) == 2


@pytest.mark.parametrize("name", ["manifest.json", "names.parquet", "ranks/rank=1/kernels.parquet"])
def test_any_file_of_the_run_counts(alltrace, run, worked, name):
    alltrace(*STATS, run)
    whole = (Path(run) / name).read_bytes()
    (Path(run) / name).write_bytes(whole)
    alltrace(*STATS, run)
    assert len(worked) == 2


def test_an_alignment_counts(alltrace, run, worked):
    alltrace(*STATS, run)
    assert alltrace("recipe", "collectives", run).code == 0
    alltrace(*STATS, run)
    assert worked.count("cuda_gpu_kern_sum") == 1 + (Path(run) / "align").is_dir()


def test_a_damaged_run_is_not_answered_from_before(alltrace, run):
    assert alltrace(*STATS, run).code == 0
    (Path(run) / "ranks/rank=0/kernels.parquet").write_bytes(b"PAR1")
    assert alltrace(*STATS, run).code == 3


def test_another_version_answers_anew(alltrace, run, worked, monkeypatch):
    alltrace(*STATS, run)
    monkeypatch.setattr(kept, "__version__", "99")
    alltrace(*STATS, run)
    assert len(worked) == 2


def test_other_code_of_the_same_version_answers_anew(alltrace, run, worked, monkeypatch, tmp_path):
    module = tmp_path / "package" / "cli" / "kept.py"
    module.parent.mkdir(parents=True)
    module.write_text("1")
    monkeypatch.setattr(kept, "__file__", str(module))
    for content, times in ("1", 1), ("1", 1), ("2", 2):
        if module.read_text() != content:
            module.write_text(content)
        alltrace(*STATS, run)
        assert len(worked) == times


def test_kernel_rules_are_read_each_time(alltrace, run, answers, tmp_path):
    rules = tmp_path / "rules"
    rules.write_text("compute other.*\n")
    assert "other kernel rules" in alltrace(*STATS, run, "--kernel-rules", rules).err
    alltrace(*STATS, run)
    rules.write_text("communication gemm.*\n")
    assert alltrace(*STATS, run, "--kernel-rules", rules).code == 2
    assert len(answers()) == 1


def test_no_kept_answer_where_none_is_wanted(alltrace, run, worked, answers):
    first = alltrace(*STATS, run, "--no-kept")
    assert answers() == []
    assert alltrace(*STATS, run, "--no-kept") == first
    assert len(worked) == 2


def test_what_is_no_text_on_standard_output_is_not_kept(alltrace, run, answers, tmp_path):
    for more in (
        ["-o", tmp_path / "a.csv"],
        ["--format", "parquet", "-o", tmp_path / "a.parquet"],
        ["--picture", tmp_path / "a.svg"],
    ):
        assert alltrace(*STATS, run, *more).code == 0
    assert alltrace("recipe", "kernels", run, "-o", f"{tmp_path}/folder/").code == 0
    assert answers() == []


def test_errors_are_not_kept(alltrace, run, answers):
    assert alltrace(*STATS, run, "--ranks", "9").code == 2
    assert answers() == []


def test_reports_are_not_a_run(alltrace, run, tmp_path):
    (tmp_path / "reports").mkdir()
    assert kept.question(["stats", "nvtx_sum", str(tmp_path / "reports")]) is None
    assert kept.question(["stats", "nvtx_sum", run, run]) is not None
    make_run(tmp_path / "other", HAND_MADE)
    assert kept.question(["stats", "nvtx_sum", run, str(tmp_path / "other")]) is None
    assert kept.question(["info", run]) is None
    assert kept.question([]) is None


def test_the_cache_folder_that_is_given_is_used(alltrace, run, worked, answers, tmp_path):
    for more in (["--cache-dir", tmp_path / "mine"], [f"--cache-dir={tmp_path / 'mine'}"]):
        for _ in range(2):
            alltrace(*STATS, run, *more)
    assert len(worked) == len(list((tmp_path / "mine" / "answers").glob("*"))) == 2
    assert answers() == []


def test_a_cache_that_cannot_be_written_keeps_nothing(alltrace, run, worked, tmp_path):
    (tmp_path / "cache").write_text("a file")
    first = alltrace(*STATS, run)
    assert (first.code, first.err) == (0, "")
    assert alltrace(*STATS, run) == first
    assert len(worked) == 2


@pytest.mark.parametrize(
    "damage", [b"", b"alltrace answer 1 3 x 4\n", b"alltrace answer 1 0 9 0\nan answer", b"something else\n\xff"]
)
def test_a_damaged_answer_is_worked_out_again(alltrace, run, worked, answers, damage):
    first = alltrace(*STATS, run)
    (file,) = answers()
    whole = file.read_bytes()
    for broken in (damage, whole[:-1], whole + b"x"):
        file.write_bytes(broken)
        assert alltrace(*STATS, run) == first
        assert file.read_bytes() == whole
    assert len(worked) == 4


def test_long_answers_are_not_kept(alltrace, run, worked, answers, monkeypatch):
    monkeypatch.setattr(kept, "MOST_BYTES", 40)
    first = alltrace(*STATS, run)
    assert len(first.out) > 40
    assert answers() == []
    assert alltrace(*STATS, run) == first
    assert len(worked) == 2


def test_the_answer_used_longest_ago_goes_first(alltrace, run, worked, answers, monkeypatch):
    alltrace(*STATS, run)
    alltrace(*STATS, run, "--by-rank")
    for age, file in enumerate(answers()):
        os.utime(file, (age, age))
    alltrace(*STATS, run)  # used again
    monkeypatch.setattr(kept, "MOST_KEPT_BYTES", 2 * answers()[0].stat().st_size)
    alltrace(*STATS, run, "--limit", "1")
    assert len(worked) == 3
    alltrace(*STATS, run)
    assert len(worked) == 3
    alltrace(*STATS, run, "--by-rank")
    assert len(worked) == 4


def test_a_run_that_was_just_written_is_not_kept(alltrace, run, worked, answers, monkeypatch):
    monkeypatch.setattr(kept, "_SETTLED_NS", 3600 * 10**9)
    alltrace(*STATS, run)
    assert answers() == []


def test_a_run_that_changes_meanwhile_is_not_kept(alltrace, run, answers, monkeypatch):
    real = asking.ask

    def ask(*args, **kwargs):
        (Path(run) / "another").write_text("")
        return real(*args, **kwargs)

    monkeypatch.setattr(asking, "ask", ask)
    assert alltrace(*STATS, run).code == 0
    assert answers() == []


def test_a_run_of_too_many_files_is_not_looked_through(alltrace, run, answers, monkeypatch):
    monkeypatch.setattr(kept, "_MOST_FILES", 3)
    assert alltrace(*STATS, run).code == 0
    assert answers() == []


def test_the_width_of_the_terminal_counts(run, monkeypatch):
    def at(columns):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: columns is not None, raising=False)
        monkeypatch.setattr(sys.stdout, "fileno", lambda: 1, raising=False)
        monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 20)))
        return kept.question([*STATS, run])._state

    assert len({at(None), at(80), at(120)}) == 3
    assert at(80) == at(80)


def test_two_processes_at_once(run, tmp_path):
    code = (
        "import sys; from alltrace.cli import kept; kept._SETTLED_NS = -(1 << 62); from alltrace.cli.main import main;"
        f"sys.exit(max(main(['stats', 'cuda_gpu_kern_sum', {run!r}, '--format', 'csv']) for _ in range(3)))"
    )
    environment = {**os.environ, "ALLTRACE_CACHE_DIR": str(tmp_path / "cache")}
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = {p.communicate()[0] for p in both}
    assert [p.returncode for p in both] == [0, 0]
    assert len(outputs) == 1
    assert len(list((tmp_path / "cache" / "answers").iterdir())) == 1


def test_a_kept_answer_loads_no_data_library(alltrace, run, tmp_path):
    first = alltrace(*STATS, run, "--format", "csv")
    code = (
        f"import sys; from alltrace.cli.main import main; main({[*STATS, run, '--format', 'csv']!r});"
        "print(sorted({'numpy', 'pyarrow', 'argparse', 'dataclasses', 'pathlib', 'json'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=_with_paths(tmp_path))
    assert done.stdout == f"{first.out}[]\n"


def _with_paths(tmp_path):
    """An environment in which Python finds the packages without looking at what is installed, which loads modules of its own."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "ALLTRACE_CACHE_DIR": str(tmp_path / "cache")}
