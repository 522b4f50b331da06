"""Keeps recorded answers in files, compares them with others, and shows what differs."""

from __future__ import annotations

import difflib
import json
import lzma
import math
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from alltrace.api import OpenRun
from tests.recorded.asking import Question, answer, default_questions, opened, option_questions, shape
from tests.recorded.making import HERE
from tests.recorded.outputs import OUTPUT_RUNS, outputs_of
from tests.recorded.worlds import WORLDS

ANSWERS = HERE / "answers"
MOST_BYTES = 5_000_000
MOST_LINES = 12
"""The most differences of one answer that are shown."""
_IDENTITY = ("rank", "name", "Name", "kind", "where", "op", "communicator", "bytes", "step")
_MOST_TRIES, _CHANGED = 3, 2

Answers = dict[Question, dict[str, Any]]


def read_answers(name: str) -> Answers:
    """The recorded answers of a run by question; none if nothing is recorded."""
    path = ANSWERS / f"{name}.jsonl.xz"
    if not path.exists():
        return {}
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    return {Question(*asked): found for asked, found in map(json.loads, lines)}


def write_answers(name: str, answers: Answers) -> None:
    """Records the answers of a run, a line each."""
    lines = [json.dumps([question, answers[question]], ensure_ascii=False) for question in sorted(answers, key=str)]
    _write(ANSWERS / f"{name}.jsonl.xz", "\n".join(lines) + "\n")


def read_outputs(name: str) -> dict[str, str]:
    """The recorded outputs of a run by name."""
    path = ANSWERS / f"{name}.outputs.json.xz"
    found: dict[str, str] = json.loads(lzma.decompress(path.read_bytes())) if path.exists() else {}
    return found


def write_outputs(name: str, texts: Mapping[str, str]) -> None:
    """Records the outputs of a run."""
    _write(ANSWERS / f"{name}.outputs.json.xz", json.dumps(dict(sorted(texts.items())), ensure_ascii=False, indent=0))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or lzma.decompress(path.read_bytes()).decode() != text:
        path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def asked_of(name: str, run: OpenRun, chosen: Callable[[Question], bool] = lambda _: True) -> list[str]:
    """The differences between the recorded answers of a run and those of today, of the chosen questions."""
    found: list[str] = []
    for question, before in read_answers(name).items():
        if chosen(question):
            found += differences(f"{name}: {question}", before, answer(run, question))
    return found


def differences(title: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two answers, a line each: row, column, before and after; none if they are equal."""
    if json.dumps(before) == json.dumps(after):  # 1 is not 1.0
        return []
    lines = []
    for part in [*before, *(p for p in after if p not in before)]:
        lines += _part(part, before.get(part), after.get(part))
    if not lines:
        return []
    more = [f"    and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return [title, *(f"    {line}" for line in lines[:MOST_LINES]), *more]


def _part(part: str, before: Any, after: Any) -> Iterator[str]:
    if part == "further" and isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            for inner in {**before.get(name, {}), **after.get(name, {})}:
                yield from _part(f"{name} {inner}", before.get(name, {}).get(inner), after.get(name, {}).get(inner))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            if isinstance(one, dict) and isinstance(other, dict):
                yield from _cells(f"{part}[{number}]", one, other)
            elif not _equal(one, other):
                yield f"{part}[{number}]: {_short(one)} -> {_short(other)}"
    elif isinstance(before, list) and isinstance(after, list):
        yield f"{part}: {len(before)} -> {len(after)} of them"
        yield from _moved(part, before, after)
    elif not _equal(before, after):
        yield f"{part}: {_short(before)} -> {_short(after)}"


def _moved(part: str, before: list[Any], after: list[Any]) -> Iterator[str]:
    """What differs between lists of different lengths: rows with the same identity are compared, others are new or
    gone."""
    texts = ([json.dumps(v) for v in values] for values in (before, after))
    for word, first, last, begin, end in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if word != "equal":
            new = after[begin:end]
            for number, row in enumerate(before[first:last], first):
                same = next((r for r in new if isinstance(row, dict) and _identity(r) == _identity(row)), None)
                if same is None:
                    yield f"- {_short(row)}"
                else:
                    new.remove(same)
                    yield from _cells(f"{part}[{number}]", row, same)
            yield from (f"+ {_short(row)}" for row in new)


def _cells(row: str, one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    about = f" ({_identity(one)})" if _identity(one) else ""
    for column in {**one, **other}:
        if not _equal(one.get(column), other.get(column)):
            yield f"{row}{about} {column}: {_short(one.get(column))} -> {_short(other.get(column))}"


def _identity(row: dict[str, Any]) -> str:
    return ", ".join(f"{k} {_short(row[k])}" for k in _IDENTITY if row.get(k) is not None)


def _equal(one: Any, other: Any) -> bool:
    """Whether two cells are the same; of numbers with fractions the last of 12 digits may be another on another
    processor."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=2e-11)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        return all(_equal(v, other[k]) for k, v in one.items())
    return type(one) is type(other) and bool(one == other)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:157] + "..."


