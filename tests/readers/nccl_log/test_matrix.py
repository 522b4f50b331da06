"""Every version, prefix, interleaving and cut of a written log against its truth: every call right, none made up."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pytest
from tests.nccl_writing import PREFIXES, STAMPS, VERSIONS, write_log

from alltrace.readers.nccl_log.read import Wanted, read_log
from alltrace.trace.nccl_words import OPERATIONS


def calls_of(part, path):
    """The calls as tuples comparable with the truth."""
    rows = pa.ipc.open_file(pa.memory_map(str(path))).read_all().to_pylist()
    out = Counter()
    for row in rows:
        instance = part.instances[row["instance"]]
        process = part.records.processes[instance.process]
        out[
            instance.rank,
            OPERATIONS[row["operation"]],
            row["op_count"],
            row["count"],
            row["datatype"],
            row["root"],
            row["nranks"],
            process.host,
            process.pid,
        ] += 1
    return out


def truth_of(written):
    return Counter(
        (c.rank, c.op, c.op_count, c.count, c.datatype, c.root, c.nranks, c.host, c.pid) for c in written.calls
    )


def read(tmp_path, text, **options):
    log, calls = tmp_path / "log.txt", tmp_path / "calls.arrow"
    log.write_bytes(text)
    part = read_log(Wanted(str(log), str(calls), **options))
    return part, calls_of(part, calls)


@pytest.mark.sampled(28)
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("version", VERSIONS)
def test_plain_and_cut_logs(tmp_path, version, prefix):
    for stamp, cut in itertools.product(STAMPS, (False, True)):
        written = write_log(version, prefix, cut=cut, stamp=stamp, seed=len(prefix))
        part, found = read(tmp_path, written.text)
        assert found == truth_of(written)
        assert part.records.counts["not understood"] == written.cut


@pytest.mark.sampled(6)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stamp", STAMPS)
def test_interleaved_logs(tmp_path, version, stamp):
    for seed in range(6):
        written = write_log(version, interleave=True, stamp=stamp, seed=seed)
        _part, found = read(tmp_path, written.text)
        assert found == truth_of(written)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("version", VERSIONS)
def test_interleaved_and_cut_logs(tmp_path, version):
    """With both, a rest may fit nothing; then the record is listed, and no call is made up."""
    for seed in range(6):
        written = write_log(version, interleave=True, cut=True, seed=seed)
        part, found = read(tmp_path, written.text)
        truth = truth_of(written)
        # where the rest of a record was lost, the number of ranks at its end is null
        known = Counter({(*call[:6], *call[7:]): n for call, n in found.items()})
        wanted = Counter({(*call[:6], *call[7:]): n for call, n in truth.items()})
        assert not known - wanted
        assert (wanted - known).total() + written.cut <= part.records.counts["not understood"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("prefix", ["none", "srun", "ray", "strange"])
def test_fast_and_careful_paths_agree(tmp_path, prefix):
    written = write_log("2.27", prefix, calls=300, ranks=8, interleave=prefix == "none", cut=True, seed=3)
    fast, found = read(tmp_path, written.text)
    careful, again = read(tmp_path, written.text, careful=True)
    assert found == again
    assert fast.instances == careful.instances
    assert +fast.records.counts == +careful.records.counts
    assert fast.lines == careful.lines
