"""Run directories: names, payloads and facts without what must not be shared; what was derived from them is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from alltrace.capture.scrub import KEPT_VARIABLES
from alltrace.capture.scrub_payloads import nccl_fields
from alltrace.run.checksums import FILES, LOGS, LOGS_RECORD, CheckedFiles, checksum, checksums, recorded
from alltrace.run.json_files import read_json, write_json
from alltrace.run.manifest import MANIFEST, NAMES, RANK_RECORD, plain, read_manifest
from alltrace.run.parquet import ORDER_KEY
from alltrace.share.words import Words
from alltrace.trace.names import name_id
from alltrace.trace.schema import TABLES

_SAYS_NOTHING: dict[str, Any] = {"job": None, "revision": None, "tags": []}


def gather_run(run: Path, words: Words) -> None:
    """Take note of the hosts of a run, and of users in its names.

    Raises `InputError`: its manifest or names are damaged.
    """
    manifest = read_manifest(run)
    words.hosts(manifest.hosts)
    for text in _names(run)["value"].to_pylist():
        words.gather(str(text).encode("utf-8", "replace"))
    words.gather(json.dumps(plain(manifest)).encode())


def write_run(run: Path, target: Path, words: Words, *, drop_texts: bool) -> int:
    """Write a run directory; how many payloads were left out.

    Raises `InputError`: a file of it is damaged.
    """
    facts = plain(read_manifest(run))
    texts = _names(run).to_pylist()
    renamed = {row["value"]: new for row in texts if (new := words(row["value"])) != row["value"]}
    if drop_texts:
        renamed |= {text: words.instead("range", text) for text in _texts_of_ranges(run, facts, texts)}
    target.mkdir(parents=True)
    _copy(CheckedFiles(run, facts[FILES]), NAMES, target / NAMES, words, renamed)
    payloads = 0
    for record in facts["ranks"]:
        folder = f"ranks/rank={record['rank']}"
        files = recorded(run / folder, RANK_RECORD)
        payloads += sum(_copy(files, name, target / folder / name, words, renamed) for name in files.expected)
        whole = words.inside(read_json(run / folder / RANK_RECORD))
        write_json(target / folder / RANK_RECORD, {**whole, FILES: checksums(target / folder, RANK_RECORD)})
    if (run / LOGS).is_dir():
        files = recorded(run / LOGS, LOGS_RECORD)
        payloads += sum(_copy(files, name, target / LOGS / name, words, renamed) for name in files.expected)
        write_json(target / LOGS / LOGS_RECORD, {FILES: checksums(target / LOGS, LOGS_RECORD)})
    for report in facts["reports"]:
        report["environment"] = {k: v for k, v in report["environment"].items() if k in KEPT_VARIABLES and v.isdecimal()}
    facts |= {"labels": _SAYS_NOTHING, FILES: {NAMES: checksum(target / NAMES)}}
    write_json(target / MANIFEST, words.inside(facts))
    return payloads


def _names(run: Path) -> Any:
    return pq.read_table(CheckedFiles(run, read_manifest(run).files).path(NAMES))


def _texts_of_ranges(run: Path, facts: dict[str, Any], names: list[dict[str, Any]]) -> Iterator[str]:
    """The texts of ranges and marks, but for NCCL's."""
    ids: set[int] = set()
    for record in facts["ranks"]:
        for table in ("ranges", "marks"):
            if (path := run / f"ranks/rank={record['rank']}" / f"{table}.parquet").is_file():
                ids.update(pq.read_table(path, columns=["name"])["name"].unique().to_pylist())
    return (row["value"] for row in names if row["id"] in ids and not row["value"].startswith(("nccl", "ProfilerStep")))


def _copy(files: CheckedFiles, name: str, target: Path, words: Words, renamed: dict[str, str]) -> int:
    """Write a file of a run; how many payloads were left out."""
    ids = {name_id(old): name_id(new) for old, new in renamed.items()}  # an id is a hash of its text, which can be guessed
    target.parent.mkdir(parents=True, exist_ok=True)
    source = files.path(name)
    if target.suffix != ".parquet":
        write_json(target, words.inside(read_json(source)))
        return 0
    if target.name == NAMES:
        before = pq.read_table(source)
        texts = [renamed.get(text, text) for text in before["value"].to_pylist()]
        pq.write_table(pa.table([list(map(name_id, texts)), texts], before.schema).sort_by("id"), target, compression="zstd")
        return 0
    payloads = 0
    table = TABLES.get(target.stem)
    of_names = () if table is None else table.name_columns()
    with pq.ParquetFile(source) as file, pq.ParquetWriter(target, file.schema_arrow, compression="zstd") as writer:
        order = (file.metadata.metadata or {}).get(ORDER_KEY)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            for number, field in enumerate(rows.schema):
                column = rows.column(number)
                if field.name in of_names and ids:
                    column = _each(column, lambda old: ids.get(old, old))
                elif field.name == "payload":
                    before = column.null_count
                    column = _each(column, nccl_fields)
                    payloads += column.null_count - before
                elif pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
                    column = _each(column, words)
                rows = rows.set_column(number, field, column)
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        if order is not None:
            writer.add_key_value_metadata({ORDER_KEY: order})
    return payloads


def _each(column: Any, change: Any) -> Any:
    encoded = column.combine_chunks().dictionary_encode() if column.num_chunks != 1 else column.chunk(0).dictionary_encode()
    values = pa.array([None if v is None else change(v) for v in encoded.dictionary.to_pylist()], column.type)
    return values.take(encoded.indices)
