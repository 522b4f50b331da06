"""What nsys is asked to trace."""

from importlib import metadata
from pathlib import Path

import pytest

from alltrace.capture.profilers.nsys import (
    NCCL_TRACE,
    LeftOut,
    NsysOptions,
    lacks_nccl_trace,
    may_be_left_out,
    nccl_version,
    nsys_command,
)
from alltrace.capture.profilers.tool import Tool

HELP = """
\t-s, --sample=

\t   Possible values are 'process-tree' or 'none'. It is applicable with --trace=nvtx.

\t-t, --trace=

\t   Possible values are 'cuda', 'nvtx', 'cublas-verbose', {nccl}'osrt' or 'none'.
\t   Default is 'cuda,nvtx,osrt,opengl'.

\t--nccl-something=

\t   About 'nccl'.
"""
OLD = Tool(Path("nsys"), (2025, 5, 1), frozenset(), HELP.format(nccl=""))
NEW = Tool(Path("nsys"), (2025, 6, 1), frozenset(), HELP.format(nccl="'nccl', "))


@pytest.fixture(autouse=True)
def no_package(monkeypatch):
    """No package of NCCL, whatever is installed here."""

    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)


def traced(tool, environment=None, left_out=(), **options):
    command, _ = nsys_command(
        tool, Path("r"), NsysOptions(**options), node_wide=True, force=False, left_out=left_out, environment=environment
    )
    return next(word for word in command if word.startswith("--trace="))


def test_nccl_is_traced_where_nsys_and_nccl_have_it():
    assert traced(NEW) == "--trace=cuda,nvtx,nccl"
    assert traced(NEW, {"NCCL_VERSION": "2.28.3-1"}) == "--trace=cuda,nvtx,nccl"
    assert traced(NEW, {"NCCL_VERSION": "2.27.7"}) == traced(OLD) == "--trace=cuda,nvtx"
    assert traced(NEW, trace="cuda,osrt") == "--trace=cuda,osrt"
    assert lacks_nccl_trace(OLD, {}) == "nsys 2025.5.1 cannot trace NCCL; 2025.6 and later can"
    assert (
        lacks_nccl_trace(NEW, {"NCCL_VERSION": "2.9.9"})
        == "NCCL 2.9.9 cannot be traced by the profiler; 2.28 and later can"
    )


def test_the_package_of_nccl_counts_before_the_variable(monkeypatch):
    monkeypatch.setattr(metadata, "version", {"nvidia-nccl-cu13": "2.27.3"}.__getitem__)
    assert nccl_version({"NCCL_VERSION": "2.28.3"}) == "2.27.3"
    assert traced(NEW, {"NCCL_VERSION": "2.28.3"}) == "--trace=cuda,nvtx"


def test_the_trace_of_nccl_is_left_out_where_nsys_refuses_it():
    with_nccl, _ = nsys_command(NEW, Path("r"), NsysOptions(), node_wide=True, force=False)
    assert may_be_left_out(NsysOptions(), with_nccl, node_wide=True) == {NCCL_TRACE: ("nccl", "NCCL")}
    assert traced(NEW, left_out=[LeftOut(NCCL_TRACE, "it says so")]) == "--trace=cuda,nvtx"
    without, _ = nsys_command(OLD, Path("r"), NsysOptions(), node_wide=True, force=False)
    assert may_be_left_out(NsysOptions(), without, node_wide=True) == {}
