import pytest

from alltrace.cli.main import main
from alltrace.synth import Truth
from alltrace.synth.faults import FAULTS


def test_faults_are_added_to_those_of_the_scenario(tmp_path, capsys):
    arguments = ["synth", "--ideal", "straggler", "-o", str(tmp_path), "--ranks", "4", "--steps", "2"]
    assert main([*arguments, "--fault", "missing-rank:ranks=1", "--fault", "sync:host_ns=90000"]) == 0
    truth = Truth.read(tmp_path)
    assert [fault["kind"] for fault in truth.faults] == ["slow-rank", "missing-rank", "sync"]
    assert truth.faults[2]["host_ns"] == 90_000
    assert "3 reports and truth.json" in capsys.readouterr().err


def test_a_pair_of_faults_has_the_loss_of_each(tmp_path):
    arguments = ["synth", "--ideal", "sharded", "-o", str(tmp_path), "--ranks", "4", "--steps", "3"]
    assert (
        main(
            [*arguments, "--fault", "idle-gap:ranks=2:gap_ns=5000000", "--fault", "data-stall:ranks=1:stall_ns=8000000"]
        )
        == 0
    )
    losses = [fault["lost_ns"] for fault in Truth.read(tmp_path).faults]
    assert losses == [pytest.approx(3 * 5e6, rel=0.1), pytest.approx(3 * 8e6, rel=0.1)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["healthy", "--fault", "nothing"], "unknown fault 'nothing'"),
        (["healthy", "--fault", "slow-rank:ranks=40"], "names rank 40"),
        (["unwell", "--fault", "sync"], "unknown scenario 'unwell'"),
    ],
)
def test_faults_that_cannot_be_planted_leave_nothing(tmp_path, capsys, arguments, words):
    assert main(["synth", "--ideal", *arguments, "-o", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("steps=abc", "steps must be a whole number"),
        ("schema=3.25", "unknown schema '3.25'"),
        ("layout=3", "layout must be a Layout"),
        ("name=../x", "because it becomes part of file names"),
        ("between_hosts_gb_per_s=0", "between_hosts_gb_per_s must be 0.001 to"),
    ],
)
def test_values_that_cannot_be_set_are_one_sentence(tmp_path, capsys, value, words):
    assert main(["synth", "--ideal", "tiny", "-o", str(tmp_path / "out"), "--set", value]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_name_of_digits_is_a_name(tmp_path):
    assert main(["synth", "--ideal", "tiny", "-o", str(tmp_path), "--set", "name=2026"]) == 0
    assert (tmp_path / "2026_rank0.sqlite").is_file()


def test_all_faults_are_listed(capsys):
    assert main(["synth", "--list-faults"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{kind} " in "\n" + out for kind in FAULTS)
    assert "factor=1.2" in out
