import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.capture.scripts import settings as module
from alltrace.capture.scripts.settings import SETTINGS, Job, flatten, parse_assignment, read_job
from alltrace.trace.errors import InputError, UsageError


def test_every_default_is_one_that_the_setting_may_have():
    for setting in SETTINGS:
        assert module.checked(setting, setting.default) == setting.default, setting.name
    assert len({s.name for s in SETTINGS}) == len(SETTINGS)
    assert all(s.help and not s.help.endswith(".") for s in SETTINGS)


def test_a_job_is_the_same_after_it_was_written_and_read(tmp_path):
    values = {
        "job.nodes": 4,
        "job.setup": "module load cuda\nulimit -l unlimited\n",
        "workload.command": ["./a b", 'say "hi"', "two\nlines", "\\", "é😀", ""],
        "environment": {"A": "x y", "B_1": "$HOME"},
        "kubernetes.nodes": {"gpu.kind/x": "h100"},
        "profiler.gpu_metrics": True,
    }
    path = tmp_path / "job.toml"
    path.write_text(Job(values).as_toml(), encoding="utf-8")
    read = Job(read_job(path))
    assert read.as_toml() == Job(values).as_toml()
    assert read.words("workload.command") == values["workload.command"]
    assert read.table("environment") == values["environment"]
    assert (read.number("job.nodes"), read.world_size, read.flag("profiler.gpu_metrics")) == (4, 32, True)
    assert all(s.help in path.read_text(encoding="utf-8") for s in SETTINGS)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_any_words_come_through_toml(words):
    document = module.tomllib.loads(Job({"workload.command": words}).as_toml())
    assert flatten(document)["workload.command"] == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[job]\nnods = 2", "unknown setting 'job.nods'; did you mean job.nodes"),
        ("[jobs]\nnodes = 2", "unknown section 'jobs'; did you mean job"),
        ("nodes = 2", "unknown section 'nodes'"),
        ("[job]\npartition = 'x'", "unknown setting 'job.partition'; did you mean slurm.partition"),
        ("[job]\nnodes = 0", "job.nodes is 0; expected a whole number of 1 or more"),
        ("[job]\nnodes = true", "job.nodes is True; expected a whole number"),
        ("[job]\nnodes = '2'", "job.nodes is '2'; expected a whole number"),
        ("[job]\nname = 'My Job'", "job.name is 'My Job'; expected up to 40 small letters"),
        ('[job]\noutput = "a\\nb"', r"job.output is 'a\nb'; expected"),
        ("[workload]\ncommand = 'python x'", "workload.command is 'python x'; expected a list of text"),
        (
            "[workload]\nkind = 'nccl'",
            "workload.kind is 'nccl'; expected one of command, nccl-tests, fsdp, megatron, nemo",
        ),
        ("[profiler]\nsteps = '70'", "profiler.steps is '70'; expected the first step and the one after the last"),
        ("[profiler]\nranks = 'some'", "profiler.ranks is 'some'; expected 0-7,64, first-local or all"),
        ("[environment]\n'A-B' = 'x'", "environment.A-B is 'A-B'; expected the name of a variable"),
        ("[environment]\nA = true", "environment.A is True; expected text"),
        ("[upload]\nurl = 's3://b/$(id)'", "expected a URL such as s3://bucket/folder"),
        ("[slurm]\npartition = 'a b'", "slurm.partition is 'a b'; expected letters"),
        ("[profiler]\ndelay = 0", "profiler.delay is '0'; expected a number of seconds greater than 0"),
        ("[profiler]\nduration = '0.00'", "expected a number of seconds greater than 0"),
        ("a = " + "[" * 100_000, "it is not valid TOML"),
        ("a = " + "1" * 5000, "it is not valid TOML"),
        ("job = 3", "job is 3; expected a table: [job]"),
        ("[job\n", "it is not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_the_file(tmp_path, text, said):
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_job(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="it cannot be read"):
        read_job(tmp_path / "no.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="it is not valid TOML"):
        read_job(tmp_path / "b.toml")


def test_assignments_windows_and_other_values():
    assert parse_assignment("job.nodes=4") == ("job.nodes", 4)
    assert parse_assignment("slurm.exclusive=false") == ("slurm.exclusive", False)
    assert parse_assignment('workload.arguments=["a", "b c"]') == ("workload.arguments", ["a", "b c"])
    assert parse_assignment("workload.arguments=--x=1") == ("workload.arguments", ["--x=1"])
    assert parse_assignment("profiler.ranks=0-7") == ("profiler.ranks", "0-7")
    assert parse_assignment("environment.A=b=c") == ("environment.A", "b=c")
    for text, said in (
        ("nodes=4", "expected SECTION.KEY=VALUE"),
        ("job.nodes", "expected SECTION.KEY=VALUE"),
        ("job.nods=1", "did you mean job.nodes"),
    ):
        with pytest.raises(UsageError, match=said):
            parse_assignment(text)
    with pytest.raises(UsageError, match="contains no step"):
        Job({"profiler.steps": "5:5"})
    job = Job({"job.nodes": 3})
    assert job.having(job__nodes=5).number("job.nodes") == 5
    assert job.number("job.nodes") == 3
