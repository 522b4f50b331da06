"""A job while it runs: who is slow or stopped, metrics that other tools read, and alerts that fire once."""

import json
import re
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.step_pages import page_of, write_pages

from alltrace.capture.control import read_control
from alltrace.cli.main import main
from alltrace.cli.verbs import watch as verb
from alltrace.trace.errors import InputError, UsageError
from alltrace.trace.step_records import Step
from alltrace.watch import job as job_module
from alltrace.watch.job import Job
from alltrace.watch.metrics import metrics_text, push, samples_of
from alltrace.watch.rules import Alerts, read_rules

BEGIN_NS = 1_796_000_000_000_000_000
STEP_NS = 100_000_000


def write(folder, *, ranks=8, slow=None, in_phase=None, since_s=0.05, beats=None, steps=40, name="job"):
    """The file of a host: steps of 100 ms, 20 of them of a slow rank's forward phase; where each rank is, and when it
    wrote."""
    end_ns = BEGIN_NS + steps * STEP_NS
    pages = []
    for rank in range(ranks):
        forward, wait = (70_000, 10_000) if rank == slow else (50_000, 30_000)
        jitters = [(rank * 7 + n * 3) % 5 * 100 for n in range(steps)]
        ended = [
            Step(n, BEGIN_NS + n * STEP_NS, 100_000, (15_000 + jitter, forward, wait - jitter), 4_000)
            for n, jitter in enumerate(jitters)
        ]
        phase, beat_s = (in_phase or {}).get(rank, "wait"), (beats or {}).get(rank, since_s)
        pages.append(
            page_of(rank, ranks, ended, phase=phase, since_ns=end_ns, written_ns=end_ns + beat_s * 1e9, job=name)
        )
    write_pages(folder / "job_on_n1.steps", pages)


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr(job_module, "monotonic", lambda: Clock.now)
    monkeypatch.setattr("alltrace.watch.rules.monotonic", lambda: Clock.now)
    return Clock


def test_a_slow_rank_is_named_and_phases_are_shares(tmp_path, clock):
    write(tmp_path, slow=5)
    state = Job(tmp_path).look()
    assert (state.job, state.ranks, state.world, state.step, state.step_s) == ("job", 8, 8, 40, 0.1)
    ((rank, loss_s, phase, phase_s, errors),) = state.slow
    assert (rank, phase) == (5, "forward")
    assert loss_s == phase_s == pytest.approx(0.02)
    assert errors > 5
    assert sum(state.shares.values()) == pytest.approx(1)
    assert state.shares["forward"] == pytest.approx(0.525)
    write(tmp_path)
    assert Job(tmp_path).look().slow == ()


def test_a_rank_that_stops_is_named_by_its_silence_or_its_phase(tmp_path, clock):
    write(tmp_path)
    job = Job(tmp_path)
    assert job.look().stopped == ()
    clock.now += 4.9  # all but rank 3 wrote again
    write(tmp_path, since_s=5, beats={3: 0.05}, in_phase={3: "forward"})
    assert job.look().stopped == ()
    clock.now += 0.3
    state = job.look()
    assert state.stopped == (3,)
    assert state.stopped_s == pytest.approx(5.2)
    assert verb.page(state)[-1].startswith(
        "stopped: rank 3 on n1, in forward of step 40, silent for 5.2 s; no step ended for 5.2 s"
    )
    write(tmp_path, since_s=5, in_phase={6: "data"})  # a rank that writes, and does not wait
    assert Job(tmp_path).look().stopped == (6,)
    write(tmp_path, since_s=0.05, in_phase={6: "data"})  # it is only later than the others
    assert Job(tmp_path).look().stopped == ()


def test_metrics_are_few_and_names_cannot_break_them(tmp_path, clock):
    write(tmp_path, slow=5, in_phase={2: "data"}, since_s=5, name='a"b\\c\nd')
    state = Job(tmp_path).look()
    samples = list(samples_of(state))
    assert len([s for s in samples if "rank" not in s.labels]) <= 20
    assert [s.labels["rank"] for s in samples if "rank" in s.labels] == ["5", "2"]
    text = metrics_text(state)
    assert text.endswith("# EOF\n")
    line = re.compile(r'(# (TYPE|HELP) [a-z_]+ .+|[a-z_]+\{([a-z]+="([^"\\\n]|\\["\\n])*",?)+\} [0-9.e+-]+|# EOF)')
    assert all(line.fullmatch(one) for one in text.splitlines())
    assert 'alltrace_slow_rank_seconds{job="a\\"b\\\\c\\nd",rank="5",host="n1",phase="forward"} 0.02' in text


