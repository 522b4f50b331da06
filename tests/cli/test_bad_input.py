"""What is not a report, or half of one, is one sentence on standard error and an exit code."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from alltrace.synth import write_run


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_run("tiny", folder, ideal=True)
    return folder / "tiny_rank0.sqlite"


def cut(pages, more=0):
    return lambda path, whole: path.write_bytes(whole[: pages * 1024 + more])


def something_else(path, _whole):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE songs (title TEXT)")


def text_for_a_number(path, whole):
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid >= 7")


def zeroed_page(path, whole):
    path.write_bytes(whole[:4096] + bytes(1024) + whole[5120:])


DAMAGED = {
    "zero bytes": (lambda path, _: path.write_bytes(b""), r"is empty \(0 bytes\)"),
    "cut in the header": (cut(0, 50), "cut short|broken"),
    "cut after the header": (cut(0, 100), "cut short"),
    "cut after a page": (cut(1), "cut short"),
    "cut at a page": (cut(7), "cut short"),
    "cut within a page": (cut(20, 511), "cut short"),
    "cut in the last page": (lambda path, whole: path.write_bytes(whole[:-1]), "cut short"),
    "zeros": (lambda path, _: path.write_bytes(bytes(5000)), "starts with zeros"),
    "text": (lambda path, _: path.write_text("kernel,start\n"), "is not an SQLite database"),
    "something else": (something_else, r"an SQLite database of something else \(tables: songs\)"),
    "text for a number": (text_for_a_number, "start"),
    "no table": (lambda path, _: sqlite3.connect(path).execute("VACUUM").connection.close(), "empty|without tables"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", DAMAGED)
@pytest.mark.parametrize("verb", [["kernels"], ["info"], ["import", "-o", "run"]])
def test_a_damaged_report(alltrace, report, tmp_path, kind, verb):
    damage, found = DAMAGED[kind]
    path = tmp_path / "bad.sqlite"
    damage(path, report.read_bytes())
    done = alltrace(*verb, path, "--jobs", "1")
    assert (done.code, done.out) == (3, "")
    assert re.fullmatch(rf"alltrace: {path}: .*({found}).*\n", done.err)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_report_beside_a_good_one(alltrace, report, tmp_path, kind):
    folder = tmp_path / "reports"
    folder.mkdir()
    shutil.copy(report, folder)
    DAMAGED[kind][0](folder / "bad.sqlite", report.read_bytes())
    done = alltrace("kernels", folder, "--format", "csv", "--jobs", "1")
    assert done.code == 0
    assert "gemm" in done.out
    assert str(folder / "bad.sqlite") in done.err
    strict = alltrace("kernels", folder, "--strict", "--jobs", "1")
    assert (strict.code, strict.out) == (4, "")
    assert re.fullmatch(rf"alltrace: {folder}/bad\.sqlite: .*\n", strict.err)
    fresh = alltrace("import", folder, "-o", tmp_path / "run", "--strict", "--jobs", "1")
    assert (fresh.code, fresh.out) == (4, "")


@pytest.mark.parametrize("start", range(0, 30, 3))
def test_a_report_with_a_page_of_zeros_never_crashes(alltrace, report, tmp_path, start):
    whole = report.read_bytes()
    path = tmp_path / "bad.sqlite"
    path.write_bytes(whole[: start * 1024] + bytes(1024) + whole[start * 1024 + 1024 :])
    done = alltrace("info", path, "--format", "json", "--jobs", "1")
    assert done.code in (0, 3)
    if done.code == 3:
        assert done.out == ""
        assert re.fullmatch(rf"alltrace: {path}: .*\n", done.err)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda p: p.mkdir(), "no report in it; expected an Nsight Systems report"),
        (lambda p: [p.mkdir(), (p / "readme.txt").write_text("x")], "no report in it"),
        (lambda p: None, "there is no such file or folder"),
        (lambda p: p.write_text("x"), "the format is not supported"),
        (os.mkfifo, "."),
    ],
)
def test_what_holds_no_report(alltrace, tmp_path, make, found):
    place = tmp_path / "in.txt"
    make(place)
    done = alltrace("info", place)
    assert (done.code, done.out) == (3, "")
    assert re.fullmatch(rf"alltrace: {place}: .*{found}.*\n", done.err)


@pytest.mark.parametrize(
    "text", ["x" * 5000, "a\0b", "a\nb", "no*thing", "nothing[1", "x" * 300 + "*", "://", "memory://none"]
)
def test_any_text_for_a_run(alltrace, text):
    done = alltrace("info", text)
    assert (done.code, done.out) == (3, "")
    assert re.fullmatch(r"alltrace: .*\n", done.err)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_report_that_may_not_be_read(alltrace, report, tmp_path):
    path = shutil.copy(report, tmp_path)
    path.chmod(0)
    done = alltrace("info", path)
    assert (done.code, done.out) == (3, "")
    assert "may not be read; ask its owner" in done.err


def test_permission_denied_below_is_a_sentence(alltrace, report, tmp_path, monkeypatch):
    """As root may read everything, the system's refusal is played."""
    real = os.open

    def refuse(path, *arguments, **options):
        if str(path).endswith("secret.sqlite"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    path = shutil.copy(report, tmp_path / "secret.sqlite")
    monkeypatch.setattr(os, "open", refuse)
    done = alltrace("info", path, "--jobs", "1")
    assert (done.code, done.out) == (3, "")
    assert "may not be read; ask its owner for permission" in done.err


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (["nothing"], 2),
        (["info"], 2),
        (["info", "--nothing", "x"], 2),
        (["info", "x", "--format", "xml"], 2),
        (["info", "x", "--jobs", "many"], 2),
        (["info", "/nowhere/at/all"], 3),
        (["recipe", "kernels", "x", "--nothing"], 2),
        (["stats", "cuda_gpu_kern_sum"], 2),
    ],
)
def test_real_processes_write_one_sentence(line, code):
    done = subprocess.run([sys.executable, "-m", "alltrace", *line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert re.fullmatch(r"alltrace: .*\n", done.stderr)


def test_a_non_utf8_path_is_shown_escaped(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.sqlite"
    done = subprocess.run([sys.executable, "-m", "alltrace.cli.main", "info", path], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (3, b"")
    assert rb"caf\udce9.sqlite: there is no such file" in done.stderr


def test_reports_below_a_path_that_is_no_utf8_are_answered(report, tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    Path(os.fsdecode(folder)).mkdir()
    shutil.copy(os.fsencode(report), folder)
    command = [
        sys.executable,
        "-m",
        "alltrace.cli.main",
        "info",
        folder,
        "--format",
        "json",
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"tiny_rank0.sqlite" in done.stdout
    done.stdout.decode()


def test_secrets_are_in_no_answer(alltrace, tmp_path):
    truth = write_run("tiny", tmp_path / "in", secrets=True, ideal=True)
    for verb in (["info", "--format", "json"], ["info"], ["kernels"], ["sql", "select value from names"]):
        done = alltrace(verb[0], tmp_path / "in", *verb[1:], "--jobs", "1")
        assert done.code == 0
        assert not any(s in done.out + done.err for s in truth.secrets)


def test_the_package_and_the_help_are_light():
    heavy = "{'numpy', 'pyarrow', 'duckdb', 'rich', 'fsspec', 'pandas', 'xxhash'}"
    for code in ("import alltrace", "import alltrace.cli.main as m; m.main(['--help'])"):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; {code}; print(sorted({heavy} & set(sys.modules)))"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == "[]"


def closed(arguments, *redirects, timeout=60):
    command = f'exec "$@" {" ".join(redirects)}'
    words = ["sh", "-c", command, "sh", sys.executable, "-m", "alltrace.cli.main", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arguments", [["info", "RUN"], ["kernels", "RUN", "--format", "csv"], ["--version"]])
def test_a_closed_output_is_told_and_an_answer_in_a_file_needs_none(run, tmp_path, arguments):
    arguments = [str(run) if a == "RUN" else a for a in arguments]
    done = closed(arguments, ">&-")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("alltrace: standard output is closed")
    assert closed(arguments, ">&-", "2>&-").returncode == 3
    if "RUN" in arguments:
        assert closed([*arguments, "-o", tmp_path / "out"], ">&-").returncode == 0
        assert (tmp_path / "out").stat().st_size


def test_too_little_address_space_is_a_sentence(run):
    for limit in (300_000, 350_000):  # with less, libraries end the process themselves
        done = subprocess.run(
            [
                "sh",
                "-c",
                f'ulimit -v {limit}; exec "$@"',
                "sh",
                sys.executable,
                "-m",
                "alltrace.cli.main",
                "kernels",
                str(run),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 3)


def test_pipes_are_never_read(alltrace, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for arguments in (["info", tmp_path / "pipe"], ["logs", "nccl", tmp_path / "pipe"]):
        done = alltrace(*arguments)
        assert (done.code, "it is not a regular file" in done.err) == (3, True)
    os.mkfifo(tmp_path / "x.sqlite")
    done = alltrace("info", tmp_path)
    assert (done.code, "Traceback" in done.err) == (3, False)
