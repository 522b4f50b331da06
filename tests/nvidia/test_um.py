"""Migrations and page faults of unified memory, added up by address on paper."""

import pytest
from tests.making import copy, make_run

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import find_report

LOW, HIGH = 0x7F0000000000, 0x7F0000001000


@pytest.fixture
def run(tmp_path):
    moved = [("UvmHtoD", 2_000_000, 1000, LOW), ("UvmHtoD", 1_000_000, 1000, LOW), ("UvmDtoH", 500_000, 500, HIGH)]
    copies = [copy(10_000 * n, 10_000 * n + took, kind, bytes=size, address=at) for n, (kind, size, took, at) in enumerate(moved)]
    faults = [
        {"start": 5, "kind": "cpu", "address": HIGH},
        {"start": 6, "kind": "cpu", "address": HIGH},
        {"start": 7, "kind": "gpu", "address": LOW, "count": 30},
    ]
    return make_run(tmp_path / "run", {0: {"copies": copies, "page_faults": faults}})


def test_migrations_and_faults_by_address_and_together(run):
    assert ask(run, find_report("um_sum")).table.to_pylist() == [
        {
            "Virtual Address": "0x7F0000000000", "HtoD Migration size (MB)": 3.0, "DtoH Migration size (MB)": None,
            "CPU Page Faults": None, " GPU Page Faults": 30, "Migration Throughput (MB/s)": 1_500_000.0,
        },
        {
            "Virtual Address": "0x7F0000001000", "HtoD Migration size (MB)": None, "DtoH Migration size (MB)": 0.5,
            "CPU Page Faults": 2, " GPU Page Faults": None, "Migration Throughput (MB/s)": 1_000_000.0,
        },
    ]  # fmt: skip
    assert ask(run, find_report("um_total_sum")).table.to_pylist() == [
        {
            "Total HtoD Migration Size (MB)": 3.0, "Total DtoH Migration Size (MB)": 0.5, "Total CPU Page Faults": 2,
            "Total GPU PageFaults": 30, "Minimum Virtual Address": "0x7F0000000000", "Maximum Virtual Address": "0x7F0000001000",
        }
    ]  # fmt: skip