class Receiver:
    """Keeps what is posted to it."""

    def __init__(self):
        self.bodies = bodies = []
        self.came = came = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                bodies.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                self.send_response(200)
                self.end_headers()
                came.set()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def receiver():
    one = Receiver()
    yield one
    one.server.shutdown()
    one.server.server_close()


def test_a_collector_of_otlp_gets_the_samples(tmp_path, clock, receiver):
    write(tmp_path)
    push(Job(tmp_path).look(), receiver.url)
    ((path, body),) = receiver.bodies
    assert path == "/v1/metrics"
    metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    (step,) = [m["gauge"]["dataPoints"][0] for m in metrics if m["name"] == "alltrace_step_seconds"]
    assert step["asDouble"] == 0.1
    assert step["attributes"] == [{"key": "job", "value": {"stringValue": "job"}}]


RULES = """
minimum_s = 300
[[rule]]
name = "slow"
when = "slow_rank > 5 %"
command = ["sh", "-c", "echo \\"$0\\" >> fired"]
capture = 7
[[rule]]
when = "stopped > 4 s"
webhook = "URL"
capture = 5
[[rule]]
when = "share forward > 90 %"
"""


def test_each_cause_fires_once_and_captures_are_rare(tmp_path, clock, receiver, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.toml").write_text(RULES.replace("URL", receiver.url + "/hook"))
    captured, lines = [], []
    alerts = Alerts(*read_rules(tmp_path / "rules.toml"), captured.append, lines.append)
    write(tmp_path, slow=5)
    job = Job(tmp_path)
    for _ in range(20):
        alerts.judge(job.look())
        clock.now += 0.5
    assert receiver.came.wait(10)
    assert captured == [7]  # the second cause came within 300 s
    assert [line.partition(" (")[0] for line in lines] == [
        "slow: rank 5 takes 20.0 % of a step more, most in forward",
        "stopped > 4 s: no step ended for 4.5 s; stopped ranks: unknown",
    ]  # fmt: skip
    ((path, body),) = receiver.bodies
    assert (path, body["rule"], body["rank"], body["step"]) == ("/hook", "stopped > 4 s", None, 40)
    for _ in range(100):
        if (tmp_path / "fired").exists() and (tmp_path / "fired").read_text():
            break
        threading.Event().wait(0.05)
    assert (
        tmp_path / "fired"
    ).read_text() == "slow: rank 5 takes 20.0 % of a step more, most in forward (job job, step 40)\n"
    write(tmp_path)
    alerts.judge(job.look())
    clock.now += 400  # it did not hold for a minute
    write(tmp_path, slow=5)
    alerts.judge(job.look())
    assert captured == [7, 7]


WRONG = (
    "rule = 3", "other = 1", "[[rule", "minimum_s = -1", "rule = [3]", "[[rule]]\nname = 'x'",
    "[[rule]]\nwhen = 'step_time > 5 %'", "[[rule]]\nwhen = 'speed > 5 s'",
    "[[rule]]\nwhen = 'stopped > 5 s'\ncommand = [1]", "[[rule]]\nwhen = 'stopped > 5 s'\ncapture = true",
)  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_rules_that_say_something_else_are_one_sentence(tmp_path, text):
    (tmp_path / "rules.toml").write_text(text)
    with pytest.raises(InputError, match=r"rules.toml.*expected `minimum_s` and \[\[rule\]\] tables"):
        read_rules(tmp_path / "rules.toml")


def test_a_webhook_is_an_address_of_http(tmp_path):
    (tmp_path / "rules.toml").write_text("[[rule]]\nwhen = 'stopped > 5 s'\nwebhook = 'file:///etc/passwd'")
    with pytest.raises(UsageError, match="'file:///etc/passwd' is not an address"):
        read_rules(tmp_path / "rules.toml")


def test_the_command_prints_the_state_once(tmp_path, capsys):
    write(tmp_path, slow=5)
    assert main(["watch", str(tmp_path), "--once"]) == 0
    assert (
        capsys.readouterr().out == "job job: 8 of 8 ranks, step 40, 100.0 ms a step\n"
        "phases: forward 52.5 %, wait 27.3 %, data 15.2 %, cpu wait 4.0 %, other 1.0 %\n"
        "slow: rank 5 on n1, 20.0 ms a step more, most in forward (20.0 ms), 99 standard errors\n"
    )
    (tmp_path / "empty").mkdir()
    assert main(["watch", str(tmp_path / "empty"), "--once"]) == 0
    assert capsys.readouterr().out == "no rank has written a record of steps yet\n"
    assert main(["watch", str(tmp_path / "none"), "--once"]) != 0
    assert "there is no such folder" in capsys.readouterr().err


def test_the_page_fits_a_terminal_of_80_columns_and_24_rows(tmp_path, clock):
    write(tmp_path, ranks=64, slow=5, in_phase={17: "data"}, since_s=5, name="a-long-name-of-a-job-" * 5)
    happened = [
        f"12:00:{n:02} something happened that takes more than a line of such a narrow terminal to say"
        for n in range(30)
    ]
    lines = verb.screen(verb.page(Job(tmp_path).look()), happened, 80, 24).split("\n")
    assert len(lines) == 23
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "  terminal to say"
    assert any(line.startswith("stopped: rank 17 on n1") for line in lines)
    assert len(verb.screen(["x"] * 50, happened, 80, 24).split("\n")) == 23
    state = Job(tmp_path).look()
    many = verb.page(state._replace(slow=state.slow * 10, stopped=tuple(range(20, 30))))
    assert [line for line in many if " as well: " in line] == [
        "slow as well: ranks 5, 5",
        "stopped as well: ranks 28-29",
    ]


def test_the_command_serves_metrics_fires_asks_and_writes_a_verdict(tmp_path, capsys, monkeypatch):
    write(tmp_path, since_s=60, in_phase={3: "forward"})
    control = tmp_path / "reports" / ".armed" / "job"
    control.mkdir(parents=True)
    (tmp_path / "rules.toml").write_text("[[rule]]\nwhen = 'stopped > 0 s'\ncapture = 4")
    monkeypatch.setattr(verb, "_HANGS_S", 0.0)
    monkeypatch.setattr(verb, "_STEPS_LONG", 0.0)
    fetched = []

    def sleep(_seconds):
        if (tmp_path / "hang.json").exists():
            url = next(arg for arg in (f"http://127.0.0.1:{port}/metrics",))
            with urllib.request.urlopen(url, timeout=10) as answer:
                fetched.append((answer.headers["Content-Type"], answer.read().decode()))
            raise KeyboardInterrupt

    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(verb.time, "sleep", sleep)
    arguments = ["--rules", tmp_path / "rules.toml", "--reports", tmp_path / "reports", "--port", port]
    assert main(["watch", str(tmp_path), *map(str, arguments)]) == 0
    assert read_control(str(control / "request.json"))["steps"] == 4
    verdict = json.loads((tmp_path / "hang.json").read_text())
    assert verdict["rows"][0]["ranks"] == [3]
    out = capsys.readouterr().out
    assert "stopped: ranks 3" in out
    assert "4 steps of the job are recorded" in out
    assert verdict["verdict"] in out
    ((kind, text),) = fetched
    assert kind.startswith("application/openmetrics-text")
    assert 'alltrace_stopped_rank_silent_seconds{job="job",rank="3"' in text


def test_the_dashboard_asks_for_metrics_that_exist(tmp_path, clock):
    write(tmp_path, slow=5, in_phase={2: "data"}, since_s=5)
    samples = list(samples_of(Job(tmp_path).look()))
    labels = {sample.name: set(sample.labels) for sample in samples}
    dashboard = json.loads((Path(__file__).parents[2] / "packaging" / "grafana" / "alltrace.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    asked = set()
    for target in targets:
        for name, selected in re.findall(r"(alltrace_[a-z_]+)(?:\{([^}]*)\})?", target["expr"]):
            asked.add(name)
            used = {*re.findall(r"(\w+)=", selected), *re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))}
            assert used <= labels[name], target
    assert asked == set(labels) - {"alltrace_step", "alltrace_slow_ranks"}
    variables = json.dumps(dashboard["templating"])
    assert re.findall(r"label_values\((\w+), (\w+)\)", variables) == [("alltrace_step", "job")]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)


def test_the_parser_of_prometheus_reads_the_metrics(tmp_path, clock):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    write(tmp_path, slow=5, in_phase={2: "data"}, since_s=5, name='a"b\\c\nd é')
    state = Job(tmp_path).look()
    families = list(parser.text_string_to_metric_families(metrics_text(state)))
    read = [(s.name, s.labels, s.value) for family in families for s in family.samples]
    assert read == [(s.name, s.labels, pytest.approx(s.value)) for s in samples_of(state)]
    assert {family.type for family in families} == {"gauge"}
