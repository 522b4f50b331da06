"""Runs each question through every interface and compares the bytes: `python -m tests.fuzz.same_answers DATA --seed S`.

The interfaces are the command line on report files, the command line on an imported run, and the library, in shuffled
order and on one cache. Two processes query the files at once, each in its own order, while the cache is still empty.
Each question is a recipe or report with one of its options, for all ranks or some, for the whole run or some steps. A
seed selects them.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import alltrace
from alltrace.cli.main import main as command_line
from alltrace.cli.output import to_json
from alltrace.recipes.registry import find
from alltrace.run.importer import import_reports
from alltrace.trace.errors import AlltraceError
from tests.recipes.test_every_recipe import EVERY, option_sets

CACHE = "ALLTRACE_CACHE_DIR"
MORE: Mapping[str, Mapping[str, Any]] = {
    "stats:um_sum": {"rows": 3},
    "stats:network_congestion": {"ticks_threshold": 100},
    "gpu_gaps": {"gap": 0},
    "cuda_gpu_kern_sum": {"filter_time": "0/1ms"},
    "nvtx_pace": {"name": "step"},
    "durations": {"what": "copy,step"},
}
"""Options that neither are flags nor have choices."""


class Question(NamedTuple):
    """A recipe or report, its options, and what of the run it is asked about."""

    name: str
    options: tuple[tuple[str, Any], ...]
    ranks: str | None = None
    steps: str | None = None

    def words(self, of: str) -> list[str]:
        """The command line that asks `of` files or of a run."""
        flags = {key.replace("_", "-"): value for key, value in self.options}
        about = [*(["--ranks", self.ranks] if self.ranks else []), *(["--steps", self.steps] if self.steps else [])]
        if self.name.startswith("stats:"):
            spelled = [key if value is True else f"{key}={value}" for key, value in flags.items()]
            return ["stats", ":".join([self.name.removeprefix("stats:"), *spelled]), of, *about, "--format", "json"]
        given = [
            word for key, value in flags.items() for word in (f"--{key}", *([] if value is True else [str(value)]))
        ]
        return ["recipe", self.name, of, *given, *about, "--format", "json"]


def questions(draw: random.Random, most: int | None = None) -> list[Question]:
    """Every recipe and report with every option; and each once more about some rank or step. At most `most`, drawn at
    random."""
    plain = [(name, options) for name in EVERY for options in option_sets(find(name))]
    plain += [(name, dict(options)) for name, options in MORE.items()]
    found = [Question(name, tuple(options.items())) for name, options in plain]
    for name, options in plain:
        steps = draw.choice([None, "1:", ":2", "1:3"]) if find(name).windowed else None
        ranks = draw.choice([None, "0", "0-3"]) if steps else "0"
        found.append(Question(name, tuple(options.items()), ranks, steps))
    found = list(dict.fromkeys(found))
    return found if most is None or most >= len(found) else draw.sample(found, most)


def by_command(question: Question, of: str) -> str:
    """What the command prints: its answer, or what it says on standard error where it refuses."""
    printed, said = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(printed), redirect_stderr(said):
        code = command_line(question.words(of))
    stream = said if code else printed
    stream.seek(0)
    text = stream.read()
    # the library names options as Python does
    return re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), text) if code else text


def by_library(question: Question, of: str) -> str:
    """The same, asked with `alltrace.open`."""
    run = alltrace.open(of)
    about: dict[str, Any] = {
        "ranks": None if question.ranks is None else _numbers(question.ranks),
        "steps": question.steps,
    }
    try:
        answer = run.recipe(question.name, **about, **dict(question.options)).answer
    except AlltraceError as error:
        return f"alltrace: {error}\n"
    return to_json("stats" if question.name.startswith("stats:") else question.name, answer, answer.table, run.facts())


def _numbers(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def ask_all(asked: Iterable[Question], reports: str, run: Path, draw: random.Random) -> dict[Question, dict[str, str]]:
    """The answers by question and door, asked in an order that `draw` shuffles."""
    doors = {
        "files": lambda question: by_command(question, reports),
        "run": lambda question: by_command(question, str(run)),
        "library": lambda question: by_library(question, reports),
    }
    pairs = [(question, door) for question in asked for door in doors]
    draw.shuffle(pairs)
    answers: dict[Question, dict[str, str]] = {}
    for question, door in pairs:
        answers.setdefault(question, {})[door] = doors[door](question)
    return answers


def differences(answers: Mapping[Question, Mapping[str, str]]) -> list[Question]:
    """The questions that have not one answer."""
    return [question for question, found in answers.items() if len(set(found.values())) > 1]


def two_at_once(asked: Sequence[Question], reports: str, folder: Path, seed: int) -> dict[Question, dict[str, str]]:
    """The answers of two processes that ask the files at the same time, by a hash of each; the cache of both is empty
    before."""
    (folder / "asked.json").write_text(json.dumps([q._asdict() for q in asked]))
    environment = {**os.environ, CACHE: str(folder / "shared-cache")}
    started = []
    for number in range(2):
        words = [
            sys.executable,
            "-m",
            "tests.fuzz.same_answers",
            "--worker",
            str(folder / "asked.json"),
            reports,
            "--seed",
            str(seed + number),
        ]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, env=environment))
    answers: dict[Question, dict[str, str]] = {}
    for number, process in enumerate(started):
        printed, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"process {number} ended with {process.returncode}")
        for question, answer in zip(asked, json.loads(printed), strict=True):
            answers.setdefault(question, {})[f"process {number}"] = answer
    return answers


def work(asked: Sequence[Question], reports: str, seed: int) -> list[str]:
    """Hashes of the answers, in the order of the questions, which are asked in another."""
    order = list(range(len(asked)))
    random.Random(seed).shuffle(order)
    found = {n: hashed(by_command(asked[n], reports)) for n in order}
    return [found[n] for n in range(len(asked))]


def hashed(answer: str) -> str:
    """What two processes compare."""
    return hashlib.blake2b(answer.encode(), digest_size=16).hexdigest()


def check(
    reports: Path, folder: Path, seed: int, most: int | None, *, processes: bool = True
) -> tuple[int, list[Question]]:
    """How many questions were asked of some reports, and those that have not one answer."""
    draw = random.Random(seed)
    asked = questions(draw, most)
    os.environ[CACHE] = str(folder / "cache")
    import_reports([str(reports)], folder / "run", jobs=1)
    answers = ask_all(asked, str(reports), folder / "run", draw)
    if processes:
        for question, found in two_at_once(asked, str(reports), folder, seed).items():
            answers[question] = {door: hashed(answer) for door, answer in answers[question].items()} | found
    return len(asked), differences(answers)


def main() -> int:
    """Run what the command line says; 1 where answers differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.same_answers", description=__doc__)
    parser.add_argument(
        "data", type=Path, help="a folder of reports, in the folders nsys and kineto; each is asked by itself"
    )
    parser.add_argument("--seed", type=int, default=1, help="which questions, in which order (default: 1)")
    parser.add_argument("--questions", type=int, help="the most questions for each report (default: all)")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        listed = [Question(**q) for q in json.loads(given.worker.read_text())]
        asked = [q._replace(options=tuple((key, value) for key, value in q.options)) for q in listed]
        print(json.dumps(work(asked, str(given.data), given.seed)))
        return 0
    reports = [*sorted((given.data / "nsys").glob("*.sqlite")), *sorted((given.data / "kineto").rglob("*.json.gz"))]
    total = different = 0
    for number, report in enumerate(reports):
        with tempfile.TemporaryDirectory() as folder:
            asked_of, found = check(report, Path(folder), given.seed + number, given.questions)
        total, different = total + asked_of, different + len(found)
        print(f"{report.name}: {asked_of} questions, {len(found)} differences", flush=True)
        for question in found:
            print(f"  {' '.join(question.words('RUN'))}", flush=True)
    print(f"{len(reports)} reports, seed {given.seed}: {total} questions by five ways, {different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