def text_differences(title: str, before: str | None, after: str | None) -> list[str]:
    """What differs between two outputs, as a diff of lines."""
    if before == after:
        return []
    lines = difflib.unified_diff(
        (before or "").splitlines(), (after or "").splitlines(), "before", "after", n=0, lineterm=""
    )
    shown = [f"    {line[:200]}" for line in lines]
    more = [f"    and {len(shown) - MOST_LINES} more lines"] if len(shown) > MOST_LINES else []
    return [title, *shown[:MOST_LINES], *more]


def output_differences(
    name: str, run: OpenRun, scratch: Path, chosen: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """The differences between the recorded outputs of a run and those of today, of the chosen ones."""
    before = read_outputs(name)
    after = outputs_of(run, scratch, chosen)
    names = sorted({*after, *(n for n in before if chosen(n))})
    return [line for n in names for line in text_differences(f"{name}: {n}", before.get(n), after.get(n))]


def in_fifth(name: str, output: str) -> bool:
    """Whether an output is among those that are always compared."""
    return zlib.crc32(f"{name} {output}".encode()) % 5 == 0


def record(chosen: list[str]) -> int:
    """Records answers and outputs anew and prints what is different; 1 if what is recorded is too large."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        recorded = {name: read_answers(name) for name in WORLDS}
        changed = 0
        for name, after in zip(chosen, pool.map(_answers_anew, chosen, repeat(folder)), strict=True):
            changed += _print(name, recorded[name], after)
            recorded[name] = after
            write_answers(name, after)
        known = {shape(question) for answers in recorded.values() for question in answers}
        asked_anew = (
            {q.recipe for q in default_questions()} if set(chosen) == set(WORLDS) else set()
        )  # new options want all runs
        orders = {recipe: _order(recipe, recorded) for recipe in asked_anew}
        for placed in pool.map(_placed, orders, orders.values(), repeat(folder), repeat(known)):
            for name, question, found in placed:
                print(f"{name}: new: {question}", flush=True)
                recorded[name][question] = found
                changed += 1
        for name in WORLDS:
            write_answers(name, recorded[name])
        for name in set(OUTPUT_RUNS) & set(chosen):
            changed += _record_outputs(name, Path(folder) / f"outputs-{name}")
    size = sum(p.stat().st_size for p in ANSWERS.iterdir())
    asked = sum(map(len, recorded.values()))
    print(f"{asked} answers of {len(recorded)} runs, {size:,} bytes; {changed} new or changed")
    return int(size > MOST_BYTES)


def _record_outputs(name: str, scratch: Path) -> int:
    scratch.mkdir()
    (scratch / "texts").mkdir()
    before, after = read_outputs(name), outputs_of(opened(name, scratch), scratch / "texts")
    write_outputs(name, after)
    names = sorted({*before, *after} if before else ())
    lines = [line for n in names for line in text_differences(f"{name}: {n}", before.get(n), after.get(n))]
    if lines:
        print("\n".join(lines), flush=True)
    return bool(lines)


def _answers_anew(name: str, folder: str) -> Answers:
    """The answers of a run to all that is recorded of it, and to each recipe with its defaults."""
    run = opened(name, Path(folder))
    recipes = {q.recipe for q in default_questions()}
    known = [q for q in read_answers(name) if q.recipe in recipes]
    return {question: answer(run, question) for question in dict.fromkeys([*default_questions(), *known])}


def _print(name: str, before: Answers, after: Answers) -> bool:
    lines = [line for q in before if q in after for line in differences(f"{name}: {q}", before[q], after[q])]
    if before:
        lines += [f"{name}: new: {q}" for q in after if q not in before]
        lines += [f"{name}: gone: {q}" for q in before if q not in after]
    if lines:
        print("\n".join(lines), flush=True)
    return bool(lines)


def _order(recipe: str, recorded: Mapping[str, Answers]) -> list[tuple[str, dict[str, Any]]]:
    """The runs that a recipe's options are tried on, with its answer of defaults: those with rows, in an order of their
    own."""
    plain = {name: answers[q] for name, answers in recorded.items() for q in default_questions() if q.recipe == recipe}
    rows = [name for name in plain if plain[name].get("rows")] or list(plain)
    return [(name, plain[name]) for name in sorted(rows, key=lambda name: zlib.crc32(f"{name} {recipe}".encode()))]


def _placed(
    recipe: str, order: list[tuple[str, dict[str, Any]]], folder: str, known: set[Any]
) -> list[tuple[str, Question, dict[str, Any]]]:
    """The options of a recipe that no run is asked about, each on a run whose answer it changes, if three tries find
    one."""
    runs = [(OpenRun(Path(folder) / name), name, plain) for name, plain in order[:_MOST_TRIES]]
    questions = [{shape(q): q for q in option_questions(run, [recipe])} for run, _, _ in runs]
    placed = []
    for number, kind in enumerate(questions[0]):
        if kind in known:
            continue
        tries = []
        for turn in range(len(runs)):  # options are spread over the runs
            at = (turn + number) % len(runs)
            run, name, plain = runs[at]
            found = answer(run, questions[at][kind])
            tries.append((bool(found.get("rows")) + (found != plain), name, questions[at][kind], found))
            if tries[-1][0] == _CHANGED or not plain.get("rows"):
                break
        placed.append(max(tries, key=lambda t: t[0])[1:])
    return placed
