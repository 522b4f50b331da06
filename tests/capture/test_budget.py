"""What a profile costs: the figures follow from the costs of events, and each other."""

import json

import pytest

from alltrace.capture.budget import COSTS, FLOOR_BYTES, Job, plan_job, report_bytes
from alltrace.cli.main import main
from alltrace.trace.errors import UsageError


def told(job):
    return {line.what: line.answer for line in plan_job(job) if line.what}


def test_a_report_grows_with_launches_and_bounds_the_window():
    job = Job(512, launches_per_s=1000)
    grown = report_bytes(job) - FLOOR_BYTES
    assert report_bytes(job._replace(seconds=60)) - FLOOR_BYTES == pytest.approx(2 * grown)
    assert grown == pytest.approx(30 * 1000 * 2 * COSTS["nsys os call"].size)
    assert report_bytes(job._replace(seconds=1e-9)) == pytest.approx(FLOOR_BYTES)
    found = told(Job(8192, seconds=600))
    assert "600 s of all ranks would be" in found["record"]
    seconds = float(found["record"].split(" s ")[0])
    assert seconds < 600
    assert 90e9 < report_bytes(Job(8192, seconds=seconds)) * 8192 < 100e9
    assert "would be" not in told(Job(512))["record"]


@pytest.mark.parametrize(
    ("ranks", "per_node", "start"), [(512, 8, "-N64 --ntasks-per-node=8"), (4, 8, "-N1 --ntasks-per-node=4")]
)
def test_the_command_has_the_nodes_of_the_job(ranks, per_node, start):
    assert start in told(Job(ranks, per_node))["start"]


def test_ranks_that_are_no_whole_nodes():
    with pytest.raises(UsageError, match="is not a multiple of"):
        plan_job(Job(12, 8))


def test_it_fits_a_terminal_and_json_says_the_same(capsys):
    assert main(["capture", "plan", "--ranks", "512", "--seconds", "30", "--profiler", "torch"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "alltrace capture arm -o reports --profiler torch -- python train.py" in shown
    assert main(["capture", "plan", "--ranks", "512", "--profiler", "torch", "--format", "json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert [line["what"] for line in lines][:2] == ["ranks", "record"]
    assert " ".join(lines[1]["answer"].split()) in " ".join(shown.split())
