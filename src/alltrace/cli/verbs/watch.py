"""The verb `watch`: a job while it runs, as a page in the terminal and as metrics, with alerts."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from alltrace.trace.errors import EXIT_DONE, AlltraceError, InputError, UsageError, printable
from alltrace.trace.number_text import number_ranges

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from alltrace.watch.job import State

EXAMPLE = "alltrace watch /shared/steps --port 9464"
_NAMED = 8
_KEPT = 100
_HANG = "hang.json"
_SILENT_S = 15.0
_HANGS_S = 20.0
"""No verdict is written before; a process counts as ended when it wrote nothing for 12 s while others did, who write
every 5 s."""
_STEPS_LONG = 5.0
_PUSH_S = 15.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="JOBDIR", help="the folder in which step_report(record=JOBDIR) writes"
    )
    group = parser.add_argument_group("what to do")
    group.add_argument(
        "--rules", type=Path, metavar="FILE", help="alerts: a TOML file of rules, each with a command or a webhook"
    )
    group.add_argument(
        "--reports", type=Path, metavar="DIR", help="the reports' folder of `capture arm -o DIR`; default: JOBDIR"
    )
    group.add_argument("--port", type=int, metavar="N", help="serve /metrics in the format of OpenMetrics on this port")
    group.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="the address to serve on; default: 127.0.0.1"
    )
    group.add_argument("--otlp", metavar="URL", help="send the metrics to this collector of OTLP by HTTP, every 15 s")
    group.add_argument(
        "--every", type=float, default=0.5, metavar="S", help="how often to look, in seconds; default: 0.5"
    )
    group.add_argument("--once", action="store_true", help="print the state once, and end")


def run(args: argparse.Namespace) -> int:
    from alltrace.watch.job import Job
    from alltrace.watch.metrics import push
    from alltrace.watch.rules import Alerts, read_rules

    _check(args)
    lines: deque[str] = deque(maxlen=_KEPT)

    def say(text: str) -> None:
        lines.append(f"{time.strftime('%H:%M:%S')} {printable(text)}")
        if not sys.stdout.isatty():
            print(lines[-1], flush=True)  # noqa: T201

    rules, minimum_s = read_rules(args.rules) if args.rules else ([], 0.0)
    alerts = Alerts(rules, minimum_s, lambda steps: _ask(args.reports or args.folder, steps, say), say)
    job = Job(args.folder)
    state = job.look()
    if args.once:
        print("\n".join(page(state)))  # noqa: T201
        return EXIT_DONE
    current = [state]
    server = None if args.port is None else _serve(args.host, args.port, current)
    named: tuple[int, ...] = ()
    hanging, pushed_at = False, 0.0
    try:
        while True:
            state = current[0] = job.look()
            alerts.judge(state)
            if state.stopped and state.stopped != named:
                say(f"stopped: ranks {number_ranges(state.stopped)}")
            named = state.stopped
            stopped = state.ranks > 0 and state.stopped_s > max(_HANGS_S, _STEPS_LONG * state.step_s)
            if stopped and not hanging:
                say(_write_verdict(args.folder))
            hanging = stopped
            if args.otlp and time.monotonic() - pushed_at > _PUSH_S:
                pushed_at = time.monotonic()
                try:
                    push(state, args.otlp)
                except OSError as error:
                    say(f"--otlp {args.otlp}: {error}")
            if sys.stdout.isatty():
                print(  # noqa: T201
                    "\033[H\033[2J" + screen(page(state), list(lines), *shutil.get_terminal_size()), end="", flush=True
                )
            time.sleep(args.every)
    except KeyboardInterrupt:  # how it is stopped
        return EXIT_DONE
    finally:
        if server is not None:
            server.shutdown()
            server.server_close()


def _check(args: argparse.Namespace) -> None:
    from alltrace.watch.metrics import check_url

    if not args.folder.is_dir():
        raise InputError(args.folder, found="there is no such folder", expected="the folder of a record of steps")
    if not args.every > 0:
        raise UsageError(f"--every is {args.every:g}; expected a number of seconds above 0")
    if args.otlp:
        check_url(args.otlp)


def page(state: State) -> list[str]:
    if not state.ranks:
        return ["no rank has written a record of steps yet"]
    of = f" of {state.world}" if state.world else ""
    shares = ", ".join(
        f"{phase} {100 * share:.1f} %" for phase, share in sorted(state.shares.items(), key=lambda item: -item[1])
    )
    lines = [
        f"job {printable(state.job)}: {state.ranks}{of} ranks, step {state.step}, {state.step_s * 1000:.1f} ms a step",
        f"phases: {printable(shares)}",
    ]
    for one in state.slow[:_NAMED]:
        place = state.places[one.rank]
        lines.append(
            f"slow: rank {one.rank} on {printable(place.host)}, {one.loss_s * 1000:.1f} ms a step more, "
            f"most in {printable(one.phase)} ({one.phase_s * 1000:.1f} ms), {min(one.errors, 99):.0f} standard errors"
        )
    for rank in state.stopped[:_NAMED]:
        place = state.places[rank]
        lines.append(
            f"stopped: rank {rank} on {printable(place.host)}, in {printable(place.phase)} of step {place.step}, "
            f"silent for {state.silent_s[rank]:.1f} s; no step ended for {state.stopped_s:.1f} s"
        )
    for what, ranks in (("slow", [one.rank for one in state.slow]), ("stopped", list(state.stopped))):
        if len(ranks) > _NAMED:
            lines.append(f"{what} as well: ranks {number_ranges(ranks[_NAMED:])}")
    silent = sorted(rank for rank, seconds in state.silent_s.items() if seconds > _SILENT_S)
    if silent:
        lines.append(f"ranks {number_ranges(silent)} wrote nothing for {_SILENT_S:.0f} s or more")
    return lines


def screen(state: list[str], happened: list[str], columns: int, rows: int) -> str:
    """As much of the state, and of what happened last, as a terminal of this size holds."""
    above, below = (
        [part for line in lines for part in textwrap.wrap(line, columns, subsequent_indent="  ")]
        for lines in (state, happened)
    )
    room = rows - len(above) - 2
    return "\n".join([*above[: rows - 1], *(["", *below[-room:]] if room > 0 else [])])


def _write_verdict(folder: Path) -> str:
    """Write what `alltrace hang` says into the folder; the sentence for the page."""
    from alltrace.hang.verdict import verdict_of

    try:
        answer = verdict_of(folder)
        part = folder / f".{_HANG}"
        part.write_text(
            json.dumps({"verdict": answer.verdict, "rows": answer.table.to_pylist()}, indent=1), encoding="utf-8"
        )
        part.replace(folder / _HANG)
    except (AlltraceError, OSError) as error:
        return str(error)
    return f"{answer.verdict} ({folder / _HANG})"


def _ask(reports: Path, steps: int, say: Callable[[str], None]) -> None:
    """Ask the armed job for a window, as `alltrace capture now` does, and do not wait for its answer."""
    from alltrace.capture.control import request_window
    from alltrace.capture.now import find_armed

    try:
        request_window(str(find_armed(reports, None)), steps)
        say(f"{steps} steps of the job are recorded")
    except (AlltraceError, OSError) as error:
        say(f"nothing is recorded: {error}")


def _serve(host: str, port: int, current: list[State]) -> ThreadingHTTPServer:
    from alltrace.watch.metrics import CONTENT_TYPE, metrics_text

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_metrics = self.path == "/metrics"
            body = (metrics_text(current[0]) if is_metrics else "the metrics are at /metrics\n").encode()
            self.send_response(200 if is_metrics else 404)
            self.send_header("Content-Type", CONTENT_TYPE if is_metrics else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    try:
        server = ThreadingHTTPServer((host, port), Metrics)
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error}; choose another --port or --host") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
