"""The state of a job as metrics: text in the format of OpenMetrics, and JSON of OTLP."""

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

from alltrace.trace.errors import UsageError
from alltrace.watch.job import State

_MOST_PHASES = 8
_MOST_RANKS = 100
_PATIENCE_S = 5.0
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Sample(NamedTuple):
    name: str
    help: str
    labels: dict[str, str]
    value: float


def samples_of(state: State) -> Iterator[Sample]:
    """At most 20 of a job, and one of each rank that is slow or stopped."""
    job = {"job": state.job}
    yield Sample("alltrace_ranks", "Ranks that wrote a record of steps.", job, state.ranks)
    yield Sample("alltrace_world_ranks", "Ranks of the job.", job, state.world)
    yield Sample("alltrace_step", "The last step that a rank is in.", job, state.step)
    yield Sample("alltrace_step_seconds", "Median time of the last steps.", job, state.step_s)
    yield Sample("alltrace_stopped_seconds", "For how long no step ended.", job, state.stopped_s)
    yield Sample("alltrace_slow_ranks", "Ranks that are slower than the others.", job, len(state.slow))
    shares = sorted(state.shares.items(), key=lambda item: -item[1])[:_MOST_PHASES]
    for phase, share in shares:
        yield Sample("alltrace_phase_share", "Share of a phase in the last steps.", {**job, "phase": phase}, share)
    for one in state.slow[:_MOST_RANKS]:
        labels = {**job, "rank": str(one.rank), "host": state.places[one.rank].host, "phase": one.phase}
        yield Sample("alltrace_slow_rank_seconds", "By how much a step takes a slow rank longer.", labels, one.loss_s)
    for rank in state.stopped[:_MOST_RANKS]:
        place = state.places[rank]
        labels = {**job, "rank": str(rank), "host": place.host, "phase": place.phase}
        yield Sample(
            "alltrace_stopped_rank_silent_seconds",
            "For how long a stopped rank wrote nothing.",
            labels,
            state.silent_s[rank],
        )


def metrics_text(state: State) -> str:
    lines: list[str] = []
    last = ""
    for sample in samples_of(state):
        if sample.name != last:
            lines += [f"# TYPE {sample.name} gauge", f"# HELP {sample.name} {sample.help}"]
            last = sample.name
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        lines.append(f"{sample.name}{{{labels}}} {sample.value:.9g}")
    return "\n".join([*lines, "# EOF", ""])


def _escaped(text: str) -> str:
    text = re.sub(r"[\x00-\x09\x0b-\x1f\x7f]", "?", text)
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def push(state: State, url: str) -> None:
    """Send the samples to a collector of OTLP, by HTTP as JSON."""
    now = str(time.time_ns())
    metrics = [
        {
            "name": sample.name,
            "description": sample.help,
            "gauge": {
                "dataPoints": [
                    {
                        "timeUnixNano": now,
                        "asDouble": sample.value,
                        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in sample.labels.items()],
                    }
                ]
            },
        }
        for sample in samples_of(state)
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "alltrace"}}]}
    body = {
        "resourceMetrics": [
            {"resource": resource, "scopeMetrics": [{"scope": {"name": "alltrace"}, "metrics": metrics}]}
        ]
    }
    post_json(f"{url.rstrip('/')}/v1/metrics", body)


def post_json(url: str, body: object) -> None:
    """Send JSON to an address that the user gave."""
    request = urllib.request.Request(check_url(url), json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=_PATIENCE_S):  # noqa: S310  http and https alone, by `check_url`
        pass


def check_url(url: str) -> str:
    """The address, if it is one of HTTP."""
    if not re.match(r"https?://[^\s/]+", url):
        raise UsageError(f"{url!r} is not an address; expected http://HOST:PORT or https://HOST")
    return url
